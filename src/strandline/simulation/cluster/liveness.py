"""The liveness phase after healing: an active controller within 5 s, leaders of all partitions within 10 s, then all
nodes with current metadata and responding, and all replicas in sync.

The limits are in the simulation's time; clocks of nodes may run a tenth slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.model.errors import KafkaError
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.runtime.world import World
from strandline.simulation.cluster.broker_connection import BrokerConnection
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.topic_history import TopicHistory, TopicState
from strandline.simulation.cluster.violation import Violation

CONTROLLER_S = 5
LEADERS_S = 10
IN_SYNC_S = 20
PROBE = "probe"
_DRIFT = 1.12


async def until_settled(cluster: Cluster, history: TopicHistory) -> None:
    await _within(CONTROLLER_S, lambda: None if cluster.leader() else "no controller is active")
    await _within(LEADERS_S - CONTROLLER_S, lambda: without_leader(cluster))
    history.requested(PROBE, TopicState(1))
    await _probe_all_brokers(cluster)
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
    """Describes a running broker that is fenced, or a partition without a leader that could have one."""
    view = cluster.metadata.image.committed
    for member in cluster.brokers():
        broker = view.broker(member.id)
        if member.should_run and (broker is None or broker.fenced):
            return f"broker {member.id} is {'fenced' if broker else 'not registered'}"
    wiped = {member.id for member in cluster.members.values() if member.was_wiped}
    for key, partition in view.all_partitions():
        electable = {*partition.isr, *partition.elr, *partition.last_known_elr} - wiped
        if partition.leader < 0 and electable:
            topic = view.topic_by_id(key[0])
            return f"{topic.name if topic else key[0]}-{key[1]} has no leader ({partition})"
    return None


def out_of_sync(cluster: Cluster) -> str | None:
    """Describes a partition with a leader and all replicas running that are not all in sync."""
    view = cluster.metadata.image.committed
    running = {broker.id for broker in view.brokers() if not broker.fenced and cluster.members[broker.id].running}
    for key, partition in view.all_partitions():
        if partition.leader >= 0 and running >= set(partition.replicas) > set(partition.isr):
            topic = view.topic_by_id(key[0])
            return f"{topic.name if topic else key[0]}-{key[1]} has replicas that are not in sync ({partition})"
    return None


def _behind(cluster: Cluster) -> str | None:
    for member in cluster.running():
        node = member.node
        if node is None or node.image.committed.moment < cluster.metadata.end - 5:
            at = -1 if node is None else node.image.committed.moment
            return f"{member.name} has metadata up to {at}, and {cluster.metadata.end} is committed"
    return None


async def _probe_all_brokers(cluster: Cluster) -> None:
    """Each broker accepts a metadata change and shows all committed metadata."""
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
        connection = BrokerConnection(world, lambda: [self._member.name], world.random)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LEADERS_S
        try:
            while (why := await self._try(connection)) is not None:
                if loop.time() > deadline_s:
                    return why
                await asyncio.sleep(0.1)
        finally:
            connection.close()
        return None

    async def _try(self, connection: BrokerConnection) -> str | None:
        topic = CreatableTopic(name=PROBE, num_partitions=1, replication_factor=1)
        try:
            await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), CreateTopicsResponse)
            response = await connection.call(MetadataRequest(topics=None), MetadataResponse)
        except KafkaError as error:
            return f"does not respond: {error}"
        seen = {each.name or "": (each.topic_id, len(each.partitions)) for each in response.topics}
        view = self._cluster.metadata.image.committed
        committed = {each.name: (each.id, each.partition_count) for each in view.topics()}
        if PROBE not in committed:
            return "does not create a topic"
        return None if seen == committed else f"shows topics {sorted(seen)}, and committed are {sorted(committed)}"
