"""What a classifier attends to: exact maps of its heads, a page to read them on, and figures over a corpus."""
