"""The client's side of an incremental fetch session, for consumers (`want_only`) and followers (`want`)."""

from __future__ import annotations

from strandline.client.core.fetch_session import FetchSessionHandler, SessionKey
from strandline.model.errors import ErrorCode
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse

ID = Uuid(b"a" * 16)
A, B = (ID, "t", 0), (ID, "t", 1)


def at(offset: int, partition: int = 0) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset)


def next_request(session: FetchSessionHandler, wanted: dict[SessionKey, FetchPartition] | None = None) -> FetchRequest:
    if wanted is not None:
        session.want_only(wanted)
    request = FetchRequest()
    session.fill(request)
    return request


def sent(request: FetchRequest) -> list[SessionKey]:
    return [(topic.topic_id, topic.topic, each.partition) for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[SessionKey]:
    return [(topic.topic_id, topic.topic, each) for topic in request.forgotten_topics_data for each in topic.partitions]


def established() -> FetchSessionHandler:
    session = FetchSessionHandler()
    next_request(session, {A: at(0), B: at(0, 1)})
    session.on_response(FetchResponse(session_id=77))
    return session


def test_the_first_request_names_every_partition() -> None:
    request = next_request(FetchSessionHandler(), {A: at(0), B: at(5, 1)})
    assert (request.session_id, request.session_epoch, sent(request), forgotten(request)) == (0, 0, [A, B], [])


def test_later_requests_name_only_partitions_that_changed() -> None:
    session = established()
    request = next_request(session, {A: at(10), B: at(0, 1)})
    assert (request.session_id, request.session_epoch, sent(request), forgotten(request)) == (77, 1, [A], [])
    session.on_response(FetchResponse(session_id=77))
    request = next_request(session, {A: at(10)})
    assert (request.session_epoch, sent(request), forgotten(request)) == (2, [], [B])


def test_a_recreated_topic_is_forgotten_under_its_old_id_and_fetched_under_its_new_one() -> None:
    session = established()
    recreated = (Uuid(b"b" * 16), "t", 0)
    request = next_request(session, {recreated: at(0), B: at(0, 1)})
    assert (sent(request), forgotten(request)) == ([recreated], [A])


def test_without_a_granted_session_every_request_names_every_partition() -> None:
    session = FetchSessionHandler()
    for _ in range(2):
        request = next_request(session, {A: at(0)})
        assert (request.session_id, request.session_epoch, sent(request)) == (0, 0, [A])
        session.on_response(FetchResponse(session_id=0))


def test_a_rejected_request_and_a_lost_response_reset_the_session() -> None:
    for error in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        session = established()
        next_request(session, {A: at(1)})
        session.on_response(FetchResponse(error_code=error))
        request = next_request(session)
        assert (request.session_id, request.session_epoch, sent(request)) == (0, 0, [A])
    session = established()
    session.reset()
    assert next_request(session).session_epoch == 0


def test_session_epochs_wrap_around_to_one() -> None:
    session = established()
    session._epoch = 0x7FFF_FFFF
    session.on_response(FetchResponse(session_id=77))
    assert next_request(session).session_epoch == 1


def test_a_client_without_sessions_names_every_partition_in_every_request() -> None:
    session = FetchSessionHandler(enabled=False)
    for _ in range(2):
        request = next_request(session, {A: at(0)})
        assert (request.session_epoch, sent(request)) == (-1, [A])
        session.on_response(FetchResponse())


def test_a_partition_dropped_while_the_first_request_is_in_flight_is_forgotten_with_the_next() -> None:
    session = FetchSessionHandler()
    next_request(session, {A: at(0), B: at(0, 1)})
    session.want(B, None)
    session.on_response(FetchResponse(session_id=9))
    assert forgotten(next_request(session)) == [B]
    session.reset()
    session.want(A, None)
    request = next_request(session)
    assert sent(request) == [] and forgotten(request) == []
