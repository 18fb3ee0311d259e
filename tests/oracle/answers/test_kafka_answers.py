"""Apache Kafka really gives the answers that our node is held to (tests/cluster/handlers)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.handlers import expected_responses
from cluster.handlers.scripts import running
from cluster.handlers.talk import SETTINGS, Target
from oracle.kafka_server import kafka_server, node_of_its_own
from strandline.node.config import Config


@pytest.fixture(scope="module")
def kafka_node(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Apache Kafka on a directory that we formatted, so that both finalize the same features."""
    properties = node_of_its_own(tmp_path_factory.mktemp("kafka"), SETTINGS)
    ports = {listener.controller: listener.port for listener in Config.load(str(properties)).listeners}
    with kafka_server(kafka_classpath, properties):
        yield Target("127.0.0.1", ports[False], ports[True], 1, is_kafka=True)


@pytest.mark.slow
@pytest.mark.xdist_group("kafka_node")
@pytest.mark.parametrize("module", running.modules())
def test_kafka_gives_the_answers_that_are_written_down(module: str, kafka_node: Target, rewrite: bool) -> None:
    written = expected_responses.load(module)
    said = expected_responses.of_notes(running.run(module, kafka_node), kafka=True)
    if rewrite:
        written = expected_responses.merged(written, said, kafka=True)
        expected_responses.save(module, written)
    differences = expected_responses.differences(written, said, expected_responses.kafkas)
    assert not differences, f"Apache Kafka differs from {module}.txt:\n{differences}"
