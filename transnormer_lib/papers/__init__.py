"""What the papers say, as data: one folder per paper with its tables, settings and discrepancies."""
