"""The errors by which a command ends: the message goes to standard error, the exit code is 1 (failed) or 2 (usage)."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command could not be carried out; the message gives the reason and what to do about it."""

    exit_code = 1


class UsageError(CommandFailed):
    """The arguments are invalid; the message says what is valid."""

    exit_code = 2
