from __future__ import annotations

from strandline.client.core.cluster_metadata import BrokerMetadata, ClusterMetadata
from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint, TopicPartition, Uuid
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = Uuid(b"a" * 16)
OTHER_ID = Uuid(b"b" * 16)
PARTITION = TopicPartition("t", 0)


def metadata(leader: int, epoch: int, topic_id: Uuid = ID, error: int = 0) -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=number, host="h", port=9000 + number) for number in (1, 2)],
        controller_id=1,
        topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition], error_code=error)],
    )


def test_the_leader_with_the_newest_epoch_is_kept() -> None:
    view = ClusterMetadata()
    view.on_metadata(metadata(leader=1, epoch=5), 0, ["t"])
    view.on_metadata(metadata(leader=2, epoch=4), 0, ["t"])
    assert view.leader_of(PARTITION) == (1, 5)
    view.on_metadata(metadata(leader=2, epoch=6), 0, ["t"])
    assert view.leader_of(PARTITION) == (2, 6)


def test_a_recreated_topic_starts_with_its_own_epochs() -> None:
    view = ClusterMetadata()
    view.on_metadata(metadata(leader=1, epoch=5), 0, ["t"])
    view.on_metadata(metadata(leader=2, epoch=0, topic_id=OTHER_ID), 0, ["t"])
    assert view.leader_of(PARTITION) == (2, 0)
    assert view.names == {OTHER_ID: "t"}


def test_a_leader_that_is_not_a_live_broker_is_none() -> None:
    view = ClusterMetadata()
    view.on_metadata(metadata(leader=9, epoch=5), 0, ["t"])
    assert view.leader_of(PARTITION) is None


def test_a_leader_hint_is_used_if_it_is_newer_and_its_broker_is_known() -> None:
    view = ClusterMetadata()
    view.on_metadata(metadata(leader=1, epoch=5), 0, ["t"])
    assert not view.on_leader_hint(PARTITION, 2, 5, None)
    assert not view.on_leader_hint(PARTITION, 3, 6, None)
    assert view.on_leader_hint(PARTITION, 3, 6, BrokerMetadata(3, Endpoint("h", 9003)))
    assert view.leader_of(PARTITION) == (3, 6)


def test_metadata_that_is_old_stale_or_failed_is_not_fresh() -> None:
    view = ClusterMetadata()
    view.on_metadata(metadata(leader=1, epoch=5), 1_000, ["t"])
    assert view.is_fresh("t", 1_500, max_age_ms=1_000)
    assert not view.is_fresh("t", 2_000, max_age_ms=1_000)
    view.on_wrong_leader("t")
    assert not view.is_fresh("t", 1_500, max_age_ms=1_000)
    view.on_metadata(metadata(leader=1, epoch=5, error=ErrorCode.LEADER_NOT_AVAILABLE), 1_000, ["t"])
    assert not view.is_fresh("t", 1_000, max_age_ms=1_000)


def test_a_requested_topic_that_the_response_lacks_is_removed() -> None:
    view = ClusterMetadata()
    view.on_metadata(metadata(leader=1, epoch=5), 0, ["t"])
    view.on_metadata(MetadataResponse(), 0, ["other"])
    assert "t" in view.topics
    view.on_metadata(MetadataResponse(), 0, None)
    assert view.topics == {} and view.names == {}
