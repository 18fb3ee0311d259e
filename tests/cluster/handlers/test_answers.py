"""Every API in every version that is advertised: our node answers as Apache Kafka does, or says why not."""

from __future__ import annotations

import pytest

from cluster.handlers import transcripts
from cluster.handlers.scripts import running
from cluster.handlers.talk import Target


@pytest.mark.xdist_group("our_node")
@pytest.mark.parametrize("module", running.modules())
def test_our_node_answers_as_kafka_does(module: str, our_node: Target) -> None:
    written = transcripts.load(module)
    said = transcripts.of_notes(running.run(module, our_node), kafka=False)
    if transcripts.REWRITE:
        written = transcripts.merged(written, said, kafka=False)
        transcripts.save(module, written)
    differences = transcripts.differences(written, said, transcripts.ours)
    assert not differences, f"our node differs from {module}.txt:\n{differences}"
