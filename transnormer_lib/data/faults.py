"""What can be wrong with data: they are not there, or they are not what they should be."""


class DataUnavailable(Exception):
    """The data set is not on this machine. The message: one line, what is missing, what provides it."""


class DataFault(ValueError):
    """Data that are there and wrong. The message: one line, the file, the row where there is one, what was expected."""
