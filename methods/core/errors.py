"""The one exception that is meant for the person at the keyboard."""


class UserError(Exception):
    """A mistake of the user: commands show it as one line, without a traceback, and exit with code 2."""
