"""Brokers as hosts of replicas: who may lead, and where a new replica goes. Looked up once per broker and decision.

A decision often concerns a broker that is about to change, by a record that stands beside the partitions' own: one that
is *leaving* cannot lead any more, one that is *coming* can already.
"""

from __future__ import annotations

from strandline.metadata.record_versions import DIRECTORIES_SINCE
from strandline.metadata.values import BrokerInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid


class LiveBrokers:
    """The `BrokerLookup` of `controller.partitions`, as the latest view has them."""

    def __init__(self, view: View, *, leaving: int | None = None, coming: int | None = None) -> None:
        self._view = view
        self._leaving = leaving
        self._coming = coming
        self._directories: dict[int, tuple[Uuid, ...] | None] = {}

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        try:
            directories = self._directories[broker_id]
        except KeyError:
            directories = self._directories[broker_id] = self._directories_of_leader(broker_id)
        return directories is not None and is_online(directory, directories)

    def _directories_of_leader(self, broker_id: int) -> tuple[Uuid, ...] | None:
        """None for a broker that cannot lead anything."""
        broker = self._view.broker(broker_id)
        if broker is None or broker_id == self._leaving:
            return None
        return broker.directories if broker.active or broker_id == self._coming else None

    def new_directory(self, broker_id: int) -> Uuid:
        """A broker with one directory has no choice; one with several tells later where it put a replica (KIP-858)."""
        if self._view.metadata_version < DIRECTORIES_SINCE:
            return DIRECTORY_MIGRATING
        broker = self._view.broker(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        if not broker.directories:
            return DIRECTORY_MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else DIRECTORY_UNASSIGNED


def is_online(directory: Uuid, directories: tuple[Uuid, ...]) -> bool:
    """Whether a replica's directory is among those that its broker has online."""
    if directory in directories:
        return True
    # The broker will say where; or it is from before directories had ids.
    return directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or (not directories and directory != DIRECTORY_LOST)


def takes_new_replicas(broker: BrokerInfo) -> bool:
    """Not one that is leaving, nor one whose directories are all cordoned (KIP-1066). A fenced one may follow."""
    if broker.in_controlled_shutdown:
        return False
    cordoned = broker.cordoned_directories
    return not cordoned or not broker.directories or any(each not in cordoned for each in broker.directories)


def registered_broker(view: View, broker_id: int, epoch: int) -> BrokerInfo:
    """Who speaks: raises STALE_BROKER_EPOCH for a ghost, which is anybody with another epoch than the registered."""
    broker = view.broker(broker_id)
    if broker is None or broker.epoch != epoch:
        known = "is not registered" if broker is None else f"has epoch {broker.epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} speaks with epoch {epoch} but {known}")
    return broker
