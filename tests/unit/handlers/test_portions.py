"""Large requests: in turns, and to the controller in portions."""

from __future__ import annotations

import pytest

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.handlers.coordinators import handle_find_coordinator
from strandline.handlers.portions import check_portion
from strandline.handlers.tables import FORWARDED
from strandline.handlers.turns import BULKY_TURNS, ITEMS_PER_TURN, Turns
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from unit.handlers.scene import Asked, Scene, beside, run


def test_a_turn_is_over_when_its_items_are_done() -> None:
    call = Asked(ApiKey.METADATA, 12)
    turns = Turns(call)
    over = [number for number in range(3 * ITEMS_PER_TURN) if turns.over()]
    assert over == [ITEMS_PER_TURN, 2 * ITEMS_PER_TURN + 1]
    assert not call.bulky


def test_something_large_is_a_turn_of_its_own() -> None:
    turns = Turns(Asked(ApiKey.METADATA, 12))
    assert [turns.over(ITEMS_PER_TURN), turns.over(1), turns.over(1)] == [False, True, False]


def test_what_takes_many_turns_is_marked_to_be_encoded_elsewhere() -> None:
    call = Asked(ApiKey.METADATA, 12)
    turns = Turns(call)
    for _ in range(BULKY_TURNS):
        assert not call.bulky
        turns.over(ITEMS_PER_TURN + 1)
    assert call.bulky


def test_others_are_served_while_many_keys_are_answered() -> None:
    request = FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(10_000)])
    call = Asked(ApiKey.FIND_COORDINATOR, 4)
    response, turns = run(beside(handle_find_coordinator(Scene().broker, call, request)))
    assert len(response.coordinators) == 10_000 and turns >= 40 and call.bulky


def test_the_controller_is_asked_about_no_more_than_it_can_decide_at_once() -> None:
    allowed = CreateTopicsRequest(topics=[CreatableTopic(name="t")] * MAX_RECORDS_PER_DECISION)
    check_portion(ApiKey.CREATE_TOPICS, allowed)
    allowed.topics.append(CreatableTopic(name="t"))
    with pytest.raises(KafkaError) as refused:
        check_portion(ApiKey.CREATE_TOPICS, allowed)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    with pytest.raises(KafkaError):
        check_portion(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["t"] * (MAX_RECORDS_PER_DECISION + 1)))


@pytest.mark.parametrize("key", FORWARDED, ids=lambda key: key.name)
def test_every_forwarded_request_can_be_counted(key: ApiKey) -> None:
    check_portion(key, API[key].request())
