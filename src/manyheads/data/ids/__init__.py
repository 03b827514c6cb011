"""Texts to the ids of their tokens, as a tokenizer reads them, and what it puts around them; and to the numbers of
their terms, which a linear model counts."""
