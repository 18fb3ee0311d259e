"""Apache Kafka returns the responses that our node is compared with (tests/cluster/handlers/responses)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.handlers import expected_responses, script_runner
from cluster.handlers.script_run import SETTINGS, NodeAddress
from oracle.kafka_server import kafka_server, write_node_properties
from strandline.node.config import Config


@pytest.fixture(scope="module")
def kafka_node(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAddress]:
    """Apache Kafka on a directory that we formatted, so that both nodes finalize the same features."""
    properties = write_node_properties(tmp_path_factory.mktemp("kafka"), SETTINGS)
    ports = {listener.controller: listener.port for listener in Config.load(str(properties)).listeners}
    with kafka_server(kafka_classpath, properties):
        yield NodeAddress("127.0.0.1", ports[False], ports[True], 1, is_kafka=True)


@pytest.mark.slow
@pytest.mark.xdist_group("kafka_node")
@pytest.mark.parametrize("module", script_runner.modules())
def test_kafka_returns_the_recorded_responses(module: str, kafka_node: NodeAddress, rewrite: bool) -> None:
    expected = expected_responses.load(module)
    actual = expected_responses.sections_of(script_runner.run_scripts(module, kafka_node), kafka=True)
    if rewrite:
        expected = expected_responses.merged(expected, actual, kafka=True)
        expected_responses.save(module, expected)
    differences = expected_responses.differences(expected, actual, expected_responses.kafkas)
    assert not differences, f"Apache Kafka differs from {module}.txt:\n{differences}"
