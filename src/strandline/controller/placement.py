"""Placement of new replicas: striped over racks, and over the brokers of each rack.

The first replica of a partition (the preferred leader) comes from the next rack in turn and is never fenced; the others
come from the racks after it, one from each before any rack supplies a second. Every rack rotates its own brokers. Once
each live broker has been a preferred leader, racks and brokers are shuffled, so that the same brokers do not always
follow the same leader.

Fenced brokers become followers when there are too few live ones: they are registered and expected back.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from strandline.metadata.values import BrokerInfo
from strandline.model.errors import ErrorCode, KafkaError


class Candidate(msgspec.Struct, frozen=True):
    id: int
    rack: str | None
    fenced: bool


def candidates(brokers: Iterable[BrokerInfo]) -> list[Candidate]:
    return [Candidate(broker.id, broker.rack, broker.fenced) for broker in brokers if takes_new_replicas(broker)]


def takes_new_replicas(broker: BrokerInfo) -> bool:
    """Neither in controlled shutdown nor with all its directories cordoned (KIP-1066)."""
    if broker.in_controlled_shutdown:
        return False
    cordoned = broker.cordoned_directories
    return not cordoned or not broker.directories or any(each not in cordoned for each in broker.directories)


class Striping:
    """The placements of one request, each continuing where the last one ended."""

    def __init__(self, candidates: Iterable[Candidate], random: Random) -> None:
        self._random = random
        by_rack: dict[str, list[Candidate]] = {}
        self._total = self._live = 0
        for candidate in sorted(candidates, key=lambda candidate: candidate.id):
            # Brokers without a rack form one rack, sorted before all names.
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
            raise _rejected(f"the replication factor is {replication_factor}: it must be at least 1")
        if self._live == 0:
            raise _rejected("all brokers are fenced, or none has registered")
        if replication_factor > self._total:
            raise _rejected(
                f"{replication_factor} replicas were requested, but only {self._total} brokers are registered"
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
    """Returns each of its brokers once per partition, starting with the next broker each time."""

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


def _rejected(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
