"""Metrics in Prometheus' text exposition format.

`kafka.server:type=ReplicaManager,name=LeaderCount` becomes `kafka_server_replicamanager_leadercount`, by the rule of
the usual exporters of Kafka's metrics, so that existing dashboards work. Windows become quantiles and the suffixes
count, mean and max.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

_QUANTILES: Final = {"50thPercentile": "0.5", "99thPercentile": "0.99"}
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@lru_cache(maxsize=4096)  # more than there are metrics
def sample_name(metric: str) -> str:
    """The sample name of a metric named like Kafka's MBeans, with its tags as labels."""
    domain, _, properties = metric.partition(":")
    tags = dict(pair.partition("=")[::2] for pair in properties.split(","))
    name = "_".join(filter(None, (domain, tags.pop("type", ""), tags.pop("name", ""))))
    attribute = tags.pop("attribute", "")
    if attribute in _QUANTILES:
        tags["quantile"] = _QUANTILES[attribute]
    elif attribute:
        name += f"_{attribute}"
    name = _NOT_IN_A_NAME.sub("_", name).lower()
    labels = ",".join(f'{_NOT_IN_A_NAME.sub("_", key)}="{value.translate(_ESCAPED)}"' for key, value in tags.items())
    return f"{name}{{{labels}}}" if labels else name


def render_exposition(numbers: Mapping[str, float]) -> str:
    """Renders a snapshot of metrics; lines of one name are adjacent."""
    samples = {sample_name(metric): value for metric, value in numbers.items()}
    in_order = sorted(samples, key=lambda name: name.partition("{"))
    return "".join(f"{name} {float(samples[name]):.15g}\n" for name in in_order)


def parse_exposition(text: str) -> dict[str, float]:
    """Parses rendered metrics into values by sample name."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}
