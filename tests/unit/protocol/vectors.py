"""The checked-in vectors: bytes that Kafka's classes wrote, and Kafka's JSON for them; one per line, compressed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any, NamedTuple

VECTORS = Path(__file__).with_name("vectors.txt.xz")


class Vector(NamedTuple):
    name: str
    version: int
    data: bytes
    json: dict[str, Any]


def read_vectors() -> list[Vector]:
    found = []
    for line in lzma.decompress(VECTORS.read_bytes()).decode().splitlines():
        name, version, data, text = line.split(" ", 3)
        found.append(Vector(name, int(version), bytes.fromhex(data), json.loads(text)))
    return found


def write_vectors(vectors: list[Vector]) -> None:
    lines = (f"{v.name} {v.version} {v.data.hex()} {json.dumps(v.json, ensure_ascii=False)}\n" for v in vectors)
    VECTORS.write_bytes(lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
