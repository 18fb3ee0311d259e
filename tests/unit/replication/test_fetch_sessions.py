"""The leader's side of incremental fetch sessions."""

from __future__ import annotations

from random import Random

import pytest

from strandline.handlers.fetch import handle_fetch
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from strandline.replication.fetch_sessions import (
    FetchSession,
    FetchSessionCache,
    RequestedPartition,
    requested_partitions,
)
from unit.handlers.metadata_broker import FakeCall
from unit.replication.three_brokers import TOPIC_ID, Cluster, on_virtual_time

TOPIC = Uuid.of(7, 7)
VERSION = 16


def request(
    session_id: int, epoch: int, *partitions: int, offset: int = 0, forget: tuple[int, ...] = ()
) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic_id=TOPIC,
                partitions=[FetchPartition(partition=index, fetch_offset=offset) for index in partitions],
            )
        ]
        if partitions
        else [],
        forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC, partitions=list(forget))] if forget else [],
    )


def begin(
    cache: FetchSessionCache, request: FetchRequest, version: int, now_ms: int
) -> tuple[FetchSession | None, list[RequestedPartition]]:
    return cache.begin(request, requested_partitions(request), version, now_ms)


def sessions(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, Random(1))


def test_a_session_keeps_its_partitions_and_applies_changes() -> None:
    cache = sessions()
    session, requested = begin(cache, request(0, 0, 0, 1, 2), VERSION, 0)
    assert session is not None and [each.partition for each in requested] == [0, 1, 2]
    _, requested = begin(cache, request(session.id, 1, 1, offset=50, forget=(0,)), VERSION, 1)
    assert [(each.partition, each.fetch_offset) for each in requested] == [(1, 50), (2, 0)]


def test_a_wrong_epoch_or_an_unknown_session_is_rejected() -> None:
    cache = sessions()
    session, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert session is not None
    with pytest.raises(KafkaError) as raised:
        begin(cache, request(session.id, 5), VERSION, 0)
    assert raised.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with pytest.raises(KafkaError) as raised:
        begin(cache, request(session.id + 1, 1), VERSION, 0)
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError) as raised:
        begin(cache, request(session.id, 1), 12, 0)
    assert raised.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_is_dropped_on_request_or_with_its_last_partition() -> None:
    cache = sessions()
    first, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert first is not None
    session, _ = begin(cache, request(first.id, -1, 0), VERSION, 0)
    assert session is None and len(cache) == 0
    second, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert second is not None
    session, requested = begin(cache, request(second.id, 1, forget=(0,)), VERSION, 0)
    assert session is None and requested == [] and len(cache) == 0


def test_a_full_cache_grants_no_session_unless_one_was_idle_for_two_minutes() -> None:
    cache = sessions(slots=1)
    first, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert begin(cache, request(0, 0, 1), VERSION, 100_000)[0] is None
    second, _ = begin(cache, request(0, 0, 1), VERSION, 120_001)
    assert first is not None and second is not None and first.id != second.id


def test_session_epochs_wrap_around_to_one() -> None:
    cache = sessions()
    session, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert session is not None
    session.next_epoch = 2**31 - 1
    begin(cache, request(session.id, 2**31 - 1), VERSION, 0)
    assert session.next_epoch == 1


def test_only_news_is_sent_and_a_partition_with_records_moves_to_the_end() -> None:
    cache = sessions()
    session, requested = begin(cache, request(0, 0, 0, 1), VERSION, 0)
    assert session is not None
    quiet = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"")
    assert session.must_send(requested[0], quiet)
    assert not session.must_send(requested[0], quiet)
    failed = PartitionData(partition_index=0, error_code=6, high_watermark=-1, log_start_offset=-1, records=b"")
    assert session.must_send(requested[0], failed)
    assert session.must_send(requested[0], quiet), "after an error the partition is sent again"
    data = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"x")
    assert session.must_send(requested[0], data)
    _, requested = begin(cache, request(session.id, 1), VERSION, 0)
    assert [each.partition for each in requested] == [1, 0]


def test_the_partitions_of_all_sessions_together_are_limited() -> None:
    cache = FetchSessionCache(10, Random(1), max_partitions=5)
    first, _ = begin(cache, request(0, 0, 0, 1, 2), VERSION, 0)
    second, requested = begin(cache, request(0, 0, 0, 1, 2), VERSION, 0)
    assert first is not None and second is None and len(requested) == 3, "the fetch is served without a session"
    third, _ = begin(cache, request(0, 0, 0, 1), VERSION, 0)
    assert third is not None
    with pytest.raises(KafkaError) as raised:
        begin(cache, request(third.id, 1, 5), VERSION, 0)
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and len(cache) == 1, "the session is dropped"
    assert begin(cache, request(first.id, 1, 5, 6, forget=(0,)), VERSION, 0)[0] is first, "there is room again"


def test_a_session_may_start_without_partitions() -> None:
    cache = sessions()
    session, requested = begin(cache, request(0, 0), VERSION, 0)
    assert session is not None and requested == []
    assert [each.partition for each in begin(cache, request(session.id, 1, 4), VERSION, 0)[1]] == [4]


def test_of_a_partition_named_twice_the_last_mention_counts() -> None:
    cache = sessions()
    twice = request(0, 0, 0, 1)
    twice.topics[0].partitions.append(FetchPartition(partition=0, fetch_offset=9))
    _, requested = begin(cache, twice, VERSION, 0)
    assert [(each.partition, each.fetch_offset) for each in requested] == [(0, 9), (1, 0)]


def test_a_read_of_a_partition_that_was_forgotten_meanwhile_is_still_sent() -> None:
    cache = sessions()
    session, (waiting,) = begin(cache, request(0, 0, 0), VERSION, 0)
    assert session is not None
    begin(cache, request(session.id, 1, 1, forget=(0,)), VERSION, 0)
    assert session.must_send(waiting, PartitionData(records=b"x"))


def follower_session(*partitions: int) -> tuple[FetchSessionCache, FetchSession]:
    """A session whose follower was sent high watermark 0 and log start offset 0 of every partition."""
    cache = sessions()
    session, requested = begin(cache, request(0, 0, *partitions), VERSION, 0)
    assert session is not None
    for each in requested:
        session.must_send(each, PartitionData(high_watermark=0, log_start_offset=0))
    return cache, session


def with_news(session: FetchSession, replica_epoch: int = 7) -> list[int]:
    return [each.partition for each in session.partitions_with_news(replica_epoch)]


def catch_up(session: FetchSession, high_watermark: int = 0, replica_epoch: int = 7) -> None:
    for each in session.partitions_with_news(replica_epoch):
        session.skip_until_news(each, PartitionData(high_watermark=high_watermark, log_start_offset=0))


def test_a_fully_caught_up_partition_is_skipped_until_its_leader_has_news() -> None:
    cache, session = follower_session(0, 1, 2)
    assert with_news(session) == [0, 1, 2]
    catch_up(session)
    assert with_news(session) == []
    session.on_news((TOPIC, "", 2), urgent=False)
    session.on_news((TOPIC, "", 1), urgent=True)
    assert with_news(session) == [2, 1], "in the order of the news"
    assert session.urgent_news.value == 1, "only one of them ends the wait of a fetch"
    catch_up(session)
    begin(cache, request(session.id, 1, 0, offset=5), VERSION, 0)
    assert with_news(session) == [0], "a partition that the request names is not skipped"


def test_a_partition_with_something_left_to_send_is_not_skipped() -> None:
    _, session = follower_session(0)
    catch_up(session, high_watermark=1)
    assert with_news(session) == [0]


def test_after_a_new_registration_of_the_follower_no_partition_is_skipped() -> None:
    _, session = follower_session(0, 1)
    catch_up(session)
    assert with_news(session, replica_epoch=8) == [0, 1]


def test_news_of_a_forgotten_partition_are_ignored() -> None:
    cache, session = follower_session(0, 1)
    catch_up(session)
    begin(cache, request(session.id, 1, forget=(0,)), VERSION, 0)
    session.on_news((TOPIC, "", 0), urgent=True)
    assert with_news(session) == [] and session.urgent_news.value == 0


def follower_fetch(session_id: int, epoch: int, *partitions: int, max_wait_ms: int = 500) -> FetchRequest:
    fetch = request(session_id, epoch, *partitions, offset=1)
    fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes = max_wait_ms, 1, 1 << 20
    for topic in fetch.topics:
        topic.topic_id = TOPIC_ID
        for each in topic.partitions:
            each.current_leader_epoch, each.last_fetched_epoch, each.partition_max_bytes = 0, 0, 1 << 20
    return fetch


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_follower_is_answered_at_once_if_the_high_watermark_has_risen_and_else_waits(epoch: int) -> None:
    """With or without sessions, and also by the first fetch of a new session: what the follower was last sent is stored
    with the leader, not in the session."""

    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1, 2])
        cluster.unreachable |= {2, 3}
        leader = cluster.brokers[1]
        await leader.produce("a", acks=1)

        async def fetch(partition: int = 0) -> tuple[FetchResponse, int]:
            info = cluster.image.committed.broker(2)
            assert info is not None
            sent = follower_fetch(0, epoch, partition)
            sent.replica_state = ReplicaState(replica_id=2, replica_epoch=info.epoch)
            began_ms = cluster.world.clock.now_ms()
            response = await handle_fetch(leader.context, FakeCall(ApiKey.FETCH, 17), sent)
            return response, cluster.world.clock.now_ms() - began_ms

        response, took_ms = await fetch()
        assert response.responses[0].partitions[0].high_watermark == 1 and took_ms == 0
        assert (response.session_id != 0) is (epoch == 0)
        response, took_ms = await fetch()
        assert response.responses[0].partitions[0].high_watermark == 1 and took_ms == 500

    on_virtual_time(scenario)
