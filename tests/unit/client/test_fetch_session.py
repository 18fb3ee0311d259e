from __future__ import annotations

from strandline.client.fetch_session import FetchSession, Wanted
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition, Uuid

ID = Uuid(b"a" * 16)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def want(offset: int, topic_id: Uuid = ID) -> Wanted:
    return Wanted(topic_id, offset, 0, 1_000)


def begun() -> FetchSession:
    session = FetchSession(enabled=True)
    session.next_request({A: want(0), B: want(0)})
    session.on_answer(ErrorCode.NONE, 77)
    return session


def test_the_first_question_is_whole() -> None:
    asked = FetchSession(enabled=True).next_request({A: want(0), B: want(5)})
    assert (asked.session_id, asked.epoch, list(asked.send), asked.forget) == (0, 0, [A, B], [])


def test_later_questions_hold_only_what_changed() -> None:
    session = begun()
    asked = session.next_request({A: want(10), B: want(0)})
    assert (asked.session_id, asked.epoch, list(asked.send), asked.forget) == (77, 1, [A], [])
    session.on_answer(ErrorCode.NONE, 77)
    asked = session.next_request({A: want(10)})
    assert (asked.epoch, list(asked.send), asked.forget) == (2, [], [(B, ID)])


def test_a_topic_created_anew_is_forgotten_and_asked_for_again() -> None:
    session = begun()
    other = Uuid(b"b" * 16)
    asked = session.next_request({A: want(0, other), B: want(0)})
    assert (list(asked.send), asked.forget) == ([A], [(A, ID)])


def test_a_broker_that_grants_no_session_is_asked_whole_questions() -> None:
    session = FetchSession(enabled=True)
    for _ in range(2):
        asked = session.next_request({A: want(0)})
        assert (asked.session_id, asked.epoch, list(asked.send)) == (0, 0, [A])
        session.on_answer(ErrorCode.NONE, 0)


def test_a_session_that_is_gone_or_confused_begins_anew() -> None:
    for error, session_id in ((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77)):
        session = begun()
        session.next_request({A: want(1)})
        session.on_answer(error, 0)
        asked = session.next_request({A: want(1)})
        assert (asked.session_id, asked.epoch, list(asked.send)) == (session_id, 0, [A])
    session = begun()
    session.on_lost()
    assert session.next_request({A: want(1)}).epoch == 0


def test_epochs_go_on_from_one_after_the_last() -> None:
    session = begun()
    session._epoch = 0x7FFF_FFFF
    session.on_answer(ErrorCode.NONE, 77)
    assert session.next_request({}).epoch == 1


def test_without_sessions_every_question_says_so() -> None:
    session = FetchSession(enabled=False)
    for _ in range(2):
        assert session.next_request({A: want(0)}).epoch == -1
        session.on_answer(ErrorCode.NONE, 0)
