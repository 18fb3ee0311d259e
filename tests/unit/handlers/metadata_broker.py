"""The context of a broker, or of a controller, with metadata that the test writes and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from strandline.handlers.context import BrokerContext, ControllerContext
from strandline.metadata.image import Image
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import (
    BrokerEndpoint,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from strandline.protocol.types import Message
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.simulation.loop import VirtualLoop

T = TypeVar("T")
CLIENTS, BROKERS = "CLIENTS", "BROKERS"  # names of listeners


@dataclass
class FakeCall:
    api_key: int
    version: int
    listener: str = CLIENTS
    client_id: str = "test"
    principal: str = "User:ANONYMOUS"
    client_host: str = "127.0.0.1"
    offload_encoding: bool = False
    parked: bool = False

    def park(self) -> None:
        self.parked = True


class FakeConfig:
    def __init__(self, **values: Any) -> None:
        self._values = {key.replace("_", "."): value for key, value in values.items()}

    def get(self, key: str) -> Any:
        return self._values[key]

    def layers(self) -> Any:
        raise AssertionError("not needed here")


class MetadataBroker:
    def __init__(self, node_id: int = 1, **config: Any) -> None:
        self.image = Image()
        self.write(FeatureLevelRecord(name="metadata.version", feature_level=30))
        nothing = cast(Any, None)
        self.broker = BrokerContext(
            node_id=node_id,
            cluster_id="cluster",
            world=nothing,
            image=self.image,
            partitions=nothing,
            controller=nothing,
            kraft_version=lambda: 1,
            producer_ids=nothing,
            config=FakeConfig(**{"auto_create_topics_enable": False, **config}),
            fetch_sessions=nothing,
            log_directories=list,
            groups=nothing,
            transactions=nothing,
            call_broker=nothing,
        )

    def controller(self, *voters: Voter) -> ControllerContext:
        """The controller of the same metadata, with these voters in its quorum."""
        return ControllerContext(
            node_id=1,
            cluster_id="cluster",
            image=self.image,
            kraft_version=lambda: 1,
            config=self.broker.config,
            methods={},
            leader_id=lambda: 1,
            voters=lambda: VoterSet(voters),
            broker_connection_lost=cast(Any, None),
        )

    def write(self, *records: Message) -> None:
        self.image.replay_batch(self.image.end_offset, records)
        self.image.commit(self.image.end_offset)

    def add_broker(
        self, broker_id: int, *, listeners: Sequence[str] = (CLIENTS, BROKERS), fenced: bool = False
    ) -> None:
        self.write(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=Uuid.of(5, broker_id),
                broker_epoch=self.image.end_offset,
                end_points=[BrokerEndpoint(name=name, host=f"{name}-{broker_id}", port=9092) for name in listeners],
                fenced=fenced,
                rack=None,
            )
        )

    def add_topic(self, name: str, *replicas: list[int]) -> Uuid:
        """One partition for each list of replicas, led by its first."""
        topic_id = Uuid.of(9, self.image.end_offset)
        partitions = [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=brokers,
                isr=brokers,
                leader=brokers[0],
                leader_epoch=3,
                partition_epoch=0,
            )
            for index, brokers in enumerate(replicas)
        ]
        self.write(TopicRecord(name=name, topic_id=topic_id), *partitions)
        return topic_id


def run(awaited: Awaitable[T]) -> T:
    loop = VirtualLoop()
    try:
        return loop.run(awaited)
    finally:
        loop.close()


async def count_yields(awaited: Awaitable[T]) -> tuple[T, int]:
    """The result, and how often another task ran before it."""
    yields = 0
    done = False

    async def other_task() -> None:
        nonlocal yields
        while not done:
            yields += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(other_task())
    result = await awaited
    done = True
    await other
    return result, yields
