"""The claims that are made of attention, as experiments: a file a claim, numbers and pictures out."""
