"""A linear model of words or characters: the baseline of every run, and a member of its classifier."""
