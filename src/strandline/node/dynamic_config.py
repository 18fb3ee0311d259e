"""The broker configs in force now: the config file, overridden by the dynamic configs of committed metadata.

Handlers and periodic tasks read it each time, so an IncrementalAlterConfigs takes effect at once. Parsed values are
cached until `node/publisher` reports a change of the configs they depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.log.settings import LogSettings
from strandline.metadata.effective_configs import BrokerLayers, broker_value, effective_topic_config
from strandline.metadata.image import Image


class DynamicConfig:
    def __init__(self, node_id: int, static: Mapping[str, str], image: Image) -> None:
        self._node_id = node_id
        self._static = static
        self._image = image
        self._values: dict[str, Any] = {}
        self._log_settings: dict[tuple[tuple[str, str], ...], LogSettings] = {}
        """Settings by the topic's own configs: thousands of partitions share a handful of objects."""

    def on_change(self) -> None:
        """Drops cached values after a change of this broker's dynamic configs or of the cluster-wide defaults."""
        self._values.clear()
        self._log_settings.clear()

    def layers(self) -> BrokerLayers:
        view = self._image.committed
        return BrokerLayers(view.broker_configs(self._node_id), view.broker_configs(None), self._static)

    def get(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            value = self._values[key] = broker_value(key, self.layers())
            return value

    def log_settings(self, topic: str) -> LogSettings:
        own = self._image.committed.topic_configs(topic)
        key = tuple(sorted(own.items()))
        settings = self._log_settings.get(key)
        if settings is None:
            layers = self.layers()
            effective = effective_topic_config(own, layers.dynamic, layers.cluster, layers.static)
            settings = self._log_settings[key] = LogSettings.of(
                {**effective, "producer.id.expiration.ms": str(self.get("producer.id.expiration.ms"))}
            )
        return settings
