"""Parsing and exit codes: 0 success, 1 failure, 2 invalid usage; error messages instead of stack traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.cli import main
from strandline.cli.commands import COMMANDS, _values_joined
from strandline.cli.errors import CommandFailed
from strandline.cli.main import run
from strandline.cli.up import _warn_of_kept_ports
from strandline.launch.cluster_state import ClusterState, NodeState
from strandline.model.ids import Uuid

UNREACHABLE = "127.0.0.1:1"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["topic", "create"], ["config", "set"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert "usage: strandline" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["frobnicate"],
        ["topic"],
        ["topic", "create"],
        ["topic", "create", "t", "-p", "none"],
        ["topic", "create", "t", "-p", "0"],
        ["topic", "create", "t", "-c", "retention.ms"],
        ["topic", "alter", "t"],
        ["topic", "list", "-b", "no:port:here"],
        ["consume"],
        ["consume", "t", "-o", "yesterday"],
        ["consume", "t", "-o", "--"],
        ["consume", "t", "-p--"],
        ["consume", "t", "-f%z", "-b", "--"],
        ["produce", "t", "--file", "/"],
        ["consume", "t", "-f", "%z"],
        ["consume", "t", "-n", "0"],
        ["consume", "t", "-p", "one"],
        ["produce", "t", "-H", "no equals sign"],
        ["produce", "t", "-p", "-1"],
        ["produce", "t", "--acks", "2"],
        ["config", "set", "topic", "t"],
        ["config", "unset", "topic", "t"],
        ["config", "describe", "broker", "one"],
        ["config", "describe", "topic"],
        ["topic", "reassign"],
        ["topic", "reassign", "t"],
        ["topic", "reassign", "t", "--to", "one"],
        ["topic", "reassign", "t", "--to", "1,1"],
        ["topic", "reassign", "t:x", "--to", "1", "-b", UNREACHABLE],
        ["topic", "reassign", "t", "--file", "plan.json"],
        ["topic", "reassign", "--file", "/etc/passwd"],
        ["topic", "reassign", "--cancel"],
        ["topic", "reassign", "--cancel", "--status"],
        ["leader", "elect"],
        ["leader", "elect", "t", "--all"],
        ["leader", "elect", "t", "--preferred", "--unclean"],
        ["feature", "upgrade"],
        ["feature", "upgrade", "group.version=4.0"],
        ["feature", "upgrade", "metadata.version=17.0"],
        ["feature", "disable"],
        ["quorum", "add", "four"],
        ["quorum", "add", "4@host:9093"],
        ["quorum", "remove", "2:short"],
        ["broker", "drain"],
        ["broker", "drain", "one"],
        ["cluster", "health", "--wait", "soon"],
        ["cluster", "health", "--wait", "-1"],
        ["metadata", "show", "--at", "-1"],
        ["metadata", "log", "--from", "-1"],
        ["metadata", "log", "-n", "0"],
        ["up", "--nodes", "0"],
        ["up", "--controllers", "0", "--brokers", "1"],
        ["up", "--nodes", "3", "--brokers", "1"],
        ["up", "--port", "70000"],
        ["up", "--set", "num.partitions"],
        ["storage", "format", "-c", "file"],
        ["log", "dump", "/etc/passwd"],
    ],
)
def test_invalid_usage_exits_with_2_and_a_message(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.err.strip() or "usage" in shown.out


def test_a_closed_standard_input_is_invalid_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(["produce", "t"]) == 2
    assert "standard input is closed" in capsys.readouterr().err


def test_a_closed_standard_output_is_accepted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["storage", "random-uuid"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [["--brokers", "1"], ["--controllers", "1"], ["--nodes", "0"]])
def test_an_invalid_topology_is_invalid_usage_and_creates_no_files(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--data", str(tmp_path / "new"), *options]) == 2
    assert "at least" in (message := capsys.readouterr().err) or "a new cluster needs" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("config", ["log.segment.bytes=abc", "listeners=PLAINTEXT://:1"])
def test_an_invalid_config_is_invalid_usage_and_creates_no_files(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--data", str(tmp_path / "new"), "--set", config]) == 2
    assert config.partition("=")[0] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("port", "reported"), [(9092, True), (9999, False)])
def test_an_ignored_port_option_is_reported(port: int, reported: bool, capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeState(1, None, "127.0.0.1", 9999, 19999, "/data", "/data.log")
    _warn_of_kept_ports(ClusterState("id", [node]), port)
    assert ("--port 9092 is ignored" in capsys.readouterr().err) is reported


@pytest.mark.parametrize(
    "argv",
    [
        ["topic", "list", "-b", UNREACHABLE],
        ["cluster", "describe", "-b", UNREACHABLE],
        ["cluster", "health", "-b", UNREACHABLE],
        ["cluster", "health", "--wait", "0.3", "-b", UNREACHABLE],
        ["quorum", "describe", "-b", UNREACHABLE],
        ["quorum", "add", "2", "-b", UNREACHABLE],
        ["quorum", "remove", "2", "-b", UNREACHABLE],
        ["broker", "list", "-b", UNREACHABLE],
        ["broker", "drain", "1", "-b", UNREACHABLE],
        ["broker", "unregister", "1", "-b", UNREACHABLE],
        ["topic", "reassign", "t", "--to", "1", "-b", UNREACHABLE],
        ["topic", "reassign", "--status", "-b", UNREACHABLE],
        ["leader", "elect", "--all", "-b", UNREACHABLE],
        ["feature", "describe", "-b", UNREACHABLE],
        ["feature", "upgrade", "metadata.version=4.3", "-b", UNREACHABLE],
        ["consume", "t", "-b", UNREACHABLE],
        ["config", "describe", "topic", "t", "-b", UNREACHABLE],
    ],
)
def test_an_unreachable_bootstrap_address_exits_with_1_and_advice(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 1
    message = capsys.readouterr().err
    assert "no broker responds at 127.0.0.1:1" in message
    assert "strandline up" in message and "-b HOST:PORT" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    "argv",
    [
        ["server", "/no/such/file.properties"],
        ["storage", "info", "-c", "/no/such/file.properties"],
        ["down", "--data", "/no/such/directory"],
        ["log", "dump", "/no/such/file.log"],
        ["log", "dump", "/no/such/thing"],
        ["produce", "t", "--file", "/no/such/file"],
        ["topic", "reassign", "--file", "/no/such/plan.json"],
        ["metadata", "show", "--data", "/no/such/directory"],
        ["metadata", "log", "--data", "/no/such/file.log"],
    ],
)
def test_a_missing_file_exits_with_1_and_its_name(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 1
    message = capsys.readouterr().err
    assert "/no/such/" in message and "Traceback" not in message
    assert "no such file" in message.lower() or argv[0] == "down"


def test_a_directory_is_rejected_as_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["server", str(tmp_path)]) == 1
    assert "is a directory" in capsys.readouterr().err


def test_a_new_cluster_id_is_printed_as_json_with_the_json_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "random-uuid", "--json"]) == 0
    assert len(Uuid.parse(json.loads(capsys.readouterr().out)["uuid"])) == 16


def test_an_unexpected_exception_prints_its_trace_and_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "_run", lambda _argv: 1 // 0)
    assert run(["topic", "list"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown and "please report it" in shown


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 1), (CommandFailed("no"), 1)])
def test_interruptions_and_failures_print_no_trace(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_argv: list[str]) -> int:
        raise raised

    monkeypatch.setattr(main, "_run", fail)
    assert run(["topic", "list"]) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "joined"),
    [
        (["consume", "t", "-o", "-100:end"], ["consume", "t", "-o-100:end"]),
        (["consume", "t", "--offset", "-5"], ["consume", "t", "--offset=-5"]),
        (["consume", "t", "-f", "-%v"], ["consume", "t", "-f-%v"]),
        (["consume", "t", "-o"], ["consume", "t", "-o"]),
        (["produce", "t", "-k", "-x"], ["produce", "t", "-k-x"]),
        (["produce", "t", "-k", ""], ["produce", "t", "-k", ""]),
        (["topic", "create", "-c", "-o"], ["topic", "create", "-c", "-o"]),
    ],
)
def test_values_may_start_with_a_dash(argv: list[str], joined: list[str]) -> None:
    assert _values_joined(argv) == joined


def test_help_imports_no_large_modules() -> None:
    program = (
        "import sys; from strandline.cli.main import run; run(['--help']);"
        "heavy = {'asyncio', 'msgspec', 'numpy', 'uvloop', 'cramjam'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stderr


def test_starting_a_node_does_not_import_modules_it_does_not_need() -> None:
    program = (
        "import sys; from strandline.cli.main import run; assert run(['server', '/nowhere/at.all']) == 1;"
        "import strandline.node.node;"
        "unneeded = {'argparse', 'hashlib', 'ipaddress', 'shutil', 'numpy'} & set(sys.modules);"
        "sys.exit(f'imported: {unneeded}' if unneeded else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m strandline --help | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=False)
    assert (ended.stdout, ended.stderr) == ("0\n", "")
