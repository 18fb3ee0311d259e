"""The output of Kafka's tools, parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"
ELECTION = f"{TOOLS}.LeaderElectionCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
FEATURES = f"{TOOLS}.FeatureCommand"
CLUSTER = f"{TOOLS}.ClusterTool"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
DUMP = f"{TOOLS}.DumpLogSegments"


def status(lines: Iterable[str]) -> dict[str, Any]:
    """`describe --status` of the quorum tool."""
    found: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(":")
        text = value.strip()
        found[name] = text if name == "ClusterId" else json.loads(text)
    return found


def rows(lines: list[str]) -> list[dict[str, str]]:
    """A table with a header line: `describe --replication`, `list-endpoints`."""
    headings = lines[0].split()
    return [dict(zip(headings, line.split(), strict=True)) for line in lines[1:]]


def fields(line: str) -> dict[str, str]:
    """`Topic: x<tab>Partition: 0` as a mapping."""
    return {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in line.split("\t"))}


def partitions(lines: list[str]) -> dict[int, dict[str, Any]]:
    """`--describe` of one topic: its partitions, with lists of broker ids."""
    found = {}
    for line in lines[1:]:
        described: dict[str, Any] = dict(fields(line))
        for name in ("Replicas", "Isr", "Elr", "LastKnownElr"):
            described[name] = [int(each) for each in described.get(name, "").split(",") if each]
        found[int(described["Partition"])] = described
    return found


def dynamic_configs(output: str) -> dict[str, str]:
    """The `key=value sensitive=…` lines of the config tool."""
    found = (
        line.strip().split(" sensitive=")[0].partition("=") for line in output.splitlines() if " sensitive=" in line
    )
    return {key: value for key, _, value in found}
