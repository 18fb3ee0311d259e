from __future__ import annotations

from pathlib import Path

import pytest

from strandline.launch.cluster_state import BROKER, CONTROLLER, NodeState
from strandline.launch.errors import LaunchError
from strandline.launch.formatting import metadata_directory
from strandline.launch.server_properties import check_settings, node_properties, write_properties
from strandline.node.config import Config
from strandline.node.properties_file import parse_properties


def node(number: int) -> NodeState:
    return NodeState(number, None, "127.0.0.1", 9091 + number, 19091 + number, f"/data/node-{number}", "/data/log")


def test_the_replication_factor_is_the_number_of_brokers_up_to_three() -> None:
    alone = node_properties(node(1), [node(1)], {})
    several = node_properties(node(2), [node(number) for number in range(1, 5)], {})
    assert not any(key.startswith(("offsets.topic.", "transaction.state.log.")) for key in several)
    assert several["controller.quorum.bootstrap.servers"].count(",") == 3
    assert (alone["default.replication.factor"], several["default.replication.factor"]) == ("1", "3")


def test_brokers_and_controllers_get_the_listeners_of_their_roles() -> None:
    broker = NodeState(1, None, "127.0.0.1", 9092, None, "/data/node-1", "/data/log", BROKER)
    controller = NodeState(2, None, "127.0.0.1", None, 9093, "/data/node-2", "/data/log", CONTROLLER)
    for each, roles, listeners in (
        (broker, ("broker",), ["PLAINTEXT"]),
        (controller, ("controller",), ["CONTROLLER"]),
        (node(3), ("broker", "controller"), ["PLAINTEXT", "CONTROLLER"]),
    ):
        properties = node_properties(each, [broker, controller, node(3)], {})
        config = Config.of(properties)
        assert config.node.roles == roles and [listener.name for listener in config.listeners] == listeners
        assert properties["controller.quorum.bootstrap.servers"] == "127.0.0.1:9093,127.0.0.1:19094"
        assert properties["default.replication.factor"] == "2"


def test_settings_override_the_properties_of_the_launcher() -> None:
    properties = node_properties(node(1), [node(1)], {"num.partitions": "7", "default.replication.factor": "2"})
    config = Config.of(properties)
    assert (config.node.node_id, config.log_dirs) == (1, ("/data/node-1",))
    assert (properties["num.partitions"], properties["default.replication.factor"]) == ("7", "2")


@pytest.mark.parametrize("key", ["listeners", "node.id", "process.roles", "controller.quorum.voters"])
def test_keys_that_the_launcher_sets_cannot_be_overridden(key: str) -> None:
    with pytest.raises(LaunchError, match="strandline server"):
        check_settings({"num.partitions": "1", key: "x"})


def test_the_written_file_is_parsed_back(tmp_path: Path) -> None:
    path = str(tmp_path / "server.properties")
    properties = {"a.b": " leading blank", "path": "C:\\data", "text": "über\n#zwei"}
    write_properties(path, properties)
    assert parse_properties(Path(path).read_bytes()) == properties
    assert Path(path).read_text().startswith("# Written by `strandline up`")


def test_the_metadata_directory_follows_metadata_log_dir() -> None:
    assert metadata_directory({"log.dirs": "/a, /b"}) == "/a"
    assert metadata_directory({"log.dirs": "/a,/b", "metadata.log.dir": "/m"}) == "/m"
