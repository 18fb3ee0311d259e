from __future__ import annotations

import pytest

from strandline.model.ids import Endpoint
from strandline.node.config import Config, InvalidConfig
from strandline.runtime.disk import SystemDisk

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/data/a,/data/b",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/data",
}
# As it comes with Apache Kafka.
SHIPPED = b"""
# The role of this server.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def problems(properties: dict[str, str]) -> str:
    with pytest.raises(InvalidConfig) as error:
        Config.of(properties)
    return "\n".join(error.value.problems)


def test_the_properties_file_that_comes_with_kafka_is_accepted(tmp_path: object) -> None:
    path = f"{tmp_path}/server.properties"
    with open(path, "wb") as file:
        file.write(SHIPPED)
    config = Config.load(path, {"num.io.threads": "4"}, disk=SystemDisk())
    assert config.warnings == ()
    assert (config.node.node_id, config.node.is_broker, config.node.is_controller) == (1, True, True)
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.server.handlers == 4
    broker, controller = config.listeners
    assert (broker.name, broker.host, broker.port, broker.controller, broker.inter_broker) == (
        "PLAINTEXT",
        "",
        9092,
        False,
        True,
    )
    assert broker.advertised(9092) == Endpoint("localhost", 9092)
    assert (controller.name, controller.controller, controller.security_protocol) == ("CONTROLLER", True, "PLAINTEXT")
    assert config.static["broker.id"] == "1"
    assert config.source == path


def test_a_missing_file_is_named_in_the_error() -> None:
    with pytest.raises(InvalidConfig, match=r"/nowhere/server\.properties.*\n.*cannot be read"):
        Config.load("/nowhere/server.properties")


def test_slices_are_typed() -> None:
    config = Config.of({**COMBINED, "broker.rack": "r1", "metadata.log.dir": "/meta"})
    assert config.node.rack == "r1"
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.metadata_log_dir == "/meta"
    assert config.all_directories == ("/data/a", "/data/b", "/meta")
    assert config.quorum.bootstrap_servers == (Endpoint("localhost", 9093),)
    assert config.integer("num.partitions") == 1
    assert config.boolean("auto.create.topics.enable") is True
    assert config.value("log.retention.ms") is None
    assert [spec.name for spec in config.listener_specs() if spec.controller] == ["CONTROLLER"]


def test_the_metadata_log_is_in_the_first_directory_by_default() -> None:
    assert Config.of(COMBINED).metadata_log_dir == "/data/a"


def test_an_empty_config_lacks_three_required_keys() -> None:
    message = problems({})
    for name in ("process.roles", "node.id", "controller.listener.names"):
        assert f"{name} is missing" in message


def test_all_problems_are_reported_together() -> None:
    message = problems({**COMBINED, "num.io.threads": "0", "log.cleanup.policy": "burn", "broker.id": "7"})
    assert "num.io.threads=0: must be at least 1" in message
    assert "log.cleanup.policy=burn: items must be among compact, delete" in message
    assert "broker.id=7 and node.id=1 differ" in message


def test_a_password_does_not_appear_in_an_error() -> None:
    assert "hunter2" not in problems({**COMBINED, "ssl.keystore.password": "hunter2", "num.io.threads": "x"})


def test_broker_id_is_accepted_for_node_id() -> None:
    older = {name: value for name, value in COMBINED.items() if name != "node.id"}
    assert Config.of({**older, "broker.id": "4"}).node.node_id == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"listeners": "PLAINTEXT://localhost:9092"}, "does not listen on CONTROLLER"),
        ({"listeners": "CONTROLLER://localhost:9093"}, "a broker needs a listener of its own"),
        ({"listeners": "localhost:9092"}, "'localhost:9092' is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:99999,CONTROLLER://a:9093"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2,CONTROLLER://a:3"}, "PLAINTEXT is used twice"),
        ({"listeners": "PLAINTEXT://a:1,CONTROLLER://a:1"}, "share port 1"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "set advertised.listeners=PLAINTEXT://<a host"),
        ({"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2,EXTRA://a:3"}, "EXTRA has no security protocol"),
        ({"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2,SSL://a:3"}, "SSL uses SSL, which is not served yet"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "CONTROLLER has no security protocol"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"},
            "PLAINTEXT uses SASL_PLAINTEXT, which is not served yet",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "PLAINTEXT names TLS"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "is not NAME:PROTOCOL"),
        ({"advertised.listeners": "OTHER://a:1"}, "OTHER is not among listeners"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "CONTROLLER is not among the advertised listeners"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "exclude each other",
        ),
        ({"controller.quorum.bootstrap.servers": ""}, "the addresses of the controllers are missing"),
        ({"controller.quorum.bootstrap.servers": "here"}, "'here' is not host:port"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "node.id=1 is not among the voters"),
        ({"controller.quorum.voters": "1@a:1,1@b:2"}, "an id appears twice"),
        ({"controller.quorum.voters": "localhost:9093"}, "is not id@host:port"),
        ({"cordoned.log.dirs": "/elsewhere"}, "/elsewhere is not among log.dirs"),
        ({"cordoned.log.dirs": "*,/data/a"}, "must be the only entry"),
        ({"log.roll.ms": "0"}, "log.roll.ms=0 must be at least 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0 must be at least 1, or -1 for ever"),
        ({"replica.fetch.wait.max.ms": "40000"}, "must not be greater than replica.socket.timeout.ms=30000"),
        ({"queued.max.request.bytes": "1000"}, "must not be smaller than socket.request.max.bytes"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "at least 1 MiB"),
        ({"max.connections.per.ip": "0"}, "rejects every connection"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "is not host:count"),
        ({"group.consumer.heartbeat.interval.ms": "20000"}, "group.consumer.max.heartbeat.interval.ms=15000"),
        ({"group.share.assignors": "simple,other"}, "exactly one"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "classic cannot be left out"),
        ({"authorizer.class.name": "org.example.Guard"}, "every client may do everything"),
        ({"remote.log.storage.system.enable": "true"}, "tiered storage is not served"),
    ],
)
def test_an_invalid_config_is_rejected(change: dict[str, str], why: str) -> None:
    assert why in problems({**COMBINED, **change})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2"}, "this node is only a broker"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "node.id=2 is a voter, but this node is only a broker"),
        ({"controller.quorum.auto.join.enable": "true"}, "needs controller in process.roles"),
        ({"process.roles": "controller"}, "this node is only a controller"),
        ({"process.roles": "zookeeper"}, "among broker, controller"),
    ],
)
def test_roles_and_listeners_must_agree(change: dict[str, str], why: str) -> None:
    assert why in problems({**BROKER, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
        {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
        {"listeners": "plaintext://localhost:9092,controller://localhost:9093"},
        {"controller.quorum.voters": "1@localhost:9093,2@localhost:9094", "controller.quorum.bootstrap.servers": ""},
        {"message.max.bytes": "50000000"},
        {"rsm.config.anything": "1", "authorizer.class.name": ""},
        {"cordoned.log.dirs": "*"},
        {"queued.max.request.bytes": "-1"},
    ],
)
def test_a_valid_config_is_accepted(change: dict[str, str]) -> None:
    config = Config.of({**COMBINED, **change})
    assert config.node.node_id == 1
    assert config.warnings == ()


def test_a_listener_on_every_interface_is_advertised_by_hostname() -> None:
    config = Config.of({**COMBINED, "listeners": "PLAINTEXT://:0,CONTROLLER://:9093"}, hostname="box")
    assert config.listeners[0].advertised(40_001) == Endpoint("box", 40_001)


def test_unknown_keys_are_kept_and_warned_about_once() -> None:
    config = Config.of({**COMBINED, "num.io.thread": "3", "zookeeper.connect": "z:2181", "my.plugin": "x"})
    assert config.static["my.plugin"] == "x"
    assert config.warnings == (
        "num.io.thread is not a known key and has no effect; did you mean num.io.threads?",
        "zookeeper.connect belongs to Kafka before 4.0 and has no effect; remove it",
        "my.plugin is not a known key and has no effect",
    )


def test_a_throttle_in_a_file_is_warned_about() -> None:
    config = Config.of({**COMBINED, "leader.replication.throttled.rate": "1000"})
    assert len(config.warnings) == 1 and "has no effect in a file" in config.warnings[0]


def test_known_keys_without_effect_are_warned_about() -> None:
    config = Config.of({**COMBINED, "metric.reporters": "org.example.Reporter", "broker.heartbeat.interval.ms": "5000"})
    assert [warning.split(" ")[0] for warning in config.warnings] == [
        "broker.heartbeat.interval.ms",
        "metric.reporters",
    ]


def test_limits_that_are_infinite_in_kafka_are_finite_unless_the_file_sets_them() -> None:
    assert Config.of(COMBINED).server.max_connections < 2**31 - 1
    spoken = Config.of(
        {**COMBINED, "max.connections": "2147483647", "max.connections.per.ip.overrides": "10.0.0.7:200, ::1:5"}
    )
    assert spoken.server.max_connections == 2**31 - 1
    assert spoken.server.max_connections_per_ip_overrides == {"10.0.0.7": 200, "::1": 5}


def test_strandline_keys_reach_the_server_settings() -> None:
    config = Config.of({**COMBINED, "strandline.parked.max.requests": "7"})
    assert config.server.parked_max_requests == 7
    assert "strandline.parked.max.requests=0" in problems({**COMBINED, "strandline.parked.max.requests": "0"})
