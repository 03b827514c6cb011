"""BERT's family in and out, and the Hugging Face hub."""
