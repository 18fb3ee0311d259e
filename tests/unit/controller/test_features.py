"""Feature levels raised and lowered, the first records of a cluster, and producer ids."""

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
    scene: MachineCluster, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    return scene.decide(Features(scene.view, scene.settings).update(request, version))


def test_a_new_cluster_starts_with_a_transaction_of_feature_levels_and_one_min_isr_for_all() -> None:
    settings = ControllerSettings(1, "c", static={"min.insync.replicas": "2"})
    records = Features(Image().latest, settings).bootstrap(bootstrap_records())
    assert records == [
        BeginTransactionRecord(name="Bootstrap records"),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name=ELR, feature_level=1),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        EndTransactionRecord(),
    ]


def test_an_old_metadata_version_starts_without_what_it_does_not_know() -> None:
    records = Features(Image().latest, ControllerSettings(1, "c")).bootstrap(bootstrap_records(7))
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=7)]


def test_bootstrap_records_without_a_metadata_version_are_refused() -> None:
    with pytest.raises(KafkaError, match=r"metadata\.version"):
        Features(Image().latest, ControllerSettings(1, "c")).bootstrap([])


def test_a_feature_is_switched_off_and_on_again() -> None:
    scene = MachineCluster(1)
    assert update(scene, (ELR, 0, SAFE_DOWNGRADE)).error_code == 0
    assert ELR not in scene.view.features()
    assert update(scene, (ELR, 1, UPGRADE)).error_code == 0
    assert scene.view.features()[ELR] == 1
    assert scene.view.broker_configs(None) == {"min.insync.replicas": "1"}


def test_without_the_feature_nobody_is_eligible_and_it_cannot_go_while_that_is_all_that_is_known() -> None:
    scene = MachineCluster(2)
    scene.write(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    scene.topic("shrunk", [1, 2])
    scene.topic("lost", [1])
    brokers = Brokers(scene.view, scene.settings)
    scene.decide(brokers.fence(1))
    assert (scene.partition("shrunk").isr, scene.partition("shrunk").elr) == ((2,), (1,))
    assert (scene.partition("lost").isr, scene.partition("lost").elr) == ((), (1,))
    refused = update(scene, (ELR, 0, SAFE_DOWNGRADE))
    assert "partition 0 of lost has nobody in sync" in (refused.error_message or "")
    assert scene.partition("shrunk").elr == (1,)
    lost = scene.view.topic("lost")
    assert lost is not None
    scene.write(RemoveTopicRecord(topic_id=lost.id))
    assert update(scene, (ELR, 0, SAFE_DOWNGRADE)).error_code == 0
    assert scene.partition("shrunk").elr == ()


def test_nothing_is_written_when_only_validated_or_already_so() -> None:
    scene = MachineCluster(1)
    before = scene.image.end_offset
    assert update(scene, (ELR, 0, SAFE_DOWNGRADE), validate_only=True).error_code == 0
    assert update(scene, (ELR, 1, UPGRADE)).error_code == 0
    assert scene.image.end_offset == before


@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        ("no.such.feature", 1, UPGRADE, "does not know"),
        (ELR, 0, UPGRADE, "downgrade must be asked for"),
        (ELR, 2, UPGRADE, "supports levels 0 to 1"),
        (ELR, -1, UPGRADE, "not negative"),
        (ELR, 0, 9, "kind of update"),
        (ELR, 2, SAFE_DOWNGRADE, "supports levels 0 to 1"),
        ("metadata.version", 31, UPGRADE, "supports levels 7 to 30"),
        ("metadata.version", 0, SAFE_DOWNGRADE, "supports levels 7 to 30"),
        ("metadata.version", 25, SAFE_DOWNGRADE, "might be lost"),
        ("metadata.version", 25, UNSAFE_DOWNGRADE, "might be lost"),
        ("group.version", 1, UPGRADE, "does not serve it yet"),
        ("transaction.version", 2, UPGRADE, "does not serve it yet"),
        ("kraft.version", 2, UPGRADE, "supports levels 0 to 1"),
    ],
)
def test_what_cannot_be_finalized_is_refused_with_the_reason(name: str, level: int, kind: int, why: str) -> None:
    scene = MachineCluster(1)
    before = scene.view.features()
    answer = update(scene, (name, level, kind))
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_UPDATE_VERSION
    assert why in (answer.error_message or "")
    assert scene.view.features() == before


def test_every_registered_broker_must_support_a_level() -> None:
    scene = MachineCluster(1, elr=False)
    old = [BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
    scene.write(RegisterBrokerRecord(broker_id=2, broker_epoch=50, rack=None, features=old))
    answer = update(scene, (ELR, 1, UPGRADE))
    assert "broker 2 supports levels 0 to 0" in (answer.error_message or "")


def test_eligible_leaders_need_a_metadata_version_that_can_record_them() -> None:
    scene = MachineCluster(1, elr=False)
    scene.write(FeatureLevelRecord(name="metadata.version", feature_level=22))
    assert "needs metadata.version 23" in (update(scene, (ELR, 1, UPGRADE)).error_message or "")


def test_all_updates_happen_or_none() -> None:
    scene = MachineCluster(1)
    answer = update(scene, (ELR, 0, SAFE_DOWNGRADE), ("metadata.version", 99, UPGRADE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert scene.view.features()[ELR] == 1


def test_older_versions_tell_success_for_each_feature_and_failure_once() -> None:
    scene = MachineCluster(1)
    answer = update(scene, (ELR, 0, SAFE_DOWNGRADE), ("metadata.version", 99, UPGRADE), version=1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert scene.view.features()[ELR] == 1
    answer = update(scene, (ELR, 0, SAFE_DOWNGRADE), ("metadata.version", 30, UPGRADE), version=1)
    assert [(r.feature, r.error_code) for r in answer.results] == [(ELR, 0), ("metadata.version", 0)]
    assert ELR not in scene.view.features()


def test_the_version_of_the_quorum_rises_and_never_falls() -> None:
    scene = MachineCluster(1)
    has = 0
    features = Features(scene.view, scene.settings, lambda: has)

    def code(level: int, kind: int) -> int:
        update_ = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=kind)
        decision = finish(features.update(UpdateFeaturesRequest(feature_updates=[update_]), 2))
        assert decision.records == [], "it is not kept in records"
        return decision.answer.error_code

    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1)])
    assert code(1, UPGRADE) == ErrorCode.NONE
    assert features.asked_of_the_quorum(request) == 1
    has = 1
    assert code(1, UPGRADE) == ErrorCode.NONE
    assert features.asked_of_the_quorum(request) is None
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
def test_metadata_goes_back_only_where_nothing_is_lost(current: int, level: int, lost: bool) -> None:
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        scene = MachineCluster(1, elr=False)
        scene.write(FeatureLevelRecord(name="metadata.version", feature_level=current))
        answer = update(scene, ("metadata.version", level, kind))
        assert (answer.error_code == ErrorCode.INVALID_UPDATE_VERSION) is lost, answer.error_message
        assert scene.view.metadata_version == (current if lost else level)


def test_metadata_rises_and_what_rests_on_it_rises_with_it() -> None:
    scene = MachineCluster(1, elr=False)
    scene.write(FeatureLevelRecord(name="metadata.version", feature_level=7))
    assert update(scene, (ELR, 1, UPGRADE), ("metadata.version", 30, UPGRADE)).error_code == 0
    assert scene.view.features() == {ELR: 1, "metadata.version": 30}


def test_one_min_isr_for_all_replaces_those_of_single_brokers() -> None:
    scene = MachineCluster(2, elr=False)
    for name, value in (("", "3"), ("1", "2"), ("2", "1")):
        scene.write(ConfigRecord(resource_type=4, resource_name=name, name="min.insync.replicas", value=value))
    assert update(scene, (ELR, 1, UPGRADE)).error_code == 0
    assert scene.view.broker_configs(None) == {"min.insync.replicas": "3"}
    assert scene.view.broker_configs(1) == scene.view.broker_configs(2) == {}


def test_a_voter_that_has_not_said_what_it_supports_holds_levels_back() -> None:
    scene = MachineCluster(1, settings=ControllerSettings(100, "cluster", configured_voters=(100, 101)))
    refused = update(scene, (ELR, 0, SAFE_DOWNGRADE))
    assert "controller 101 has not registered" in (refused.error_message or "")
    features = [ControllerFeature(name=ELR, min_supported_version=0, max_supported_version=1)]
    scene.write(RegisterControllerRecord(controller_id=101, features=features))
    assert update(scene, (ELR, 0, SAFE_DOWNGRADE)).error_code == 0


def test_the_oldest_version_says_downgrade_with_a_flag() -> None:
    scene = MachineCluster(1)
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=ELR, max_version_level=0, allow_downgrade=True)]
    )
    scene.decide(Features(scene.view, scene.settings).update(request, 0))
    assert ELR not in scene.view.features()


def test_producer_ids_are_given_out_in_blocks_that_never_overlap() -> None:
    scene = MachineCluster(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=scene.epoch(1))
    first = scene.decide(producer_ids.allocate(scene.view, request))
    second = scene.decide(producer_ids.allocate(scene.view, request))
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    assert second.producer_id_start == 1000
    assert scene.view.next_producer_id == 2000


def test_producer_ids_are_refused_to_strangers_and_when_they_run_out() -> None:
    scene = MachineCluster(1)
    with pytest.raises(KafkaError) as refusal:
        producer_ids.allocate(scene.view, AllocateProducerIdsRequest(broker_id=1, broker_epoch=999))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
    scene.write(ProducerIdsRecord(broker_id=1, next_producer_id=2**63 - 500))
    with pytest.raises(KafkaError, match="given out"):
        producer_ids.allocate(scene.view, AllocateProducerIdsRequest(broker_id=1, broker_epoch=scene.epoch(1)))
