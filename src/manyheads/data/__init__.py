"""Text to batches: sources -> audit -> tokens -> cache -> batches -> module. Importing this imports nothing heavy."""
