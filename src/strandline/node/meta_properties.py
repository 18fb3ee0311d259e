"""meta.properties: which cluster and node a directory belongs to, and the id of the directory itself.

Read and written by `node/storage`. Version 1 is written; version 0 (broker.id, no directory.id) can be read.
"""

from __future__ import annotations

from typing import Final

import msgspec

from strandline.model.ids import Uuid
from strandline.node.properties_file import format_properties, parse_properties
from strandline.runtime.disk import Disk, write_atomically

META_PROPERTIES: Final = "meta.properties"


class MetaProperties(msgspec.Struct, frozen=True):
    """The content of the file. Files of older versions may lack any field."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None

    @property
    def complete(self) -> bool:
        return None not in (self.cluster_id, self.node_id, self.directory_id)


class MetaPropertiesUnreadable(Exception):
    """An invalid meta.properties: guessing its content could join the wrong cluster."""


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Reads meta.properties; None when the directory is not formatted. Raises OSError when it cannot be read."""
    path = f"{directory}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    try:
        properties = parse_properties(disk.read(path))
        version = _number(properties, "version")
        if version is None:
            raise ValueError("it has no version")
        if version not in (0, 1):
            raise ValueError(f"version {version} is newer than this program supports")
        directory_id = properties.get("directory.id")
        return MetaProperties(
            cluster_id=properties.get("cluster.id", "").strip() or None,
            node_id=_number(properties, "node.id" if version == 1 else "broker.id"),
            directory_id=None if directory_id is None else Uuid.parse(directory_id.strip()),
        )
    except ValueError as error:
        raise MetaPropertiesUnreadable(f"{path} is invalid: {error}. Restore it from a backup") from error


def _number(properties: dict[str, str], key: str) -> int | None:
    text = properties.get(key)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise ValueError(f"{key} is {text!r}, not a number") from None


def write_meta_properties(disk: Disk, directory: str, meta: MetaProperties) -> None:
    assert meta.complete
    properties = {
        "version": "1",
        "cluster.id": str(meta.cluster_id),
        "node.id": str(meta.node_id),
        "directory.id": str(meta.directory_id),
    }
    write_atomically(disk, f"{directory}/{META_PROPERTIES}", format_properties(properties))
