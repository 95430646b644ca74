"""The code, the versions and the machine that made a result. Imports nothing else of this project."""
