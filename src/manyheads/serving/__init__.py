"""A classifier as a web server: one process that speaks HTTP, others that hold the model, and a page to try it."""
