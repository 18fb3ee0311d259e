"""Large requests: in turns, and to the controller in portions."""

from __future__ import annotations

import pytest

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.handlers.coordinators import handle_find_coordinator
from strandline.handlers.request_limits import check_request_limit
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from unit.handlers.metadata_broker import FakeCall, MetadataBroker, beside, run


def test_others_are_served_while_many_keys_are_answered() -> None:
    request = FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(10_000)])
    call = FakeCall(ApiKey.FIND_COORDINATOR, 4)
    response, turns = run(beside(handle_find_coordinator(MetadataBroker().broker, call, request)))
    assert len(response.coordinators) == 10_000 and turns >= 40 and call.offload_encoding


def test_the_controller_is_asked_about_no_more_than_it_can_decide_at_once() -> None:
    allowed = CreateTopicsRequest(topics=[CreatableTopic(name="t")] * MAX_RECORDS_PER_DECISION)
    check_request_limit(allowed)
    allowed.topics.append(CreatableTopic(name="t"))
    with pytest.raises(KafkaError) as refused:
        check_request_limit(allowed)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    with pytest.raises(KafkaError):
        check_request_limit(DeleteTopicsRequest(topic_names=["t"] * (MAX_RECORDS_PER_DECISION + 1)))
