"""How good a model is: figures with intervals, beside cheap models, as tables and a report."""
