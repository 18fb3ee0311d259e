"""Names and identifiers that every layer shares."""

from __future__ import annotations

import base64
import binascii
from random import Random
from typing import NamedTuple, Self


class Uuid(bytes):
    """Sixteen bytes whose text form is Kafka's: URL-safe base64 without padding."""

    __slots__ = ()

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"

    @classmethod
    def parse(cls, text: str) -> Self:
        try:
            raw = base64.urlsafe_b64decode(text + "==")
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{text!r} is not a Kafka uuid (22 characters of URL-safe base64)") from error
        if len(raw) != 16 or len(text) > 24:
            raise ValueError(f"{text!r} is not a Kafka uuid: it holds {len(raw)} bytes, not 16")
        return cls(raw)

    @classmethod
    def of(cls, most: int, least: int) -> Self:
        return cls(((most << 64) | least).to_bytes(16, "big"))


ZERO_UUID = Uuid(16)
METADATA_TOPIC_ID = Uuid.of(0, 1)
METADATA_TOPIC = "__cluster_metadata"

# Reserved directory ids (KIP-858); all ids below 100 are reserved.
DIRECTORY_MIGRATING = Uuid.of(0, 0)
DIRECTORY_UNASSIGNED = Uuid.of(0, 1)
DIRECTORY_LOST = Uuid.of(0, 2)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def random_uuid(random: Random) -> Uuid:
    """A version-4 uuid that is not reserved and whose text does not start with a dash (an option on command lines)."""
    while True:
        raw = bytearray(random.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(raw)
        if int.from_bytes(uuid, "big") >= 100 and not str(uuid).startswith("-"):
            return uuid


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
