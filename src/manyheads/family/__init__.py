"""Models of the BERT family: Hugging Face folders in and out of our own blocks."""
