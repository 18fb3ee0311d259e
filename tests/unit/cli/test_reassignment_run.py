"""Replicas on the move: when the command says that they have arrived, the broker that it asks says so too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strandline.cli.reassignment_run import VISIBLE_TIMEOUT_MS, ReassignmentRun
from strandline.client.client import Client
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.protocol.messages import metadata, reassignments
from unit.client.admin.test_admin import Scripted, play
from unit.client.fake_broker import PORT, TOPIC_ID

MOVED = TopicPartition("t", 0)


def shown(*replicas: int) -> metadata.MetadataResponse:
    """No replicas: the topic is not there."""
    topic = metadata.MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if replicas:
        partition = metadata.MetadataResponsePartition(leader_id=1, replica_nodes=list(replicas))
        topic = metadata.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])
    broker = metadata.MetadataResponseBroker(node_id=1, host="b", port=PORT)
    return metadata.MetadataResponse(brokers=[broker], controller_id=1, topics=[topic])


def moved(*told: Sequence[int]) -> tuple[int, int]:
    """To brokers 3 and 1, while the broker tells these replicas one after the other: how often it was asked, and how
    long that took."""
    broker = Scripted(
        "b",
        METADATA=[shown(), *(shown(*replicas) for replicas in told)],
        ALTER_PARTITION_REASSIGNMENTS=[reassignments.AlterPartitionReassignmentsResponse()],
        LIST_PARTITION_REASSIGNMENTS=[reassignments.ListPartitionReassignmentsResponse()],
    )

    async def scenario(client: Client) -> int:
        began_ms = client.router.now_ms()
        await ReassignmentRun({MOVED: [3, 1]}).run(client)
        return client.router.now_ms() - began_ms

    took_ms = play(scenario, broker)
    return sum(isinstance(each, metadata.MetadataRequest) for each in broker.requests), took_ms


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_what_has_arrived_is_waited_for_until_the_broker_shows_it(lag: int) -> None:
    asked, took_ms = moved(*[[1, 2]] * lag, [3, 1], [1, 2])
    # Once for who the controller is.
    assert asked == 1 + lag + 1
    assert took_ms < 2_000


def test_what_somebody_else_has_moved_meanwhile_is_not_waited_for_for_ever() -> None:
    _, took_ms = moved([2, 4])
    assert VISIBLE_TIMEOUT_MS <= took_ms < 2 * VISIBLE_TIMEOUT_MS


def test_what_is_gone_is_not_waited_for() -> None:
    asked, took_ms = moved([])
    assert asked == 2 and took_ms < 2_000
