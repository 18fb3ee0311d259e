"""What settings and features say about partitions, seen by the active controller at the moment of a decision."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from strandline.controller.partitions import ElectionRules
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
from strandline.metadata.effective_configs import BrokerLayers, broker_value
from strandline.metadata.features import ELIGIBLE_LEADER_REPLICAS
from strandline.metadata.values import PartitionInfo
from strandline.metadata.views import View
from strandline.model.config_keys.key import ConfigError, ConfigValue
from strandline.model.config_keys.topic import TOPIC_KEYS

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


def elr_enabled(view: View) -> bool:
    return view.features().get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1


def cluster_layers(view: View, static: Mapping[str, str], node_id: int | None = None) -> BrokerLayers:
    """The controller does not know each broker's file; its own file and the cluster-wide defaults stand in.

    With `node_id`, what was set for the controller's own node counts before the cluster-wide defaults, as in Kafka.
    """
    own = {} if node_id is None else view.broker_configs(node_id)
    return BrokerLayers(own, view.broker_configs(None), static)


class TopicElectionRules:
    """The election rules of every topic, looked up once per decision."""

    def __init__(
        self,
        view: View,
        static: Mapping[str, str],
        node_id: int | None = None,
        doubts: UnconfirmedFailures | None = None,
    ) -> None:
        layers = cluster_layers(view, static, node_id)
        self._view = view
        self._elr = elr_enabled(view)
        self._metadata_version = view.metadata_version
        self._min_insync = broker_value(MIN_INSYNC_REPLICAS, layers)
        self._unclean = broker_value(UNCLEAN_LEADER_ELECTION, layers)
        self._known: dict[str, ElectionRules] = {}
        self._doubts = doubts or UnconfirmedFailures()

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
        """Those of its topic; but nobody is elected uncleanly while it is in doubt whether somebody better is dead."""
        rules = self.of(topic)
        return replace(rules, unclean=False) if rules.unclean and self._doubts.about(partition) else rules


def _own_value(own: Mapping[str, str], key: str, otherwise: ConfigValue | None) -> ConfigValue | None:
    if key not in own:
        return otherwise
    try:
        return TOPIC_KEYS[key].parse(own[key])
    except ConfigError:
        return otherwise
