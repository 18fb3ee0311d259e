"""The limit on how much a request may name to the controller, and yielding while a request names much."""

from __future__ import annotations

import pytest

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.handlers.coordinators import handle_find_coordinator
from strandline.handlers.request_limits import check_request_limit, count_named
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.elections import ElectLeadersRequest, TopicPartitions
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from unit.handlers.metadata_broker import FakeCall, MetadataBroker, count_yields, run


def test_a_request_for_many_keys_yields_to_the_event_loop() -> None:
    request = FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(10_000)])
    call = FakeCall(ApiKey.FIND_COORDINATOR, 4)
    metadata = MetadataBroker()
    metadata.add_topic("__consumer_offsets", *[[1]] * 50)
    response, yields = run(count_yields(handle_find_coordinator(metadata.broker, call, request)))
    assert len(response.coordinators) == 10_000 and yields >= 40 and call.offload_encoding


def test_a_request_may_not_name_more_than_one_decision_can_hold() -> None:
    allowed = CreateTopicsRequest(topics=[CreatableTopic(name="t")] * MAX_RECORDS_PER_DECISION)
    check_request_limit(allowed)
    allowed.topics.append(CreatableTopic(name="t"))
    with pytest.raises(KafkaError) as rejected:
        check_request_limit(allowed)
    assert rejected.value.code == ErrorCode.POLICY_VIOLATION
    with pytest.raises(KafkaError):
        check_request_limit(DeleteTopicsRequest(topic_names=["t"] * (MAX_RECORDS_PER_DECISION + 1)))


def test_partitions_are_counted_and_a_topic_without_partitions_counts_as_one() -> None:
    topics = [TopicPartitions(topic="a", partitions=[0, 1, 2]), TopicPartitions(topic="b")]
    assert count_named(ElectLeadersRequest(topic_partitions=topics)) == 4
    assert count_named(ElectLeadersRequest(topic_partitions=None)) == 0
