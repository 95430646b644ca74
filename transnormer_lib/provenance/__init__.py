"""Which code, which versions and which machine made a result. A leaf: it imports nothing else of ours."""
