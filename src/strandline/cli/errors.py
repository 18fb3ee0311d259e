"""The two ways a command can end badly, as exit codes and sentences: 1 failed, 2 misused."""

from __future__ import annotations


class CommandFailed(Exception):
    """What was asked could not be done; the message says why, and what to do about it."""

    exit_code = 1


class UsageError(CommandFailed):
    """What was asked makes no sense; the message says what would."""

    exit_code = 2
