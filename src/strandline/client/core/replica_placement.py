"""Where replicas should live: plans for emptying brokers and for spreading topics anew. A core: values in, moves out.

Replicas of one partition go to different racks as long as there are racks left; beyond that to the broker that has the
least. Nothing is moved that need not be: whoever stays keeps its place in the list, and with it its turn to lead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from strandline.client.admin.cluster import BrokerDescription
from strandline.model.ids import TopicPartition

Placement = Mapping[TopicPartition, Sequence[int]]
Moves = dict[TopicPartition, list[int]]


@dataclass(frozen=True, slots=True)
class DrainPlan:
    moves: Moves
    stuck: list[TopicPartition]
    """Partitions that have a replica on every broker that would be left."""


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
    """Who takes the place at `index`: somebody in a rack that the others are not in, and with little to carry."""
    used = {racks.get(each) for position, each in enumerate(replicas) if position != index}
    candidates = [broker for broker in brokers if broker.id not in replicas]
    best = min(
        candidates,
        key=lambda broker: (broker.rack is not None and broker.rack in used, load.get(broker.id, 0), broker.id),
        default=None,
    )
    return None if best is None else best.id


def plan_spread(placement: Placement, brokers: Sequence[BrokerDescription], factor: int | None = None) -> Moves:
    """Every partition placed anew, as if its topic were created on these brokers now; `factor` None keeps the number of
    replicas. Only those that change are in the answer."""
    ring = _by_turns(brokers)
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
    """Each partition on all of these brokers; the first of the list changes, so that they share the leading."""
    moves: Moves = {}
    for partition in partitions:
        turn = partition.partition % len(brokers)
        moves[partition] = [*brokers[turn:], *brokers[:turn]]
    return moves


def _by_turns(brokers: Sequence[BrokerDescription]) -> list[BrokerDescription]:
    """A ring in which neighbours are in different racks as far as possible."""
    racks: dict[str | None, list[BrokerDescription]] = {}
    for broker in sorted(brokers, key=lambda each: each.id):
        racks.setdefault(broker.rack, []).append(broker)
    columns = [racks[rack] for rack in sorted(racks, key=lambda rack: rack or "")]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _stripe(ring: Sequence[BrokerDescription], index: int, count: int) -> list[int]:
    """The first replica goes round; the others start one further with every round, so that pairs vary."""
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
