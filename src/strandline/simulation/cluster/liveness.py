"""After healing: a controller within 5 s, leaders of all partitions within 10 s, everybody up to date and answering,
and replicas in sync.

The limits are the project's promises, in the time of the simulation, whose clocks may run a tenth slower than the
nodes' own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.model.errors import KafkaError
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.runtime.world import World
from strandline.simulation.cluster.broker_connection import Caller
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.topic_history import History, TopicState
from strandline.simulation.cluster.violation import Violation

CONTROLLER_S = 5
LEADERS_S = 10
IN_SYNC_S = 20
PROBE = "probe"
_DRIFT = 1.12


async def settled(cluster: Cluster, history: History) -> None:
    await _within(CONTROLLER_S, lambda: None if cluster.leader() else "no controller is active")
    await _within(LEADERS_S - CONTROLLER_S, lambda: without_leader(cluster))
    history.began(PROBE, TopicState(1))
    await _asked_everywhere(cluster)
    await _within(LEADERS_S, lambda: _behind(cluster))
    await _within(IN_SYNC_S, lambda: out_of_sync(cluster))


async def _within(limit_s: float, missing: Callable[[], str | None]) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s * _DRIFT
    while (why := missing()) is not None:
        if loop.time() > deadline_s:
            raise Violation("liveness", f"{limit_s} s after healing {why}")
        await asyncio.sleep(0.05)


def without_leader(cluster: Cluster) -> str | None:
    """A partition that could have a leader and has none, or a broker that runs and is fenced."""
    view = cluster.ledger.image.committed
    for member in cluster.brokers():
        broker = view.broker(member.id)
        if member.wanted and (broker is None or broker.fenced):
            return f"broker {member.id} is {'fenced' if broker else 'not registered'}"
    wiped = {member.id for member in cluster.members.values() if member.was_wiped}
    for key, partition in view.all_partitions():
        hopeful = {*partition.isr, *partition.elr, *partition.last_known_elr} - wiped
        if partition.leader < 0 and hopeful:
            topic = view.topic_by_id(key[0])
            return f"{topic.name if topic else key[0]}-{key[1]} has no leader ({partition})"
    return None


def out_of_sync(cluster: Cluster) -> str | None:
    """A partition whose replicas all run, one of them leads, and another is still not in sync."""
    view = cluster.ledger.image.committed
    running = {broker.id for broker in view.brokers() if not broker.fenced and cluster.members[broker.id].running}
    for key, partition in view.all_partitions():
        if partition.leader >= 0 and running >= set(partition.replicas) > set(partition.isr):
            topic = view.topic_by_id(key[0])
            return f"{topic.name if topic else key[0]}-{key[1]} is not in sync everywhere ({partition})"
    return None


def _behind(cluster: Cluster) -> str | None:
    for member in cluster.running():
        node = member.node
        if node is None or node.image.committed.moment < cluster.ledger.end - 5:
            at = -1 if node is None else node.image.committed.moment
            return f"{member.name} has metadata up to {at}, and {cluster.ledger.end} is committed"
    return None


async def _asked_everywhere(cluster: Cluster) -> None:
    """Through each broker: a change is made, and everything that is committed is seen."""
    for member in cluster.brokers():
        if member.running:
            why = await cluster.simulation.machine(f"probe of {member.name}").boot(_Probe(cluster, member).run)
            if why is not None:
                raise Violation("liveness", f"{LEADERS_S} s after healing {member.name} {why}")


class _Probe:
    def __init__(self, cluster: Cluster, member: Member) -> None:
        self._cluster = cluster
        self._member = member

    async def run(self, world: World) -> str | None:
        caller = Caller(world, lambda: [self._member.name], world.random)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LEADERS_S
        try:
            while (why := await self._try(caller)) is not None:
                if loop.time() > deadline_s:
                    return why
                await asyncio.sleep(0.1)
        finally:
            caller.close()
        return None

    async def _try(self, caller: Caller) -> str | None:
        topic = CreatableTopic(name=PROBE, num_partitions=1, replication_factor=1)
        try:
            await caller.call(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), CreateTopicsResponse)
            answer = await caller.call(MetadataRequest(topics=None), MetadataResponse)
        except KafkaError as error:
            return f"does not answer: {error}"
        seen = {each.name or "": (each.topic_id, len(each.partitions)) for each in answer.topics}
        view = self._cluster.ledger.image.committed
        committed = {each.name: (each.id, each.partition_count) for each in view.topics()}
        if PROBE not in committed:
            return "cannot get a topic created"
        return None if seen == committed else f"shows topics {sorted(seen)}, and committed are {sorted(committed)}"
