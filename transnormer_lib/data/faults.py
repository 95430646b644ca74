"""The two ways in which data can fail: they are missing, or they are wrong."""


class DataUnavailable(Exception):
    """The data set is not on this machine. The message is one line: what is missing and how to get it."""


class DataFault(ValueError):
    """The data are there but wrong. The message is one line: the file, the row if known, and what was expected."""
