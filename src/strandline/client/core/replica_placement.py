"""Plans reassignments: draining brokers, and spreading topics over brokers. A core: values in, moves out.

Replicas of one partition go to different racks while there are racks left, then to the broker with the fewest replicas.
Only necessary moves are made: a replica that stays keeps its place in the list, and so the preferred leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from strandline.client.core.descriptions import BrokerDescription
from strandline.model.ids import TopicPartition

Placement = Mapping[TopicPartition, Sequence[int]]
Moves = dict[TopicPartition, list[int]]


class DrainPlan(msgspec.Struct, frozen=True):
    moves: Moves
    stuck: list[TopicPartition]
    """Partitions that have a replica on every remaining broker already."""


def plan_drain(placement: Placement, leaving: Collection[int], brokers: Sequence[BrokerDescription]) -> DrainPlan:
    """Moves every replica of the `leaving` brokers to one of `brokers`."""
    remaining = [broker for broker in brokers if broker.id not in leaving]
    racks = {broker.id: broker.rack for broker in brokers}
    load = Counter(replica for replicas in placement.values() for replica in replicas)
    moves: Moves = {}
    stuck: list[TopicPartition] = []
    for partition, replicas in sorted(placement.items()):
        if not any(replica in leaving for replica in replicas):
            continue
        moved = list(replicas)
        for index, replica in enumerate(replicas):
            if replica in leaving and (successor := _successor(moved, index, remaining, racks, load)) is not None:
                moved[index] = successor
                load[successor] += 1
        if any(replica in leaving for replica in moved):
            stuck.append(partition)
        else:
            moves[partition] = moved
    return DrainPlan(moves, stuck)


def _successor(
    replicas: Sequence[int],
    index: int,
    brokers: Iterable[BrokerDescription],
    racks: Mapping[int, str | None],
    load: Mapping[int, int],
) -> int | None:
    """The broker for the place at `index`: preferably in a rack without a replica, then with the fewest replicas."""
    used = {racks.get(each) for position, each in enumerate(replicas) if position != index}
    candidates = [broker for broker in brokers if broker.id not in replicas]
    best = min(
        candidates,
        key=lambda broker: (broker.rack is not None and broker.rack in used, load.get(broker.id, 0), broker.id),
        default=None,
    )
    return None if best is None else best.id


def plan_spread(placement: Placement, brokers: Sequence[BrokerDescription], factor: int | None = None) -> Moves:
    """Places every partition as if its topic were created on these brokers now; `factor` None keeps the number of
    replicas. Returns only the partitions that change."""
    ring = _alternating_racks(brokers)
    moves: Moves = {}
    for partition, replicas in sorted(placement.items()):
        count = len(replicas) if factor is None else factor
        if count > len(ring):
            raise ValueError(f"{partition} is to have {count} replicas, but there are only {len(ring)} brokers for it")
        placed = _stripe(ring, partition.partition, count)
        if placed != list(replicas):
            moves[partition] = placed
    return moves


def plan_everywhere(partitions: Iterable[TopicPartition], brokers: Sequence[int]) -> Moves:
    """Places each partition on all of these brokers; the preferred leader rotates."""
    moves: Moves = {}
    for partition in partitions:
        first = partition.partition % len(brokers)
        moves[partition] = [*brokers[first:], *brokers[:first]]
    return moves


def _alternating_racks(brokers: Sequence[BrokerDescription]) -> list[BrokerDescription]:
    """The brokers in an order in which neighbours are in different racks as far as possible."""
    racks: dict[str | None, list[BrokerDescription]] = {}
    for broker in sorted(brokers, key=lambda each: each.id):
        racks.setdefault(broker.rack, []).append(broker)
    columns = [racks[rack] for rack in sorted(racks, key=lambda rack: rack or "")]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _stripe(ring: Sequence[BrokerDescription], index: int, count: int) -> list[int]:
    """The first replica goes round robin; the others start one further in every round, so that pairs vary."""
    size = len(ring)
    first = ring[index % size]
    shift = (index // size) % max(1, size - 1)
    others = [ring[(index + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    placed = [first]
    for distinct in (True, False):
        for broker in others:
            racks = {each.rack for each in placed}
            clash = broker.rack is not None and broker.rack in racks
            if len(placed) < count and broker not in placed and not (distinct and clash):
                placed.append(broker)
    return [broker.id for broker in placed]
