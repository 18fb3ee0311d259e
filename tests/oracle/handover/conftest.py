"""The two stories that the tests of this directory look at: a directory founded by us, and one founded by Kafka."""

from __future__ import annotations

import pytest

from compat.java.conftest import programs, tools
from compat.java.jvm import Tools
from oracle.handover.story import SETTINGS, Story
from oracle.kafka_server import CLUSTER_ID, node_of_its_own

__all__ = ["programs", "tools"]

# Each hand-over, and whether the last owner was killed.
OURS_FIRST = {
    "Kafka takes over what we closed": False,
    "we take over what Kafka closed": False,
    "Kafka takes over after we were killed": True,
    "we take over after Kafka was killed": True,
}
KAFKA_FIRST = {"we take over what Kafka founded": False, "Kafka takes back what we closed": False}


@pytest.fixture(scope="session")
def founded_by_us(kafka_classpath: str, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Story:
    properties = node_of_its_own(tmp_path_factory.mktemp("ours-first"), SETTINGS)
    story = Story(properties, kafka_classpath, tools)
    to_kafka, to_us, to_kafka_after_kill, to_us_after_kill = OURS_FIRST
    story.ours("")
    story.keep_copy("closed-by-us")
    story.kafka(to_kafka)
    story.ours(to_us, ending="kill")
    story.keep_copy("killed")
    story.kafka(to_kafka_after_kill, ending="kill")
    story.ours(to_us_after_kill)
    return story


@pytest.fixture(scope="session")
def founded_by_kafka(kafka_classpath: str, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Story:
    home = tmp_path_factory.mktemp("kafka-first")
    settings = {**SETTINGS, "log.dirs": f"{home / 'one'},{home / 'two'}"}
    properties = node_of_its_own(home, settings, formatted=False)
    # A quorum named in the file (kraft.version 0), as in most directories that are about; ours is in the metadata log.
    properties.write_text(
        properties.read_text().replace("controller.quorum.bootstrap.servers=", "controller.quorum.voters=1@")
    )
    done = tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    assert done.code == 0, done.output
    story = Story(properties, kafka_classpath, tools)
    to_us, back = KAFKA_FIRST
    story.kafka("")
    story.ours(to_us)
    story.kafka(back)
    return story
