"""Requests that wait: woken when there is reason to, by whoever gives it, and never left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster.handlers.talk import Talk, Target, Wire, batch, produce
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from strandline.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

pytestmark = pytest.mark.xdist_group("our_node")

LONG_MS = 90_000
SOON_S = 30.0  # far from the time that the requests would wait by themselves, and from what a busy machine takes


def talk_of(our_node: Target, name: str) -> Talk:
    return Talk(our_node, name, 0)


def wanting(topic: str, offset: int = 0, *, partition: int = 0, **fields: Any) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    return FetchRequest(**{"topics": topics, "max_wait_ms": LONG_MS, "min_bytes": 1, **fields})


def answer_after(wire: Wire, request: FetchRequest, version: int, event: Callable[[], None]) -> tuple[Any, float]:
    """Asks, lets the event happen while the request waits, and gives the answer and how long it took from there."""
    correlation_id = wire.tell(request, version)
    time.sleep(0.15)
    wire.socket.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        wire.socket.recv(1)
    wire.socket.settimeout(60)
    began = time.monotonic()
    event()
    answer = wire.hear(request, version, correlation_id)
    return answer, time.monotonic() - began


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_that_waits_is_answered_when_records_come(version: int, isolation_level: int, our_node: Target) -> None:
    talk = talk_of(our_node, "records-come")
    topic = talk.topic(f"t{version}-{isolation_level}")
    wire = Wire(our_node.host, our_node.port)
    request = wanting(topic, isolation_level=isolation_level)
    answer, took_s = answer_after(wire, request, version, lambda: void(talk.append(topic, batch(3))))
    wire.close()
    assert len(answer.responses[0].partitions[0].records) > 61 and took_s < SOON_S


def test_a_fetch_waits_for_as_many_bytes_as_it_asked_for(our_node: Target) -> None:
    talk = talk_of(our_node, "bytes-come")
    topic = talk.topic("t")
    talk.append(topic, batch(1))
    wire = Wire(our_node.host, our_node.port)
    request = wanting(topic, min_bytes=1000)

    def too_little_and_then_enough() -> None:
        talk.append(topic, batch(1))
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.socket.recv(1)
        wire.socket.settimeout(60)
        talk.append(topic, batch(1, size=1000))

    answer, took_s = answer_after(wire, request, 12, too_little_and_then_enough)
    wire.close()
    assert len(answer.responses[0].partitions[0].records) >= 1000 and took_s < SOON_S


def test_a_fetch_that_waits_in_vain_is_answered_in_time(our_node: Target) -> None:
    talk = talk_of(our_node, "in-vain")
    wire = Wire(our_node.host, our_node.port)
    began = time.monotonic()
    answer = wire.ask(wanting(talk.topic("t"), max_wait_ms=300), 12)
    wire.close()
    assert answer.responses[0].partitions[0].records == b"" and 0.29 < time.monotonic() - began < SOON_S


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_fetch_that_waits_learns_that_its_topic_is_deleted(version: int, code: ErrorCode, our_node: Target) -> None:
    talk = talk_of(our_node, "deleted")
    topic = talk.topic(f"t{version}")
    request = wanting(topic)
    request.topics[0].topic_id = talk.topic_id(topic)
    wire = Wire(our_node.host, our_node.port)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000)
    answer, took_s = answer_after(wire, request, version, lambda: void(talk.quietly(deletion)))
    wire.close()
    assert answer.responses[0].partitions[0].error_code == code and took_s < SOON_S


def test_a_session_that_waits_tells_only_who_moved(our_node: Target) -> None:
    talk = talk_of(our_node, "session")
    topic = talk.topic("t", 3)
    wire = Wire(our_node.host, our_node.port)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(3)]
    begin = FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], session_epoch=0)
    session = wire.ask(begin, 12).session_id
    request = FetchRequest(session_id=session, session_epoch=1, max_wait_ms=LONG_MS, min_bytes=1)
    answer, took_s = answer_after(wire, request, 12, lambda: void(talk.append(topic, batch(1), partition=2)))
    wire.close()
    assert [each.partition_index for each in answer.responses[0].partitions] == [2] and took_s < SOON_S


def test_a_session_may_go_on_elsewhere_while_one_of_its_requests_waits(our_node: Target) -> None:
    """As a client does whose connection broke: the next request forgets what the waiting one is about to be told."""
    talk = talk_of(our_node, "elsewhere")
    topic, other = talk.topic("t"), talk.topic("u")
    first, second = Wire(our_node.host, our_node.port), Wire(our_node.host, our_node.port)
    session = first.ask(wanting(topic, session_epoch=0, max_wait_ms=0), 12).session_id
    waiting = FetchRequest(session_id=session, session_epoch=1, max_wait_ms=LONG_MS, min_bytes=1)

    def go_on_elsewhere() -> None:
        forget = [ForgottenTopic(topic=topic, partitions=[0])]
        fields = {"session_id": session, "session_epoch": 2, "forgotten_topics_data": forget, "max_wait_ms": 0}
        assert second.ask(wanting(other, **fields), 12).session_id == session
        talk.append(topic, batch(1))

    answer, _ = answer_after(first, waiting, 12, go_on_elsewhere)
    assert answer.responses[0].partitions[0].records
    after = FetchRequest(session_id=session, session_epoch=3, max_wait_ms=0)
    assert second.ask(after, 12).error_code == ErrorCode.NONE
    first.close()
    second.close()


def test_produces_that_are_pipelined_are_appended_and_answered_in_order(our_node: Target) -> None:
    talk = talk_of(our_node, "pipelined")
    topic = talk.topic("t")
    wire = Wire(our_node.host, our_node.port)
    asked = [(produce(topic, batch(1)), number) for number in range(50)]
    ids = [wire.tell(request, 9) for request, _ in asked]
    offsets = [
        wire.hear(request, 9, correlation_id).responses[0].partition_responses[0].base_offset
        for (request, _), correlation_id in zip(asked, ids, strict=True)
    ]
    wire.close()
    assert offsets == list(range(50))


def test_a_hundred_fetches_that_wait_are_woken_together(our_node: Target) -> None:
    talk = talk_of(our_node, "hundred")
    topic = talk.topic("t")
    wires = [Wire(our_node.host, our_node.port) for _ in range(100)]
    request = wanting(topic)
    ids = [wire.tell(request, 12) for wire in wires]
    time.sleep(0.2)
    timer = threading.Timer(0.0, lambda: void(talk.append(topic, batch(1))))
    began = time.monotonic()
    timer.start()
    for wire, correlation_id in zip(wires, ids, strict=True):
        assert wire.hear(request, 12, correlation_id).responses[0].partitions[0].records
        wire.close()
    timer.join()
    assert time.monotonic() - began < SOON_S


def void(_: object) -> None:
    """For a lambda whose value nobody wants."""
