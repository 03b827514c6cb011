"""A file or a dataset to a table: csv, tsv, JSON, lines of text, parquet, datasets of the Hub."""
