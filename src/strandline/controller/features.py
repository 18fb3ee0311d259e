"""Finalized feature levels: UpdateFeatures (57), and the bootstrap records of a new cluster.

All updates of a request succeed or none does. A level is finalized only if every registered node supports it, this
program serves it, and every voter of `controller.quorum.voters` has registered. As in Kafka, a voter that is known by
the log only (kraft.version 1) counts if it has registered and is ignored otherwise: a voter that has been down since
before it could register must run a version that reads what was finalized since. A downgrade must be requested as such,
and is rejected where metadata might be lost: across a level that introduced records, or fields, which a lower one
cannot write. Kafka has an "unsafe" downgrade for that, and rejects it as well.

The level of kraft.version belongs to the quorum and is not in the metadata: it is only checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Final

from strandline.controller.decisions import Decision, Steps
from strandline.controller.leader_eligibility import MIN_INSYNC_REPLICAS, cluster_layers
from strandline.controller.partition_changes import partitions_where
from strandline.controller.settings import ControllerSettings
from strandline.metadata.cluster_image import METADATA_VERSION
from strandline.metadata.effective_configs import broker_value
from strandline.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    SERVED_FEATURES,
    SUPPORTED_FEATURES,
)
from strandline.metadata.record_versions import CONTROLLERS_SINCE, ELR_SINCE, FORMAT_CHANGES, TRANSACTIONS_SINCE
from strandline.metadata.values import BROKER_RESOURCE
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from strandline.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from strandline.protocol.types import Message

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
# The level of another feature that the first level of a feature requires.
_NEEDS: Final = {ELIGIBLE_LEADER_REPLICAS: (METADATA_VERSION, ELR_SINCE)}


class Features:
    def __init__(self, view: View, settings: ControllerSettings, kraft_version: Callable[[], int] = lambda: 0) -> None:
        """`kraft_version` returns the level of the quorum."""
        self._view = view
        self._settings = settings
        self._kraft_version = kraft_version

    def bootstrap(self, given: Sequence[Message]) -> list[Message]:
        """The first records of a cluster, in a transaction: a controller that fails halfway leaves no part of them."""
        records = list(given)
        levels = {record.name: record.feature_level for record in given if isinstance(record, FeatureLevelRecord)}
        if not levels.get(METADATA_VERSION):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the bootstrap records contain no metadata.version")
        if levels.get(ELIGIBLE_LEADER_REPLICAS):
            records.append(self._min_insync_record())
        if levels[METADATA_VERSION] < TRANSACTIONS_SINCE:
            return records
        return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]

    def update(self, request: UpdateFeaturesRequest, version: int) -> Steps[UpdateFeaturesResponse]:
        """One update that fails fails all. Up to version 1 the response lists each feature that succeeded."""
        records: list[Message] = []
        proposed = dict(self._view.features())
        proposed.update((update.feature, update.max_version_level) for update in request.feature_updates)
        try:
            for update in request.feature_updates:
                records += yield from self._update(update, version, proposed)
        except KafkaError as error:
            return Decision(UpdateFeaturesResponse(error_code=error.code, error_message=error.why))
        results = [
            UpdatableFeatureResult(feature=update.feature, error_message=ErrorCode.NONE.name)
            for update in request.feature_updates
        ]
        response = UpdateFeaturesResponse(error_message=None, results=results)
        return Decision(response, [] if request.validate_only else records)

    def requested_kraft_version(self, request: UpdateFeaturesRequest) -> int | None:
        """The level of kraft.version in the request, if the quorum has another."""
        for update in request.feature_updates:
            if update.feature == KRAFT_VERSION and update.max_version_level != self._kraft_version():
                return update.max_version_level
        return None

    def _update(
        self, update: FeatureUpdateKey, version: int, proposed: Mapping[str, int]
    ) -> Generator[None, None, list[Message]]:
        name, level = update.feature, update.max_version_level
        kind = update.upgrade_type if version >= 1 else (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE)
        current = self._kraft_version() if name == KRAFT_VERSION else self._view.features().get(name, 0)
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            raise _rejected(name, level, f"{kind} is not an upgrade type")
        if level < 0:
            raise _rejected(name, level, "levels are not negative")
        self._check_supported(name, level)
        _check_direction(name, current, level, kind)
        if level == current:
            return []
        if level < current and name == KRAFT_VERSION:
            raise _rejected(name, level, "the quorum cannot return to a static voter set")
        if level < current and name == METADATA_VERSION:
            _check_nothing_is_lost(current, level)
        if level > current and level > SERVED_FEATURES.get(name, 0):
            raise _rejected(name, level, "this cluster does not support it yet")
        needed, since = _NEEDS.get(name, (name, 0))
        if level > 0 and proposed.get(needed, 0) < since:
            raise _rejected(name, level, f"it needs {needed} {since}")
        if name == KRAFT_VERSION:
            return []
        record = FeatureLevelRecord(name=name, feature_level=level)
        if name != ELIGIBLE_LEADER_REPLICAS:
            return [record]
        if level > 0:
            return [record, *self._cluster_min_insync()]
        yield from self._check_all_in_sync(level)
        return [ClearElrRecord(topic_name=""), record]

    def _check_all_in_sync(self, level: int) -> Generator[None, None, None]:
        """Where the ISR is empty, the ELR is the only record of which replicas have every committed record."""
        for found in partitions_where(self._view, lambda partition: not partition.isr):
            if found is None:
                yield
            else:
                topic = self._view.topic_by_id(found[0][0])
                name = "a topic" if topic is None else topic.name
                raise _rejected(
                    ELIGIBLE_LEADER_REPLICAS, level, f"partition {found[0][1]} of {name} has no replica in sync"
                )

    def _check_supported(self, name: str, level: int) -> None:
        if name not in SUPPORTED_FEATURES:
            raise _rejected(name, level, f"controller {self._settings.node_id} does not know this feature")
        for node, (low, high) in self._supporters(name):
            if not low <= level <= high:
                raise _rejected(name, level, f"{node} supports levels {low} to {high}")
        if self._view.metadata_version >= CONTROLLERS_SINCE:
            self._check_voters_registered(name, level)

    def _check_voters_registered(self, name: str, level: int) -> None:
        for voter in self._settings.configured_voters:
            if voter != self._settings.node_id and self._view.controller(voter) is None:
                raise _rejected(name, level, f"controller {voter} has not registered and might not support it")

    def _supporters(self, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
        yield f"controller {self._settings.node_id}", SUPPORTED_FEATURES[name]
        for broker in self._view.brokers():
            yield f"broker {broker.id}", _range(broker.features, name)
        for controller in self._view.controllers():
            yield f"controller {controller.id}", _range(controller.features, name)

    def _cluster_min_insync(self) -> list[Message]:
        """ELR needs one min.insync.replicas for the whole cluster, and none of a single broker."""
        records: list[Message] = []
        if MIN_INSYNC_REPLICAS not in self._view.broker_configs(None):
            records.append(self._min_insync_record())
        for name in self._view.config_resources(BROKER_RESOURCE):
            if name and MIN_INSYNC_REPLICAS in self._view.configs(BROKER_RESOURCE, name):
                records.append(
                    ConfigRecord(
                        resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None
                    )
                )
        return records

    def _min_insync_record(self) -> ConfigRecord:
        value = broker_value(MIN_INSYNC_REPLICAS, cluster_layers(self._view, self._settings.static))
        return ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name="", name=MIN_INSYNC_REPLICAS, value=str(value or 1)
        )


def _range(features: Sequence[tuple[str, int, int]], name: str) -> tuple[int, int]:
    return next(((low, high) for feature, low, high in features if feature == name), (0, 0))


def _check_direction(name: str, current: int, level: int, kind: int) -> None:
    if level < current and kind == UPGRADE:
        raise _rejected(
            name, level, f"it is lower than the current level {current}; a downgrade must be requested as such"
        )
    if level > current and kind != UPGRADE:
        raise _rejected(name, level, f"it is higher than the current level {current}, but a downgrade was requested")


def _check_nothing_is_lost(current: int, level: int) -> None:
    crossed = [change for change in FORMAT_CHANGES if level < change <= current]
    if crossed:
        raise _rejected(
            METADATA_VERSION,
            level,
            f"metadata written since level {crossed[-1]} has no form below it and might be lost",
        )


def _rejected(name: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be set to level {level}: {why}")
