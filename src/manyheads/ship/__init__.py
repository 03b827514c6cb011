"""The classifier as a folder that others can open."""
