"""A file or a dataset to a `Table`: csv, tsv, JSON, lines of text, parquet, datasets of the Hub."""
