"""Incremental fetch sessions, without a server."""

from __future__ import annotations

from random import Random

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from strandline.replication.fetch_sessions import FetchSession, FetchSessionCache, Wanted, wanted_by
from strandline.replication.remote import RemoteReplica

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
) -> tuple[FetchSession | None, list[Wanted]]:
    return cache.begin(request, wanted_by(request), version, now_ms)


def sessions(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, Random(1))


def test_a_session_remembers_what_was_asked_and_takes_changes() -> None:
    cache = sessions()
    session, wanted = begin(cache, request(0, 0, 0, 1, 2), VERSION, 0)
    assert session is not None and [one.partition for one in wanted] == [0, 1, 2]
    _, wanted = begin(cache, request(session.id, 1, 1, offset=50, forget=(0,)), VERSION, 1)
    assert [(one.partition, one.fetch_offset) for one in wanted] == [(1, 50), (2, 0)]


def test_a_wrong_epoch_or_an_unknown_session_is_refused() -> None:
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


def test_a_session_ends_when_asked_to_or_when_nothing_is_left() -> None:
    cache = sessions()
    first, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert first is not None
    session, _ = begin(cache, request(first.id, -1, 0), VERSION, 0)
    assert session is None and len(cache) == 0
    second, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert second is not None
    session, wanted = begin(cache, request(second.id, 1, forget=(0,)), VERSION, 0)
    assert session is None and wanted == [] and len(cache) == 0


def test_a_full_cache_gives_no_session_unless_one_was_idle_for_two_minutes() -> None:
    cache = sessions(slots=1)
    first, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert begin(cache, request(0, 0, 1), VERSION, 100_000)[0] is None
    second, _ = begin(cache, request(0, 0, 1), VERSION, 120_001)
    assert first is not None and second is not None and first.id != second.id


def test_epochs_go_round_from_the_largest_to_one() -> None:
    cache = sessions()
    session, _ = begin(cache, request(0, 0, 0), VERSION, 0)
    assert session is not None
    session.next_epoch = 2**31 - 1
    begin(cache, request(session.id, 2**31 - 1), VERSION, 0)
    assert session.next_epoch == 1


def test_only_news_is_told_and_who_had_data_goes_to_the_end_of_the_line() -> None:
    cache = sessions()
    session, wanted = begin(cache, request(0, 0, 0, 1), VERSION, 0)
    assert session is not None
    quiet = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"")
    assert session.has_news(wanted[0], quiet)
    assert not session.has_news(wanted[0], quiet)
    failed = PartitionData(partition_index=0, error_code=6, high_watermark=-1, log_start_offset=-1, records=b"")
    assert session.has_news(wanted[0], failed)
    assert session.has_news(wanted[0], quiet), "after an error the partition is named again"
    data = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"x")
    assert session.has_news(wanted[0], data)
    _, wanted = begin(cache, request(session.id, 1), VERSION, 0)
    assert [one.partition for one in wanted] == [1, 0]


def test_partitions_of_all_sessions_together_are_limited() -> None:
    cache = FetchSessionCache(10, Random(1), max_partitions=5)
    first, _ = begin(cache, request(0, 0, 0, 1, 2), VERSION, 0)
    second, wanted = begin(cache, request(0, 0, 0, 1, 2), VERSION, 0)
    assert first is not None and second is None and len(wanted) == 3, "it is served, without a session"
    third, _ = begin(cache, request(0, 0, 0, 1), VERSION, 0)
    assert third is not None
    with pytest.raises(KafkaError) as raised:
        begin(cache, request(third.id, 1, 5), VERSION, 0)
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and len(cache) == 1, "it has to begin anew"
    assert begin(cache, request(first.id, 1, 5, 6, forget=(0,)), VERSION, 0)[0] is first, "there is room again"


def test_a_session_may_be_of_nothing_and_grow() -> None:
    cache = sessions()
    session, wanted = begin(cache, request(0, 0), VERSION, 0)
    assert session is not None and wanted == []
    assert [one.partition for one in begin(cache, request(session.id, 1, 4), VERSION, 0)[1]] == [4]


def test_of_a_partition_named_twice_the_last_word_counts() -> None:
    cache = sessions()
    twice = request(0, 0, 0, 1)
    twice.topics[0].partitions.append(FetchPartition(partition=0, fetch_offset=9))
    _, wanted = begin(cache, twice, VERSION, 0)
    assert [(one.partition, one.fetch_offset) for one in wanted] == [(0, 9), (1, 0)]


def test_an_answer_that_comes_after_its_partition_was_forgotten_does_no_harm() -> None:
    cache = sessions()
    session, (waiting,) = begin(cache, request(0, 0, 0), VERSION, 0)
    assert session is not None
    begin(cache, request(session.id, 1, 1, forget=(0,)), VERSION, 0)
    assert session.has_news(waiting, PartitionData(records=b"x"))


def following(*partitions: int) -> tuple[FetchSessionCache, FetchSession, dict[int, RemoteReplica]]:
    """A follower's session, everything in which has been told that its high watermark is 0 and its log starts there."""
    cache = sessions()
    session, wanted = begin(cache, request(0, 0, *partitions), VERSION, 0)
    assert session is not None
    remotes = {}
    for one in wanted:
        session.has_news(one, PartitionData(high_watermark=0, log_start_offset=0))
        remotes[one.partition] = RemoteReplica(2)
        session.listen(one, remotes[one.partition])
    return cache, session, remotes


def looked_at(session: FetchSession, replica_epoch: int = 7) -> list[int]:
    return [one.partition for one in session.partitions_with_news(replica_epoch)]


def rest(session: FetchSession, high_watermark: int = 0, replica_epoch: int = 7) -> None:
    for one in session.partitions_with_news(replica_epoch):
        session.rest(one, PartitionData(high_watermark=high_watermark, log_start_offset=0))


def test_who_has_nothing_to_hear_is_not_looked_at_until_there_is_news() -> None:
    cache, session, remotes = following(0, 1, 2)
    assert looked_at(session) == [0, 1, 2]
    rest(session)
    assert looked_at(session) == []
    for partition, at_once in ((2, False), (1, True)):
        listener = remotes[partition].listener
        assert listener is not None
        listener(at_once)
    assert looked_at(session) == [2, 1], "in the order of the news"
    assert session.calls.value == 1, "a fetch that waits is answered for one of them only"
    rest(session)
    begin(cache, request(session.id, 1, 0, offset=5), VERSION, 0)
    assert looked_at(session) == [0], "what a request names is looked at"


def test_who_is_yet_to_be_told_something_does_not_rest() -> None:
    _, session, _ = following(0)
    rest(session, high_watermark=1)
    assert looked_at(session) == [0]


def test_a_follower_that_was_registered_anew_has_all_its_words_counted_again() -> None:
    _, session, _ = following(0, 1)
    rest(session)
    assert looked_at(session, replica_epoch=8) == [0, 1]


def test_who_was_forgotten_is_not_woken() -> None:
    cache, session, remotes = following(0, 1)
    rest(session)
    begin(cache, request(session.id, 1, forget=(0,)), VERSION, 0)
    listener = remotes[0].listener
    assert listener is not None
    listener(True)
    assert looked_at(session) == []
