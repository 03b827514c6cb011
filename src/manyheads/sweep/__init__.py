"""Searches and comparisons: settings tried or varied, ranked by the validation split, with paired tests."""
