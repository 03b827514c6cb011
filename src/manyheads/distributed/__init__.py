"""One run in several processes: which, started how, watched, agreed."""
