"""Disk operations as values: they go into the trace, and replaying them rebuilds the volume at any point of a run.

This makes a power loss at *every* disk operation affordable: the program runs once with its operations recorded, and
only what follows the loss (boot, read back, compare) runs once per operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from strandline.simulation.volume import Volume


class Operation(msgspec.Struct):
    kind: str
    path: str = ""
    number: int = 0
    """The file's number, for operations through a handle."""
    position: int = 0
    """Where a write begins; the new size for a truncation."""
    data: bytes = b""
    other: str = ""
    """The new name of a rename."""
    at_ms: int = 0

    def describe(self) -> str:
        return f"{self.at_ms} {self.kind} {self.path} {self.other}{self.number} {self.position} {len(self.data)}"

    def perform(self, volume: Volume) -> None:
        match self.kind:
            case "write":
                volume.file_number(self.number).write(self.position, self.data, self.at_ms)
            case "sync":
                volume.sync(volume.file_number(self.number))
            case "truncate":
                volume.file_number(self.number).truncate(self.position, self.at_ms)
            case "create":
                volume.create(self.path, self.at_ms)
            case "rename":
                volume.rename(self.path, self.other, self.at_ms)
            case "remove":
                volume.remove(self.path, self.at_ms)
            case "make_dir":
                volume.make_dir(self.path, self.at_ms)
            case "sync_dir":
                volume.sync_dir(self.path)
            case "sync_failed":
                volume.file_number(self.number).sync_failed()
            case _:
                raise ValueError(f"unknown disk operation {self.kind!r}")


class Journal(msgspec.Struct):
    operations: list[Operation] = msgspec.field(default_factory=list)

    def replay(self, volume: Volume) -> Iterator[int]:
        """Replays the run on `volume`, which must be as it was at the start; yields k before operation k is applied."""
        for number, operation in enumerate(self.operations):
            yield number
            operation.perform(volume)
        yield len(self.operations)
