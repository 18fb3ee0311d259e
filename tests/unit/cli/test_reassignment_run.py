"""A reassignment is reported as completed only when the broker's metadata shows it."""

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


def metadata_response(*replicas: int) -> metadata.MetadataResponse:
    """The metadata of the topic with these replicas; without replicas, of a topic that does not exist."""
    topic = metadata.MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if replicas:
        partition = metadata.MetadataResponsePartition(leader_id=1, replica_nodes=list(replicas))
        topic = metadata.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])
    broker = metadata.MetadataResponseBroker(node_id=1, host="b", port=PORT)
    return metadata.MetadataResponse(brokers=[broker], controller_id=1, topics=[topic])


def moved(*returned: Sequence[int]) -> tuple[int, int]:
    """Moves to brokers 3 and 1, while the broker returns these replicas in turn: number of Metadata requests, time."""
    broker = Scripted(
        "b",
        METADATA=[metadata_response(), *(metadata_response(*replicas) for replicas in returned)],
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
def test_a_completed_move_is_awaited_until_the_broker_shows_it(lag: int) -> None:
    requests, took_ms = moved(*[[1, 2]] * lag, [3, 1], [1, 2])
    # One request finds the controller.
    assert requests == 1 + lag + 1
    assert took_ms < 2_000


def test_a_concurrent_reassignment_ends_the_wait_after_the_timeout() -> None:
    _, took_ms = moved([2, 4])
    assert VISIBLE_TIMEOUT_MS <= took_ms < 2 * VISIBLE_TIMEOUT_MS


def test_a_deleted_topic_is_not_awaited() -> None:
    requests, took_ms = moved([])
    assert requests == 2 and took_ms < 2_000
