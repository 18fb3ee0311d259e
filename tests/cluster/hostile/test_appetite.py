"""Clients that want too much: what they can make the node hold is bounded, and nobody else waits for it."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

import pytest

from cluster.handlers.talk import Closed, Wire, batch, framed, produce
from cluster.hostile.siege import MIB, Besieged, Bystander, Raw
from strandline.model.errors import ErrorCode
from strandline.model.ids import Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from strandline.protocol.types import Message
from strandline.records.varint import uvarint

pytestmark = pytest.mark.xdist_group("besieged")

MANY = 200_000  # elements in a request: just allowed


def together(count: int, attack: Callable[[], None]) -> None:
    threads = [threading.Thread(target=attack, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def many_partitions() -> list[FetchTopic]:
    return [FetchTopic(topic="x", partitions=[FetchPartition(partition=index) for index in range(MANY)])]


def resources(kind: int, *names: str) -> list[DescribeConfigsResource]:
    return [DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]


def creations(name: str) -> list[CreatableTopic]:
    return [CreatableTopic(name=f"{name}{index}", num_partitions=1, replication_factor=1) for index in range(MANY)]


HUGE: dict[str, tuple[int, Callable[[], Message]]] = {
    "metadata by names": (9, lambda: MetadataRequest(topics=_names(MANY), allow_auto_topic_creation=False)),
    "metadata that creates topics": (9, lambda: MetadataRequest(topics=_names(MANY), allow_auto_topic_creation=True)),
    "metadata by ids": (12, lambda: MetadataRequest(topics=_ids(MANY))),
    "metadata of one again and again": (9, lambda: MetadataRequest(topics=_names(1) * MANY)),
    "list offsets": (
        7,
        lambda: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="x",
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(MANY)],
                )
            ],
        ),
    ),
    "fetch": (12, lambda: FetchRequest(topics=many_partitions(), max_wait_ms=100, min_bytes=1)),
    "fetch in a session": (12, lambda: FetchRequest(topics=many_partitions(), session_epoch=0)),
    "produce": (
        9,
        lambda: ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(name="x", partition_data=[PartitionProduceData(index=index) for index in range(MANY)])
            ],
        ),
    ),
    "coordinators": (4, lambda: FindCoordinatorRequest(coordinator_keys=[f"g{index}" for index in range(MANY)])),
    "producers": (
        0,
        lambda: DescribeProducersRequest(topics=[TopicRequest(name="x", partition_indexes=list(range(MANY)))]),
    ),
    "configs of the broker again and again": (4, lambda: DescribeConfigsRequest(resources=resources(4, "1") * MANY)),
    "configs of topics that are not there": (
        4,
        lambda: DescribeConfigsRequest(resources=resources(2, *(f"t{index}" for index in range(MANY)))),
    ),
    "topics to create": (7, lambda: CreateTopicsRequest(topics=creations("t"), timeout_ms=10_000)),
    "topics with illegal names to create": (
        7,
        lambda: CreateTopicsRequest(topics=creations("/"), timeout_ms=10_000),
    ),
    "partitions to create": (
        3,
        lambda: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=f"t{index}", count=2) for index in range(MANY)], timeout_ms=10_000
        ),
    ),
}


def _names(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=f"n{index}") for index in range(count)]


def _ids(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=None, topic_id=Uuid(index.to_bytes(16, "big"))) for index in range(1, count + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("label", list(HUGE))
def test_a_request_of_very_many_elements_is_answered_while_others_are_served(
    label: str, besieged: Besieged, bystander: Bystander
) -> None:
    version, make = HUGE[label]
    request = make()
    data = framed(request, version, 5)
    besieged.forget_peak()
    before = besieged.rss_mib()
    wire = besieged.wire(60)
    wire.socket.sendall(data)
    wire.hear(request, version, 5)
    wire.close()
    assert besieged.peak_mib() < before + 300, besieged.peak_mib()


def test_a_request_of_too_many_elements_is_refused(besieged: Besieged, bystander: Bystander) -> None:
    mark, before = besieged.mark(), besieged.rss_mib()
    besieged.forget_peak()
    count = 20_000_000
    body = struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1) + b"\0" + uvarint(count + 1) + b"\x02x\0" * count + bytes(4)
    data = struct.pack(">i", len(body)) + body
    raw = Raw(besieged, 60)
    raw.send(data)
    assert raw.frames_until_closed() == []
    assert ["more elements than are allowed" in line for line in besieged.closings_since(mark)] == [True]
    assert besieged.peak_mib() < before + 200, besieged.peak_mib()


@pytest.mark.slow
def test_sessions_of_partitions_that_are_not_there_do_not_add_up(besieged: Besieged, bystander: Bystander) -> None:
    partitions = [FetchPartition(partition=index) for index in range(50_000)]
    request = FetchRequest(topics=[FetchTopic(topic="x", partitions=partitions)], session_epoch=0)
    before = besieged.rss_mib()
    wire = besieged.wire(60)
    sessions = [wire.ask(request, 12).session_id for _ in range(12)]
    wire.close()
    # Six have room. Those that go without are the last ones, unless a session of another test ends meanwhile.
    assert sessions[0] != 0 and sessions.count(0) >= 6, "some go without"
    assert besieged.rss_mib() < before + 300


@pytest.mark.parametrize(
    "count", [2**31 - 1, 1_000_000, 10_002], ids=["all there can be", "a million", "one more than allowed"]
)
def test_more_partitions_than_one_request_may_make_are_refused(
    count: int, besieged: Besieged, bystander: Bystander
) -> None:
    name = besieged.talk("many").topic(f"partitions-{count}")
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=10_000
    )
    made = CreateTopicsRequest(
        topics=[CreatableTopic(name="large", num_partitions=count, replication_factor=1)], timeout_ms=10_000
    )
    wire = besieged.wire()
    assert wire.ask(more, 3).results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert wire.ask(made, 7).topics[0].error_code == ErrorCode.POLICY_VIOLATION
    wire.close()


@pytest.mark.slow
def test_a_thousand_connections_do_no_harm(besieged: Besieged, bystander: Bystander) -> None:
    before = besieged.rss_mib()
    idle = [Raw(besieged) for _ in range(700)]
    half = [Raw(besieged) for _ in range(300)]
    data = framed(MetadataRequest(topics=[]), 9)
    for raw in half:
        raw.send(data[:10])
    time.sleep(0.5)
    assert besieged.rss_mib() < before + 60
    besieged.is_healthy()
    for raw in half:
        raw.send(data[10:])
        assert len(raw.socket.recv(100)) > 10, "slow is not wrong"
    for raw in idle + half:
        raw.reset()


def fifty_mib(besieged: Besieged, name: str) -> tuple[str, FetchRequest]:
    talk = besieged.talk("fifty-mib")
    topic = talk.topic(name)
    wire = besieged.wire()
    for _ in range(55):
        answer = wire.ask(produce(topic, batch(1, size=1_000_000)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    wire.close()
    wanted = FetchPartition(fetch_offset=0, partition_max_bytes=50 * MIB)
    return topic, FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], max_bytes=50 * MIB)


def test_clients_that_ask_for_fifty_mebibytes_and_never_read_cost_little(
    besieged: Besieged, bystander: Bystander
) -> None:
    _, request = fifty_mib(besieged, "unread")
    before = besieged.rss_mib()
    unread = [Raw(besieged) for _ in range(40)]
    for raw in unread:
        for _ in range(3):
            raw.request(request, 12)
    time.sleep(1)
    assert besieged.rss_mib() < before + 80, "less than a mebibyte and a half for each"
    for raw in unread:
        raw.reset()
    wire = besieged.wire()
    assert len(wire.ask(request, 12).responses[0].partitions[0].records) > 49 * MIB
    wire.close()


def test_clients_that_leave_in_the_middle_of_an_answer_do_no_harm(besieged: Besieged, bystander: Bystander) -> None:
    _, request = fifty_mib(besieged, "left")
    mark = besieged.mark()
    for number in range(30):
        raw = Raw(besieged)
        raw.request(request, 12)
        assert raw.socket.recv(1000 * (1 + number))
        raw.reset() if number % 2 else raw.close()
    besieged.is_healthy()
    assert besieged.closings_since(mark) == [], "leaving is no offence"


def test_many_large_frames_at_once_wait_for_room(besieged: Besieged, bystander: Bystander) -> None:
    """Ninety mebibytes each, from twelve clients: about half a gibibyte is let in at a time."""
    before = besieged.rss_mib()
    besieged.forget_peak()
    data = framed(produce("nowhere", bytes(90 * MIB)), 9, 3)

    def attack() -> None:
        wire = Wire(besieged.target.host, besieged.target.port, 120)
        try:
            wire.socket.sendall(data)
            answer = wire.hear(produce("nowhere", b""), 9, 3)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except (Closed, OSError):
            pass
        finally:
            wire.close()

    together(12, attack)
    assert besieged.peak_mib() < before + 1200, besieged.peak_mib()
    besieged.is_healthy()
