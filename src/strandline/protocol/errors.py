"""Errors of encoding and decoding, and the error code of a response."""

from __future__ import annotations

from strandline.model.errors import ErrorCode, code_of
from strandline.protocol.types import Message


class MalformedMessage(Exception):
    """The bytes are not this message at this version. A peer that sends them is disconnected."""


class TooManyElements(MalformedMessage):
    """The message has more elements than the caller allows."""


class EncodeError(Exception):
    """The message cannot be encoded at this version: a bug, or a value that the version cannot express."""


def response_error(response: Message) -> ErrorCode:
    """The top-level error of a response; NONE if it has only errors of partitions or resources."""
    return code_of(getattr(response, "error_code", 0))
