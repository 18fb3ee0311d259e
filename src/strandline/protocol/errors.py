"""What can go wrong between a message and its bytes."""

from __future__ import annotations


class MalformedMessage(Exception):
    """The bytes are not this message at this version. A peer that sends them is disconnected."""


class TooManyElements(MalformedMessage):
    """The bytes may be this message, but it has more elements than the caller wants to hold."""


class EncodeError(Exception):
    """The message cannot be written at this version: a bug of ours, or a value that version has no room for."""
