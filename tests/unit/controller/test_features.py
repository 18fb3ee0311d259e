"""UpdateFeatures, the bootstrap records, and producer ids."""

from __future__ import annotations

import pytest

from strandline.controller import producer_ids
from strandline.controller.brokers import Brokers
from strandline.controller.decisions import finish
from strandline.controller.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, Features
from strandline.controller.settings import ControllerSettings
from strandline.metadata.features import bootstrap_records
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from strandline.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerFeature,
    ConfigRecord,
    ControllerFeature,
    EndTransactionRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
)
from strandline.protocol.messages.producers import AllocateProducerIdsRequest
from unit.controller.machine_cluster import MachineCluster

ELR = "eligible.leader.replicas.version"


def update(
    cluster: MachineCluster, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    return cluster.decide(Features(cluster.view, cluster.settings).update(request, version))


def test_the_bootstrap_records_are_a_transaction_with_feature_levels_and_min_insync_replicas() -> None:
    settings = ControllerSettings(1, "c", static={"min.insync.replicas": "2"})
    records = Features(Image().latest, settings).bootstrap(bootstrap_records())
    assert records == [
        BeginTransactionRecord(name="Bootstrap records"),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name=ELR, feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        EndTransactionRecord(),
    ]


def test_the_bootstrap_records_of_an_old_metadata_version_contain_no_newer_records() -> None:
    records = Features(Image().latest, ControllerSettings(1, "c")).bootstrap(bootstrap_records(7))
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=7)]


def test_bootstrap_records_without_a_metadata_version_are_rejected() -> None:
    with pytest.raises(KafkaError, match=r"metadata\.version"):
        Features(Image().latest, ControllerSettings(1, "c")).bootstrap([])


def test_a_feature_is_disabled_and_enabled_again() -> None:
    cluster = MachineCluster(1)
    assert update(cluster, (ELR, 0, SAFE_DOWNGRADE)).error_code == 0
    assert ELR not in cluster.view.features()
    assert update(cluster, (ELR, 1, UPGRADE)).error_code == 0
    assert cluster.view.features()[ELR] == 1
    assert cluster.view.broker_configs(None) == {"min.insync.replicas": "1"}


def test_disabling_elr_clears_it_and_is_rejected_while_a_partition_has_no_isr() -> None:
    cluster = MachineCluster(2)
    cluster.write(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.topic("shrunk", [1, 2])
    cluster.topic("lost", [1])
    brokers = Brokers(cluster.view, cluster.settings)
    cluster.decide(brokers.fence(1))
    assert (cluster.partition("shrunk").isr, cluster.partition("shrunk").elr) == ((2,), (1,))
    assert (cluster.partition("lost").isr, cluster.partition("lost").elr) == ((), (1,))
    rejected = update(cluster, (ELR, 0, SAFE_DOWNGRADE))
    assert "partition 0 of lost has no replica in sync" in (rejected.error_message or "")
    assert cluster.partition("shrunk").elr == (1,)
    lost = cluster.view.topic("lost")
    assert lost is not None
    cluster.write(RemoveTopicRecord(topic_id=lost.id))
    assert update(cluster, (ELR, 0, SAFE_DOWNGRADE)).error_code == 0
    assert cluster.partition("shrunk").elr == ()


def test_nothing_is_written_when_only_validated_or_unchanged() -> None:
    cluster = MachineCluster(1)
    before = cluster.image.end_offset
    assert update(cluster, (ELR, 0, SAFE_DOWNGRADE), validate_only=True).error_code == 0
    assert update(cluster, (ELR, 1, UPGRADE)).error_code == 0
    assert cluster.image.end_offset == before


@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        ("no.such.feature", 1, UPGRADE, "does not know"),
        (ELR, 0, UPGRADE, "downgrade must be requested"),
        (ELR, 2, UPGRADE, "supports levels 0 to 1"),
        (ELR, -1, UPGRADE, "not negative"),
        (ELR, 0, 9, "upgrade type"),
        (ELR, 2, SAFE_DOWNGRADE, "supports levels 0 to 1"),
        ("metadata.version", 31, UPGRADE, "supports levels 7 to 30"),
        ("metadata.version", 0, SAFE_DOWNGRADE, "supports levels 7 to 30"),
        ("metadata.version", 25, SAFE_DOWNGRADE, "might be lost"),
        ("metadata.version", 25, UNSAFE_DOWNGRADE, "might be lost"),
        ("share.version", 1, UPGRADE, "does not support it yet"),
        ("kraft.version", 2, UPGRADE, "supports levels 0 to 1"),
    ],
)
def test_an_invalid_feature_update_is_rejected_with_the_reason(name: str, level: int, kind: int, why: str) -> None:
    cluster = MachineCluster(1)
    before = cluster.view.features()
    response = update(cluster, (name, level, kind))
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_UPDATE_VERSION
    assert why in (response.error_message or "")
    assert cluster.view.features() == before


def test_every_registered_broker_must_support_a_level() -> None:
    cluster = MachineCluster(1, elr=False)
    old = [BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
    cluster.write(RegisterBrokerRecord(broker_id=2, broker_epoch=50, rack=None, features=old))
    response = update(cluster, (ELR, 1, UPGRADE))
    assert "broker 2 supports levels 0 to 0" in (response.error_message or "")


def test_elr_needs_a_metadata_version_with_elr_records() -> None:
    cluster = MachineCluster(1, elr=False)
    cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=22))
    assert "needs metadata.version 23" in (update(cluster, (ELR, 1, UPGRADE)).error_message or "")


def test_all_updates_of_a_request_succeed_or_none() -> None:
    cluster = MachineCluster(1)
    response = update(cluster, (ELR, 0, SAFE_DOWNGRADE), ("metadata.version", 99, UPGRADE))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.view.features()[ELR] == 1


def test_older_versions_list_each_successful_feature_and_a_failure_once() -> None:
    cluster = MachineCluster(1)
    response = update(cluster, (ELR, 0, SAFE_DOWNGRADE), ("metadata.version", 99, UPGRADE), version=1)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.view.features()[ELR] == 1
    response = update(cluster, (ELR, 0, SAFE_DOWNGRADE), ("metadata.version", 30, UPGRADE), version=1)
    assert [(r.feature, r.error_code) for r in response.results] == [(ELR, 0), ("metadata.version", 0)]
    assert ELR not in cluster.view.features()


def test_kraft_version_is_raised_and_never_lowered() -> None:
    cluster = MachineCluster(1)
    has = 0
    features = Features(cluster.view, cluster.settings, lambda: has)

    def code(level: int, kind: int) -> int:
        update_ = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=kind)
        decision = finish(features.update(UpdateFeaturesRequest(feature_updates=[update_]), 2))
        assert decision.records == [], "kraft.version has no record"
        return decision.response.error_code

    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1)])
    assert code(1, UPGRADE) == ErrorCode.NONE
    assert features.requested_kraft_version(request) == 1
    has = 1
    assert code(1, UPGRADE) == ErrorCode.NONE
    assert features.requested_kraft_version(request) is None
    assert code(0, SAFE_DOWNGRADE) == ErrorCode.INVALID_UPDATE_VERSION
    assert code(2, UPGRADE) == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("current", "level", "lost"),
    [
        (29, 23, False),
        (29, 22, True),
        (30, 29, True),
        (22, 17, False),
        (17, 16, True),
        (16, 15, False),
        (12, 11, False),
    ],
)
def test_a_metadata_version_downgrade_is_allowed_only_where_no_metadata_is_lost(
    current: int, level: int, lost: bool
) -> None:
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        cluster = MachineCluster(1, elr=False)
        cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=current))
        response = update(cluster, ("metadata.version", level, kind))
        assert (response.error_code == ErrorCode.INVALID_UPDATE_VERSION) is lost, response.error_message
        assert cluster.view.metadata_version == (current if lost else level)


def test_metadata_version_is_raised_together_with_a_feature_that_needs_it() -> None:
    cluster = MachineCluster(1, elr=False)
    cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=7))
    assert update(cluster, (ELR, 1, UPGRADE), ("metadata.version", 30, UPGRADE)).error_code == 0
    assert cluster.view.features() == {ELR: 1, "metadata.version": 30}


def test_a_cluster_wide_min_insync_replicas_replaces_those_of_single_brokers() -> None:
    cluster = MachineCluster(2, elr=False)
    for name, value in (("", "3"), ("1", "2"), ("2", "1")):
        cluster.write(ConfigRecord(resource_type=4, resource_name=name, name="min.insync.replicas", value=value))
    assert update(cluster, (ELR, 1, UPGRADE)).error_code == 0
    assert cluster.view.broker_configs(None) == {"min.insync.replicas": "3"}
    assert cluster.view.broker_configs(1) == cluster.view.broker_configs(2) == {}


def test_an_unregistered_voter_blocks_feature_updates() -> None:
    cluster = MachineCluster(1, settings=ControllerSettings(100, "cluster", configured_voters=(100, 101)))
    rejected = update(cluster, (ELR, 0, SAFE_DOWNGRADE))
    assert "controller 101 has not registered" in (rejected.error_message or "")
    features = [ControllerFeature(name=ELR, min_supported_version=0, max_supported_version=1)]
    cluster.write(RegisterControllerRecord(controller_id=101, features=features))
    assert update(cluster, (ELR, 0, SAFE_DOWNGRADE)).error_code == 0


def test_version_0_requests_a_downgrade_with_a_flag() -> None:
    cluster = MachineCluster(1)
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=ELR, max_version_level=0, allow_downgrade=True)]
    )
    cluster.decide(Features(cluster.view, cluster.settings).update(request, 0))
    assert ELR not in cluster.view.features()


def test_producer_ids_are_allocated_in_blocks_that_never_overlap() -> None:
    cluster = MachineCluster(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epoch(1))
    first = cluster.decide(producer_ids.allocate(cluster.view, request))
    second = cluster.decide(producer_ids.allocate(cluster.view, request))
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    assert second.producer_id_start == 1000
    assert cluster.view.next_producer_id == 2000


def test_allocating_producer_ids_fails_for_unregistered_brokers_and_when_all_are_allocated() -> None:
    cluster = MachineCluster(1)
    with pytest.raises(KafkaError) as error:
        producer_ids.allocate(cluster.view, AllocateProducerIdsRequest(broker_id=1, broker_epoch=999))
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH
    cluster.write(ProducerIdsRecord(broker_id=1, next_producer_id=2**63 - 500))
    with pytest.raises(KafkaError, match="allocated"):
        producer_ids.allocate(cluster.view, AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epoch(1)))
