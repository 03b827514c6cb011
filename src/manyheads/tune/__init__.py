"""Searches: settings tried in a process each, ranked by the validation split."""
