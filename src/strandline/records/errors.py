"""What the readers of `records` raise for malformed bytes."""

from __future__ import annotations


class CorruptBatch(Exception):
    """The bytes are not a well-formed record batch. Readers of batches raise nothing else, whatever the bytes are."""


class DecompressionLimit(CorruptBatch):
    """The records decompress to more bytes than the caller allows."""


class OverlongVarint(ValueError):
    """An unsigned varint of a message does not fit 32 bits."""
