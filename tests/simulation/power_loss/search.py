"""Replays the disk operations of a recorded run and tries a power loss before each chosen operation."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from random import Random
from typing import Protocol

import msgspec

from strandline.simulation.journal import Journal
from strandline.simulation.volume import Volume


class Recording(Protocol):
    """One run of a seed with its recorded disk operations and its promises."""

    @property
    def name(self) -> str: ...
    @property
    def journal(self) -> Journal: ...
    def check(self, found: Volume, operation: int, random: Random) -> None:
        """Raises if `found`, left by a power loss before this operation, breaks a promise."""
        ...


class Finding(msgspec.Struct, frozen=True):
    recording: str
    operation: int
    variant: int
    why: str
    details: str

    def __str__(self) -> str:
        return f"{self.recording}, power lost at disk operation {self.operation} (variant {self.variant}): {self.why}"


def chosen_operations(recording: Recording, sample: int | None, random: Random) -> set[int]:
    """A sample of the operations, or all of them; the end of the run counts as one."""
    count = len(recording.journal.operations) + 1
    return set(range(count)) if sample is None or sample >= count else set(random.sample(range(count), sample))


def draw(recording: Recording, operation: int, variant: int) -> Random:
    """The generator that decides what a power loss at this operation leaves."""
    return Random(f"{recording.name}/{operation}/{variant}")


def search(recording: Recording, operations: set[int], variants: int) -> Iterator[Finding | None]:
    """Yields one result for each power loss: None if every promise was kept."""
    volume = Volume()
    for operation in recording.journal.replay(volume):
        if operation in operations:
            for variant in range(variants):
                yield _try(recording, volume, operation, variant)


def _try(recording: Recording, volume: Volume, operation: int, variant: int) -> Finding | None:
    random = draw(recording, operation, variant)
    try:
        recording.check(volume.after_power_loss(random), operation, random)
    except Exception as error:
        return Finding(recording.name, operation, variant, f"{type(error).__name__}: {error}", traceback.format_exc())
    return None
