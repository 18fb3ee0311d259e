"""What an election needs to know besides the partition: which brokers can lead, and what configs and features allow.

Both are read from the latest view, once per decision, and passed to `controller.partitions`, which elects.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from strandline.controller.failure_detector import UnconfirmedFailures
from strandline.controller.partitions import ElectionRules
from strandline.controller.settings import ControllerSettings
from strandline.metadata.effective_configs import BrokerLayers, broker_value
from strandline.metadata.features import ELIGIBLE_LEADER_REPLICAS
from strandline.metadata.record_versions import DIRECTORIES_SINCE
from strandline.metadata.values import PartitionInfo
from strandline.metadata.views import View
from strandline.model.config_keys.key import ConfigError, ConfigValue
from strandline.model.config_keys.topic import TOPIC_KEYS
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class LiveBrokers:
    """The `BrokerLookup` of `controller.partitions`.

    A decision often changes a broker by a record next to those of the partitions: `leaving` cannot lead any more,
    `coming` can lead already.
    """

    def __init__(self, view: View, *, leaving: int | None = None, coming: int | None = None) -> None:
        self._view = view
        self._leaving = leaving
        self._coming = coming
        self._directories: dict[int, tuple[Uuid, ...] | None] = {}

    def is_active(self, broker_id: int) -> bool:
        broker = self._view.broker(broker_id)
        return broker is not None and broker.active

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        try:
            directories = self._directories[broker_id]
        except KeyError:
            directories = self._directories[broker_id] = self._directories_of_leader(broker_id)
        return directories is not None and is_online(directory, directories)

    def _directories_of_leader(self, broker_id: int) -> tuple[Uuid, ...] | None:
        """The online directories of a broker; None for a broker that cannot lead any partition."""
        broker = self._view.broker(broker_id)
        if broker is None or broker_id == self._leaving:
            return None
        return broker.directories if broker.active or broker_id == self._coming else None

    def new_directory(self, broker_id: int) -> Uuid:
        """The only directory of the broker; a broker with several reports later where it put the replica (KIP-858)."""
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
    # The broker has not reported it yet, or its registration is older than directory ids.
    return directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or (not directories and directory != DIRECTORY_LOST)


def elr_enabled(view: View) -> bool:
    return view.features().get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1


def cluster_layers(view: View, static: Mapping[str, str], node_id: int | None = None) -> BrokerLayers:
    """Broker configs as the controller sees them: its own properties file is used in place of theirs.

    With `node_id`, the dynamic configs of the controller's own node precede the cluster-wide defaults, as in Kafka.
    """
    own = {} if node_id is None else view.broker_configs(node_id)
    return BrokerLayers(own, view.broker_configs(None), static)


class TopicElectionRules:
    """The election rules of every topic, each looked up once."""

    def __init__(
        self, view: View, settings: ControllerSettings, unconfirmed: UnconfirmedFailures | None = None
    ) -> None:
        layers = cluster_layers(view, settings.static, settings.node_id)
        self._view = view
        self._elr = elr_enabled(view)
        self._metadata_version = view.metadata_version
        self._min_insync = broker_value(MIN_INSYNC_REPLICAS, layers)
        self._unclean = broker_value(UNCLEAN_LEADER_ELECTION, layers)
        self._known: dict[str, ElectionRules] = {}
        self._unconfirmed = unconfirmed or UnconfirmedFailures()

    def of(self, topic: str) -> ElectionRules:
        rules = self._known.get(topic)
        if rules is None:
            own = self._view.topic_configs(topic)
            min_insync = _own_value(own, MIN_INSYNC_REPLICAS, self._min_insync)
            unclean = _own_value(own, UNCLEAN_LEADER_ELECTION, self._unclean)
            min_isr = min_insync if isinstance(min_insync, int) else 1
            rules = ElectionRules(min_isr, self._elr, unclean is True, self._metadata_version)
            self._known[topic] = rules
        return rules

    def of_partition(self, topic: str, partition: PartitionInfo) -> ElectionRules:
        """The rules of the topic, without unclean elections while the failure of a better leader is unconfirmed."""
        rules = self.of(topic)
        return replace(rules, unclean=False) if rules.unclean and self._unconfirmed.affect(partition) else rules


def _own_value(own: Mapping[str, str], key: str, otherwise: ConfigValue | None) -> ConfigValue | None:
    if key not in own:
        return otherwise
    try:
        return TOPIC_KEYS[key].parse(own[key])
    except ConfigError:
        return otherwise
