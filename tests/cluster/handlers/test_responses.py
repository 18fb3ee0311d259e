"""Every advertised API in every version: our node responds as Apache Kafka does, or the difference is explained."""

from __future__ import annotations

import pytest

from cluster.connection import Connection
from cluster.handlers import expected_responses, script_runner
from cluster.handlers.script_run import NodeAddress
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest


@pytest.mark.xdist_group("our_node")
@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_every_advertised_api_has_a_script(controller: bool, our_node: NodeAddress) -> None:
    connection = Connection(our_node.host, our_node.controller_port if controller else our_node.port)
    advertised = {ApiKey(each.api_key) for each in connection.call(ApiVersionsRequest(), 0).api_keys}
    connection.close()
    scripts = [each for module in script_runner.modules() for each in script_runner.scripts_of(module)]
    assert {each.key for each in scripts if each.controller == controller} == advertised


@pytest.mark.xdist_group("our_node")
@pytest.mark.parametrize("module", script_runner.modules())
def test_our_node_responds_as_kafka_does(module: str, our_node: NodeAddress, rewrite: bool) -> None:
    expected = expected_responses.load(module)
    actual = expected_responses.sections_of(script_runner.run_scripts(module, our_node), kafka=False)
    if rewrite:
        expected = expected_responses.merged(expected, actual, kafka=False)
        expected_responses.save(module, expected)
    differences = expected_responses.differences(expected, actual, expected_responses.ours)
    assert not differences, f"our node differs from {module}.txt:\n{differences}"
