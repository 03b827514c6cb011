"""How good a model is: figures with intervals, next to those of cheap models, as tables and a report."""
