"""Two directories served by our node and by Apache Kafka in turn: one formatted by us, one formatted by Kafka."""

from __future__ import annotations

import pytest

from compat.java.jvm import Tools
from oracle.handover.handovers import SETTINGS, Handovers
from oracle.kafka_server import CLUSTER_ID, write_node_properties

# Each handover, and whether the previous server was killed.
OURS_FIRST = {
    "Kafka after our clean stop": False,
    "ours after Kafka's clean stop": False,
    "Kafka after ours was killed": True,
    "ours after Kafka was killed": True,
}
KAFKA_FIRST = {"ours on Kafka's directory": False, "Kafka again after our clean stop": False}


@pytest.fixture(scope="session")
def formatted_by_us(kafka_classpath: str, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Handovers:
    properties = write_node_properties(tmp_path_factory.mktemp("ours-first"), SETTINGS)
    handovers = Handovers(properties, kafka_classpath, tools)
    to_kafka, to_us, to_kafka_after_kill, to_us_after_kill = OURS_FIRST
    handovers.ours("")
    handovers.keep_copy("closed-by-us")
    handovers.kafka(to_kafka)
    handovers.ours(to_us, ending="kill")
    handovers.keep_copy("killed")
    handovers.kafka(to_kafka_after_kill, ending="kill")
    handovers.ours(to_us_after_kill)
    return handovers


@pytest.fixture(scope="session")
def formatted_by_kafka(kafka_classpath: str, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Handovers:
    home = tmp_path_factory.mktemp("kafka-first")
    settings = {**SETTINGS, "log.dirs": f"{home / 'one'},{home / 'two'}"}
    properties = write_node_properties(home, settings, formatted=False)
    # Static voters (kraft.version 0), as in most existing directories; ours has its voters in the metadata log.
    properties.write_text(
        properties.read_text().replace("controller.quorum.bootstrap.servers=", "controller.quorum.voters=1@")
    )
    done = tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    assert done.code == 0, done.output
    handovers = Handovers(properties, kafka_classpath, tools)
    to_us, back = KAFKA_FIRST
    handovers.kafka("")
    handovers.ours(to_us)
    handovers.kafka(back)
    return handovers
