"""The operations of a disk as values: what happened, for the trace, and to make the volume of any moment again.

A run of a thousand client operations costs a second or two; the volume before its k-th disk operation costs nothing
once the operations before it are known. That is what makes a power loss at *every* operation affordable: the program
runs once, and only what comes after the loss (boot, read back, compare) runs for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from strandline.simulation.volume import Volume


@dataclass(slots=True)
class Operation:
    kind: str
    path: str = ""
    number: int = 0  # of the file, for what happens through a handle
    position: int = 0  # of a write; the size of a truncation
    data: bytes = b""
    other: str = ""  # the new name
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


@dataclass(slots=True)
class Journal:
    operations: list[Operation] = field(default_factory=list)

    def moments(self, volume: Volume) -> Iterator[int]:
        """Takes a volume as it was at the start through the run; yields k when operation k is the next to happen."""
        for number, operation in enumerate(self.operations):
            yield number
            operation.perform(volume)
        yield len(self.operations)
