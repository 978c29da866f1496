"""The error of a command line that is not the verb's."""


class UsageError(Exception):
    """The words of a command line are not those of the verb; the message is one line."""
