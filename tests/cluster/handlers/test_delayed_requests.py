"""Delayed requests: completed when their condition is met, when their topic is deleted, or at their timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster.connection import Connection
from cluster.handlers.script_run import NodeAddress, ScriptRun
from cluster.record_batches import batch, produce
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from strandline.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

pytestmark = pytest.mark.xdist_group("our_node")

LONG_MS = 90_000
SOON_S = 30.0  # well below the timeout of the requests, well above the delays of a busy machine


def run_of(our_node: NodeAddress, name: str) -> ScriptRun:
    return ScriptRun(our_node, name, 0)


def fetch(topic: str, offset: int = 0, *, partition: int = 0, **fields: Any) -> FetchRequest:
    fetched = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[fetched])]
    return FetchRequest(**{"topics": topics, "max_wait_ms": LONG_MS, "min_bytes": 1, **fields})


def response_after(
    connection: Connection, request: FetchRequest, version: int, event: Callable[[], object]
) -> tuple[Any, float]:
    """Sends a request, checks that it is delayed, runs `event`; returns the response and the seconds from there."""
    correlation_id = connection.send(request, version)
    time.sleep(0.15)
    connection.socket.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        connection.socket.recv(1)
    connection.socket.settimeout(60)
    started = time.monotonic()
    event()
    response = connection.receive(request, version, correlation_id)
    return response, time.monotonic() - started


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_delayed_fetch_completes_when_records_are_appended(
    version: int, isolation_level: int, our_node: NodeAddress
) -> None:
    run = run_of(our_node, "records-appended")
    topic = run.topic(f"t{version}-{isolation_level}")
    connection = Connection(our_node.host, our_node.port)
    request = fetch(topic, isolation_level=isolation_level)
    response, took_s = response_after(connection, request, version, lambda: run.append(topic, batch(3)))
    connection.close()
    assert len(response.responses[0].partitions[0].records) > 61 and took_s < SOON_S


def test_a_delayed_fetch_waits_for_min_bytes(our_node: NodeAddress) -> None:
    run = run_of(our_node, "min-bytes")
    topic = run.topic("t")
    run.append(topic, batch(1))
    connection = Connection(our_node.host, our_node.port)
    request = fetch(topic, min_bytes=1000)

    def append_too_little_and_then_enough() -> None:
        run.append(topic, batch(1))
        connection.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)
        connection.socket.settimeout(60)
        run.append(topic, batch(1, size=1000))

    response, took_s = response_after(connection, request, 12, append_too_little_and_then_enough)
    connection.close()
    assert len(response.responses[0].partitions[0].records) >= 1000 and took_s < SOON_S


def test_a_delayed_fetch_without_new_records_completes_after_max_wait_ms(our_node: NodeAddress) -> None:
    run = run_of(our_node, "max-wait")
    connection = Connection(our_node.host, our_node.port)
    started = time.monotonic()
    response = connection.call(fetch(run.topic("t"), max_wait_ms=300), 12)
    connection.close()
    assert response.responses[0].partitions[0].records == b"" and 0.29 < time.monotonic() - started < SOON_S


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_delayed_fetch_fails_when_its_topic_is_deleted(version: int, code: ErrorCode, our_node: NodeAddress) -> None:
    run = run_of(our_node, "deleted")
    topic = run.topic(f"t{version}")
    request = fetch(topic)
    request.topics[0].topic_id = run.topic_id(topic)
    connection = Connection(our_node.host, our_node.port)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000)
    response, took_s = response_after(connection, request, version, lambda: run.call(deletion))
    connection.close()
    assert response.responses[0].partitions[0].error_code == code and took_s < SOON_S


def test_a_delayed_incremental_fetch_returns_only_partitions_with_new_records(our_node: NodeAddress) -> None:
    run = run_of(our_node, "session")
    topic = run.topic("t", 3)
    connection = Connection(our_node.host, our_node.port)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(3)]
    full = FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], session_epoch=0)
    session = connection.call(full, 12).session_id
    request = FetchRequest(session_id=session, session_epoch=1, max_wait_ms=LONG_MS, min_bytes=1)
    response, took_s = response_after(connection, request, 12, lambda: run.append(topic, batch(1), partition=2))
    connection.close()
    assert [each.partition_index for each in response.responses[0].partitions] == [2] and took_s < SOON_S


def test_a_fetch_session_continues_on_another_connection_while_one_of_its_requests_is_delayed(
    our_node: NodeAddress,
) -> None:
    """As after a broken connection: the next request forgets the partition that the delayed request waits for."""
    run = run_of(our_node, "reconnected")
    topic, other = run.topic("t"), run.topic("u")
    first, second = Connection(our_node.host, our_node.port), Connection(our_node.host, our_node.port)
    session = first.call(fetch(topic, session_epoch=0, max_wait_ms=0), 12).session_id
    delayed = FetchRequest(session_id=session, session_epoch=1, max_wait_ms=LONG_MS, min_bytes=1)

    def continue_on_the_second_connection() -> None:
        forget = [ForgottenTopic(topic=topic, partitions=[0])]
        fields = {"session_id": session, "session_epoch": 2, "forgotten_topics_data": forget, "max_wait_ms": 0}
        assert second.call(fetch(other, **fields), 12).session_id == session
        run.append(topic, batch(1))

    response, _ = response_after(first, delayed, 12, continue_on_the_second_connection)
    assert response.responses[0].partitions[0].records
    after = FetchRequest(session_id=session, session_epoch=3, max_wait_ms=0)
    assert second.call(after, 12).error_code == ErrorCode.NONE
    first.close()
    second.close()


def test_pipelined_produce_requests_are_appended_and_acknowledged_in_order(our_node: NodeAddress) -> None:
    run = run_of(our_node, "pipelined")
    topic = run.topic("t")
    connection = Connection(our_node.host, our_node.port)
    requests = [produce(topic, batch(1)) for _ in range(50)]
    ids = [connection.send(request, 9) for request in requests]
    offsets = [
        connection.receive(request, 9, correlation_id).responses[0].partition_responses[0].base_offset
        for request, correlation_id in zip(requests, ids, strict=True)
    ]
    connection.close()
    assert offsets == list(range(50))


def test_one_append_completes_a_hundred_delayed_fetches(our_node: NodeAddress) -> None:
    run = run_of(our_node, "hundred")
    topic = run.topic("t")
    connections = [Connection(our_node.host, our_node.port) for _ in range(100)]
    request = fetch(topic)
    ids = [connection.send(request, 12) for connection in connections]
    time.sleep(0.2)
    timer = threading.Timer(0.0, lambda: run.append(topic, batch(1)))
    started = time.monotonic()
    timer.start()
    for connection, correlation_id in zip(connections, ids, strict=True):
        assert connection.receive(request, 12, correlation_id).responses[0].partitions[0].records
        connection.close()
    timer.join()
    assert time.monotonic() - started < SOON_S
