"""How good a classifier is, with intervals, pictures and a report; and its answers to new texts."""
