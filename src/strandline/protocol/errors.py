"""What can go wrong between a message and its bytes."""

from __future__ import annotations

from strandline.model.errors import ErrorCode, code_of
from strandline.protocol.types import Message


class MalformedMessage(Exception):
    """The bytes are not this message at this version. A peer that sends them is disconnected."""


class TooManyElements(MalformedMessage):
    """The bytes may be this message, but it has more elements than the caller wants to hold."""


class EncodeError(Exception):
    """The message cannot be written at this version: a bug of ours, or a value that version has no room for."""


def response_error(response: Message) -> ErrorCode:
    """The error of a response as a whole; NONE for one that has errors only inside."""
    return code_of(getattr(response, "error_code", 0))
