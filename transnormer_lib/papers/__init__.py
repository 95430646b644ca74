"""What the papers say, as data: one folder a paper with its tables, settings and discrepancies."""
