"""Apache Kafka really gives the answers that our node is held to (tests/cluster/handlers)."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from cluster.handlers import transcripts
from cluster.handlers.scripts import running
from cluster.handlers.talk import SETTINGS, Target
from strandline.launch.ports import any_free
from strandline.launch.readiness import counts_itself
from strandline.node.config import Config
from strandline.node.storage import FormatPlan, format_storage
from strandline.runtime.disk import SystemDisk

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def kafka_node(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Apache Kafka on a directory that we formatted, so that both finalize the same features."""
    directory = tmp_path_factory.mktemp("kafka")
    port = any_free(HOST, set())
    controller_port = any_free(HOST, {port})
    path = directory / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "log.dirs": f"{directory}/data",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **SETTINGS,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    wall_ms = int(time.time() * 1000)
    plan = FormatPlan(standalone=True)
    format_storage(Config.load(str(path)), CLUSTER, plan, disk=SystemDisk(), random=random.Random(5), wall_ms=wall_ms)
    log = directory / "kafka.log"
    with log.open("w") as output:
        command = ["java", "-Xmx512m", "-cp", kafka_classpath, "kafka.Kafka", str(path)]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 60
        while not counts_itself(HOST, port, 1):
            assert server.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.1)
        yield Target(HOST, port, controller_port, 1, is_kafka=True)
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("module", running.modules())
def test_kafka_gives_the_answers_that_are_written_down(module: str, kafka_node: Target) -> None:
    written = transcripts.load(module)
    said = transcripts.of_notes(running.run(module, kafka_node), kafka=True)
    if transcripts.REWRITE:
        written = transcripts.merged(written, said, kafka=True)
        transcripts.save(module, written)
    differences = transcripts.differences(written, said, transcripts.kafkas)
    assert not differences, f"Apache Kafka differs from {module}.txt:\n{differences}"
