"""Fair comparisons: one setting varied, a budget held equal, over seeds and data, with a paired test."""
