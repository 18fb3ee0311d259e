"""Apache Kafka's tools read our metadata log and snapshots: equal records, and the same image."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from compat.java.jvm import Tools, java
from strandline.controller.controller import Controller
from strandline.controller.settings import ControllerSettings
from strandline.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from strandline.metadata.image import Image
from strandline.metadata.views import View
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from strandline.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from strandline.protocol.messages.producers import AllocateProducerIdsRequest
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from strandline.raft.disk.snapshots import write_bootstrap_checkpoint, write_first_voters
from strandline.raft.disk.storage import METADATA_PARTITION, MetadataStorage
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell.driver import Quorum
from strandline.raft.shell.replay import QuorumListener
from strandline.runtime.clock import SystemClock
from strandline.runtime.disk import SystemDisk
from strandline.runtime.network import SystemNetwork
from strandline.runtime.offload import ThreadOffload
from strandline.server.peers import PeerConnections

DIRECTORY = Uuid.of(77, 7777)
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@dataclass
class Written:
    log: Path
    snapshot: Path
    view: View
    end_offset: int


FEATURES = [
    Feature(name=name, min_supported_version=low, max_supported_version=high)
    for name, (low, high) in SUPPORTED_FEATURES.items()
]


class _Leading(QuorumListener):
    def __init__(self) -> None:
        self.reached = asyncio.Event()

    def on_leading(self, epoch: int) -> None:
        self.reached.set()


async def _register(controller: Controller, image: Image, incarnation: int) -> int:
    known = image.committed.broker(1)
    request = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="cluster",
        incarnation_id=Uuid.of(6, incarnation),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
        features=FEATURES,
        rack="r1",
        log_dirs=[DIRECTORY],
        previous_broker_epoch=-1 if known is None else known.epoch,
    )
    return (await controller.register_broker(request)).broker_epoch


async def _heartbeat(controller: Controller, image: Image, epoch: int, **wants: Any) -> bool:
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=epoch,
        current_metadata_offset=image.committed.offset - 1,
        cordoned_log_dirs=[],
        **wants,
    )
    return (await controller.broker_heartbeat(request)).should_shut_down


async def _set(controller: Controller, resource_type: int, name: str, key: str, value: str) -> None:
    setting = IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[setting]
    )
    await controller.incremental_alter_configs(IncrementalAlterConfigsRequest(resources=[resource]))


async def _topics(controller: Controller) -> None:
    configs = [
        CreatableTopicConfig(name="retention.ms", value="1000"),
        CreatableTopicConfig(name="min.insync.replicas", value="1"),
    ]
    topics = [
        CreatableTopic(name="alpha", num_partitions=3, replication_factor=1, configs=configs),
        CreatableTopic(name="gone", num_partitions=2, replication_factor=1),
    ]
    await controller.create_topics(CreateTopicsRequest(topics=topics))
    beta = CreatableTopic(name="beta", num_partitions=1, replication_factor=1)
    await controller.create_topics(CreateTopicsRequest(topics=[beta]))
    more = CreatePartitionsTopic(name="beta", count=4, assignments=None)
    await controller.create_partitions(CreatePartitionsRequest(topics=[more], timeout_ms=5000))
    await controller.delete_topics(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000))


async def _drive(controller: Controller, image: Image) -> None:
    """Registrations, topics, configs, producer ids, and a broker with a controlled shutdown and a restart."""
    listener = Listener(name="CONTROLLER", host="127.0.0.1", port=9093)
    await controller.register_controller(
        ControllerRegistrationRequest(
            controller_id=1, incarnation_id=Uuid.of(5, 55), listeners=[listener], features=FEATURES
        )
    )
    epoch = await _register(controller, image, 66)
    await _heartbeat(controller, image, epoch)
    await _topics(controller)
    await _set(controller, 2, "beta", "cleanup.policy", "compact")
    await _set(controller, 4, "", "log.segment.bytes", "1048576000")
    await _set(controller, 4, "1", "log.retention.ms", "5000")
    await _set(controller, 32, "group", "consumer.session.timeout.ms", "50000")
    await controller.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    while not await _heartbeat(controller, image, epoch, want_shut_down=True):
        pass
    await _heartbeat(controller, image, await _register(controller, image, 67))


async def _write(home: Path) -> Written:
    disk, clock, offload, image = SystemDisk(), SystemClock(), ThreadOffload(1), Image()
    voters = VoterSet((Voter(1, DIRECTORY, (("CONTROLLER", Endpoint("127.0.0.1", 9093)),)),))
    partition = home / str(METADATA_PARTITION)
    write_first_voters(disk, str(partition), voters, wall_ms=clock.wall_ms())
    write_bootstrap_checkpoint(disk, str(home), bootstrap_records(), metadata_version=30, wall_ms=clock.wall_ms())
    storage = MetadataStorage.open(disk, str(home), wall_ms=clock.wall_ms())
    voter = Quorum(
        storage,
        image,
        clock,
        offload,
        PeerConnections(SystemNetwork(), "unused"),
        Random(4),
        me=voters.voters[0],
        cluster_id="cluster",
        is_controller=True,
        settings=QuorumSettings(),
    )
    leading = _Leading()
    voter.register(leading)
    await voter.start()
    settings = ControllerSettings(node_id=1, cluster_id="cluster")
    controller = Controller(image, voter, clock, Random(3), settings, bootstrap_records())
    run = asyncio.create_task(voter.run())
    await leading.reached.wait()
    await controller.activate()
    await _drive(controller, image)
    taken = await voter.write_snapshot()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await voter.close()
    offload.close()
    assert isinstance(taken, SnapshotId)
    return Written(
        partition / "00000000000000000000.log", partition / taken.file_name, image.committed, taken.end_offset
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return asyncio.run(_write(tmp_path_factory.mktemp("metadata")))


def dump(tools: Tools, file: Path) -> list[str]:
    """The lines of DumpLogSegments, which must report no error."""
    done = tools.run(DUMP, "--cluster-metadata-decoder", "--files", str(file))
    assert done.code == 0, done.output
    lines = done.output.splitlines()
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert batches
    assert all("isvalid: true" in line for line in batches)
    assert "ound" not in re.sub(r"payload:.*", "", done.output), "DumpLogSegments reports mismatches with 'Found …'"
    return lines


def payloads(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line.partition("payload: ")[2]) for line in lines if "payload: " in line]


def test_every_record_of_our_log_is_decoded_and_every_batch_valid(written: Written, tools: Tools) -> None:
    lines = dump(tools, written.log)
    kinds = [payload["type"] for payload in payloads(lines)]
    features = kinds[1 : kinds.index("CONFIG_RECORD")]
    assert kinds[0] == "BEGIN_TRANSACTION_RECORD" and set(features) == {"FEATURE_LEVEL_RECORD"}
    assert kinds[len(features) + 1 : len(features) + 3] == ["CONFIG_RECORD", "END_TRANSACTION_RECORD"]
    assert kinds.count("TOPIC_RECORD") == 3
    assert kinds.count("REMOVE_TOPIC_RECORD") == 1
    assert kinds.count("PARTITION_CHANGE_RECORD") == 2 * 7
    assert any("LeaderChange" in line for line in lines)
    assert any("KRaftVoters" in line for line in lines)
    last = [line for line in lines if line.startswith("| offset:")][-1]
    assert last.startswith(f"| offset: {written.end_offset - 1} ")


def test_our_snapshot_begins_with_its_header_and_ends_with_its_footer(written: Written, tools: Tools) -> None:
    lines = dump(tools, written.snapshot)
    assert f"Snapshot end offset: {written.end_offset}, epoch: 1" in lines[1]
    records = [line for line in lines if line.startswith("| offset:")]
    assert "SnapshotHeader" in records[0]
    assert "SnapshotFooter" in records[-1]
    assert payloads(lines)[0] == {
        "type": "FEATURE_LEVEL_RECORD",
        "version": 0,
        "data": {"name": "metadata.version", "featureLevel": 30},
    }


def tree(classpath: str, file: Path) -> dict[str, list[str]]:
    """The whole tree of the shell, by the first two names of a path."""
    done = java(classpath, "org.apache.kafka.shell.MetadataShell", "--snapshot", str(file), "tree", "/image")
    assert done.returncode == 0, done.stderr[-2000:]
    sections: dict[str, list[str]] = {}
    first = second = ""
    for line in done.stdout.splitlines():
        if "SnapshotFileReader" in line:
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            first = line.rstrip(":")
            continue
        sections.setdefault(first, []).append(line[2:])
        if depth == 2:
            second = f"{first}/{line.strip().rstrip(':')}"
        else:
            sections.setdefault(second, []).append(line[4:])
    return sections


def expected_topics(view: View) -> list[str]:
    lines = []
    for topic in view.topics():
        lines.append(f"{topic.name}:")
        for index, p in enumerate(view.partitions(topic.id)):
            lines.append(f"  {index}:")
            lines.append(
                f"    PartitionRegistration(replicas={list(p.replicas)}, "
                f"directories=[{', '.join(map(str, p.directories))}], isr={list(p.isr)}, "
                f"removingReplicas=[], addingReplicas=[], elr={list(p.elr)}, lastKnownElr={list(p.last_known_elr)}, "
                f"leader={p.leader}, leaderRecoveryState=RECOVERED, leaderEpoch={p.leader_epoch}, "
                f"partitionEpoch={p.partition_epoch})"
            )
        lines += ["  id:", f"    {topic.id}", "  name:", f"    {topic.name}"]
    return lines


def expected_image(view: View) -> dict[str, list[str]]:
    broker = view.broker(1)
    assert broker is not None
    return {
        "topics/byName": expected_topics(view),
        "configs": [
            "BROKER:",
            "  log.segment.bytes:",
            "    1048576000",
            "  min.insync.replicas:",
            "    1",
            "BROKER:1:",
            "  log.retention.ms:",
            "    5000",
            "GROUP:group:",
            "  consumer.session.timeout.ms:",
            "    50000",
            "TOPIC:alpha:",
            "  min.insync.replicas:",
            "    1",
            "  retention.ms:",
            "    1000",
            "TOPIC:beta:",
            "  cleanup.policy:",
            "    compact",
        ],
        "features": [
            "finalized_eligible.leader.replicas.version:",
            "  1",
            "finalized_group.version:",
            "  1",
            "finalized_transaction.version:",
            "  2",
            "metadataVersion:",
            "  Optional[4.3-IV0]",
        ],
        "producerIds": ["nextProducerId:", "  1000"],
    }


@pytest.mark.parametrize("of", ["snapshot", "log"])
def test_the_metadata_shell_shows_our_image(written: Written, kafka_classpath: str, of: str) -> None:
    file = written.snapshot if of == "snapshot" else written.log
    expected = expected_image(written.view)
    # The shell may run its command before it has applied the last batch of the file.
    for _ in range(15):
        shown = tree(kafka_classpath, file)
        seen = {section: shown.get(section) for section in expected}
        if seen == expected:
            break
    assert seen == expected
