"""Where the replicas of new partitions go: striped over racks, and over the brokers of each rack.

Each partition takes its first replica (the preferred leader) from the next rack in turn, always a live broker, and the
others from the racks after it, one each before any rack gives a second. Every rack rotates its own brokers. Once each
live broker has been first, everything is shuffled, so that the same brokers do not always follow the same leader.

Fenced brokers may follow, when live ones do not suffice: they are registered and expected back.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from strandline.model.errors import ErrorCode, KafkaError


class Candidate(msgspec.Struct, frozen=True):
    id: int
    rack: str | None
    fenced: bool


class Striping:
    """One request's worth of placement: partitions placed in turn remember each other."""

    def __init__(self, candidates: Iterable[Candidate], random: Random) -> None:
        self._random = random
        by_rack: dict[str, list[Candidate]] = {}
        self._total = self._live = 0
        for candidate in sorted(candidates, key=lambda candidate: candidate.id):
            # Brokers without a rack make up one rack among the others, sorted before all names.
            by_rack.setdefault(candidate.rack or "", []).append(candidate)
            self._total += 1
            self._live += not candidate.fenced
        self._racks = [_Rack(by_rack[name], random) for name in sorted(by_rack)]
        self._turn = random.randrange(len(self._racks)) if self._racks else 0
        self._placed = 0

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, the preferred leader first."""
        self._check(replication_factor)
        if self._placed == self._live > 1:
            self._shuffle()
        racks, placed = self._racks, self._placed
        turn = self._turn % len(racks)
        first = turn
        leader = racks[first].next_live(placed)
        while leader is None:
            first = (first + 1) % len(racks)
            leader = racks[first].next_live(placed)
        replicas = [leader]
        skip_once = True
        at = turn
        while len(replicas) < replication_factor:
            if at == first and skip_once:
                skip_once = False
            else:
                follower = racks[at].next(placed)
                if follower is not None:
                    replicas.append(follower)
            at = (at + 1) % len(racks)
        self._turn = turn + 1
        self._placed += 1
        return replicas

    def _check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            raise _refused(f"{replication_factor} is not a replication factor: it must be at least 1")
        if self._live == 0:
            raise _refused("no broker is alive: all are fenced or none has registered yet")
        if replication_factor > self._total:
            raise _refused(
                f"{replication_factor} replicas were asked for, but only {self._total} brokers are registered"
            )

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for rack in self._racks:
            rack.shuffle()
        self._placed = 0


class _Rack:
    def __init__(self, candidates: list[Candidate], random: Random) -> None:
        self._live = _Ring([candidate.id for candidate in candidates if not candidate.fenced], random)
        self._fenced = _Ring([candidate.id for candidate in candidates if candidate.fenced], random)

    def next_live(self, partition: int) -> int | None:
        return self._live.next(partition)

    def next(self, partition: int) -> int | None:
        live = self._live.next(partition)
        return self._fenced.next(partition) if live is None else live

    def shuffle(self) -> None:
        self._live.shuffle()
        self._fenced.shuffle()


class _Ring:
    """Gives each of its brokers once per partition, starting one further each time."""

    def __init__(self, ids: list[int], random: Random) -> None:
        self._ids = ids
        self._random = random
        self._start = random.randrange(len(ids)) if ids else 0
        self._given = 0
        self._partition = 0

    def next(self, partition: int) -> int | None:
        if not self._ids:
            return None
        if partition != self._partition:
            self._partition = partition
            self._start = (self._start + 1) % len(self._ids)
            self._given = 0
        if self._given == len(self._ids):
            return None
        chosen = self._ids[(self._start + self._given) % len(self._ids)]
        self._given += 1
        return chosen

    def shuffle(self) -> None:
        self._random.shuffle(self._ids)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
