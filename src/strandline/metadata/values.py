"""What the metadata image is made of: immutable values, tuples inside.

They are msgspec structs rather than dataclasses because an image holds hundreds of thousands of them for as long as the
node lives: they are cheap to build while a log is replayed and, with `gc=False`, the cyclic collector never walks them.
ACLs, SCRAM credentials and delegation tokens have no value of their own: the record that made one says it all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from strandline.model.ids import Uuid

NO_LEADER: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1


class Value(msgspec.Struct, frozen=True, gc=False):
    """Built and compared, never changed; `msgspec.structs.replace` makes the next one."""


class BrokerEndpoint(Value, frozen=True, gc=False):
    name: str
    host: str
    port: int
    security_protocol: int


def _named(endpoints: tuple[BrokerEndpoint, ...], listener: str) -> BrokerEndpoint | None:
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return None


class BrokerInfo(Value, frozen=True, gc=False):
    """A registered broker. `epoch` is the offset of the record that registered it."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    """(name, lowest supported level, highest supported level)"""
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[Uuid, ...] = ()
    cordoned_directories: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def active(self) -> bool:
        """May lead and may be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        return _named(self.endpoints, listener)


class ControllerInfo(Value, frozen=True, gc=False):
    id: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    zk_migration_ready: bool = False

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        return _named(self.endpoints, listener)


class TopicInfo(Value, frozen=True, gc=False):
    id: Uuid
    name: str
    partition_count: int = 0


class PartitionInfo(Value, frozen=True, gc=False):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[Uuid, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    def directory_of(self, broker: int) -> Uuid | None:
        """Where this replica lives; None when the broker has no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker:
                return directory
        return None


PartitionKey = tuple[Uuid, int]
"""(topic id, partition index): a plain tuple, since a named one would double the cost of looking a partition up."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""((entity type, name or None for the default), …) in order of type."""


class ConfigResource(NamedTuple):
    """`type` as in ConfigRecord: 2 topic, 4 broker (the empty name is the default of all), 16 metrics, 32 group."""

    type: int
    name: str


TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
