"""The immutable values of the metadata image: brokers, controllers, topics, partitions.

An image holds hundreds of thousands of them while the node runs. As msgspec structs they are cheap to build during
replay and, with `gc=False`, never visited by the cyclic garbage collector. ACLs, SCRAM credentials and delegation
tokens have no value of their own: their records are stored.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from strandline.model.ids import Uuid

NO_LEADER: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1


class _Value(msgspec.Struct, frozen=True, gc=False):
    pass


class BrokerEndpoint(_Value, frozen=True, gc=False):
    name: str
    host: str
    port: int
    security_protocol: int


def _named(endpoints: tuple[BrokerEndpoint, ...], listener: str) -> BrokerEndpoint | None:
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return None


class BrokerInfo(_Value, frozen=True, gc=False):
    """A registered broker. `epoch` is the offset of its RegisterBrokerRecord."""

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
        """Whether the broker may lead and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        return _named(self.endpoints, listener)


class ControllerInfo(_Value, frozen=True, gc=False):
    id: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    zk_migration_ready: bool = False

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        return _named(self.endpoints, listener)


class TopicInfo(_Value, frozen=True, gc=False):
    id: Uuid
    name: str
    partition_count: int = 0


class PartitionInfo(_Value, frozen=True, gc=False):
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
        """The log directory of the broker's replica; None when it has no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker:
                return directory
        return None


PartitionKey = tuple[Uuid, int]
"""(topic id, partition index): a plain tuple, because a NamedTuple doubles the cost of a lookup."""

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
