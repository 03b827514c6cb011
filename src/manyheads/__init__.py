"""Transformer-encoder text classifiers from configuration."""

__version__ = "0.1.0"
