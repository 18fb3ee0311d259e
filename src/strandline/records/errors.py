"""The one exception for bytes that are not what they claim to be, raised by everything in `records`."""

from __future__ import annotations


class CorruptBatch(Exception):
    """These bytes are not a well-formed record batch. Whatever a peer or a disk hands us, nothing else is raised."""


class DecompressionLimit(CorruptBatch):
    """The records unfold to more bytes than the caller is ready to hold."""
