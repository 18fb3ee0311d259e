"""Every API in every version that is advertised: our node answers as Apache Kafka does, or says why not."""

from __future__ import annotations

import pytest

from cluster.handlers import expected_responses
from cluster.handlers.scripts import running
from cluster.handlers.talk import Target, Wire
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest


@pytest.mark.xdist_group("our_node")
@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_every_api_that_is_advertised_has_a_script(controller: bool, our_node: Target) -> None:
    wire = Wire(our_node.host, our_node.controller_port if controller else our_node.port)
    advertised = {ApiKey(each.api_key) for each in wire.ask(ApiVersionsRequest(), 0).api_keys}
    wire.close()
    scripts = [each for module in running.modules() for each in running.scripts_of(module)]
    assert {each.key for each in scripts if each.controller == controller} == advertised


@pytest.mark.xdist_group("our_node")
@pytest.mark.parametrize("module", running.modules())
def test_our_node_answers_as_kafka_does(module: str, our_node: Target, rewrite: bool) -> None:
    written = expected_responses.load(module)
    said = expected_responses.of_notes(running.run(module, our_node), kafka=False)
    if rewrite:
        written = expected_responses.merged(written, said, kafka=False)
        expected_responses.save(module, written)
    differences = expected_responses.differences(written, said, expected_responses.ours)
    assert not differences, f"our node differs from {module}.txt:\n{differences}"
