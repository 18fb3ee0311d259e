"""Parsing and exit codes: 0 done, 1 failed, 2 misused; sentences instead of stack traces."""

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
from strandline.cli.with_client import explain_error
from strandline.client.errors import NotABroker
from strandline.launch.cluster_state import ClusterState, NodeState
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid

NOWHERE = "127.0.0.1:1"


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
        ["topic", "reassign", "t:x", "--to", "1", "-b", NOWHERE],
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
def test_misuse_is_exit_code_2_and_a_sentence(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.err.strip() or "usage" in shown.out


def test_a_closed_standard_input_is_misuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(["produce", "t"]) == 2
    assert "standard input is closed" in capsys.readouterr().err


def test_a_closed_standard_output_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["storage", "random-uuid"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("asked", [["--brokers", "1"], ["--controllers", "1"], ["--nodes", "0"]])
def test_a_cluster_that_cannot_be_is_misuse_and_leaves_nothing_behind(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--data", str(tmp_path / "new"), *asked]) == 2
    assert "at least" in (told := capsys.readouterr().err) or "A new cluster needs both" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["log.segment.bytes=abc", "listeners=PLAINTEXT://:1"])
def test_a_setting_that_no_node_takes_is_misuse_and_leaves_nothing_behind(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--data", str(tmp_path / "new"), "--set", setting]) == 2
    assert setting.partition("=")[0] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("asked", "told"), [(9092, True), (9999, False)])
def test_a_port_that_is_ignored_is_said_to_be(asked: int, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeState(1, None, "127.0.0.1", 9999, 19999, "/data", "/data.log")
    _warn_of_kept_ports(ClusterState("id", [node]), asked)
    assert ("--port 9092 is ignored" in capsys.readouterr().err) is told


@pytest.mark.parametrize(
    "argv",
    [
        ["topic", "list", "-b", NOWHERE],
        ["cluster", "describe", "-b", NOWHERE],
        ["cluster", "health", "-b", NOWHERE],
        ["cluster", "health", "--wait", "0.3", "-b", NOWHERE],
        ["quorum", "describe", "-b", NOWHERE],
        ["quorum", "add", "2", "-b", NOWHERE],
        ["quorum", "remove", "2", "-b", NOWHERE],
        ["broker", "list", "-b", NOWHERE],
        ["broker", "drain", "1", "-b", NOWHERE],
        ["broker", "unregister", "1", "-b", NOWHERE],
        ["topic", "reassign", "t", "--to", "1", "-b", NOWHERE],
        ["topic", "reassign", "--status", "-b", NOWHERE],
        ["leader", "elect", "--all", "-b", NOWHERE],
        ["feature", "describe", "-b", NOWHERE],
        ["feature", "upgrade", "metadata.version=4.3", "-b", NOWHERE],
        ["consume", "t", "-b", NOWHERE],
        ["config", "describe", "topic", "t", "-b", NOWHERE],
    ],
)
def test_nobody_at_the_address_is_exit_code_1_and_advice(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 1
    message = capsys.readouterr().err
    assert "nobody answers at 127.0.0.1:1" in message
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
def test_a_file_that_is_not_there_is_exit_code_1_with_its_name(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 1
    message = capsys.readouterr().err
    assert "/no/such/" in message and "Traceback" not in message
    assert "no such file" in message.lower() or argv[0] == "down"


def test_a_directory_is_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["server", str(tmp_path)]) == 1
    assert "is a directory" in capsys.readouterr().err


def test_an_id_for_a_new_cluster_is_json_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "random-uuid", "--json"]) == 0
    assert len(Uuid.parse(json.loads(capsys.readouterr().out)["uuid"])) == 16


@pytest.mark.parametrize(
    "error",
    [
        NotABroker("this is a controller's listener"),
        KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is not for you"),
    ],
)
def test_whoever_asks_a_controller_is_sent_to_a_broker(error: KafkaError) -> None:
    told = str(explain_error(error, "here:19092"))
    assert "here:19092 is a controller's listener" in told and "advertised.listeners" in told


def test_a_bug_shows_its_trace_and_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "_run", lambda _argv: 1 // 0)
    assert run(["topic", "list"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown and "please report it" in shown


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 1), (CommandFailed("no"), 1)])
def test_interruptions_and_failures_have_no_trace(
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
def test_values_may_begin_with_a_dash(argv: list[str], joined: list[str]) -> None:
    assert _values_joined(argv) == joined


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from strandline.cli.main import run; run(['--help']);"
        "heavy = {'asyncio', 'msgspec', 'numpy', 'uvloop', 'cramjam'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_node_is_started_without_what_it_does_not_need() -> None:
    program = (
        "import sys; from strandline.cli.main import run; assert run(['server', '/nowhere/at.all']) == 1;"
        "import strandline.node.node;"
        "needless = {'argparse', 'hashlib', 'ipaddress', 'shutil', 'numpy'} & set(sys.modules);"
        "sys.exit(f'imported: {needless}' if needless else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_reader_that_has_seen_enough_is_not_complained_about() -> None:
    command = f"{sys.executable} -m strandline --help | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=False)
    assert (ended.stdout, ended.stderr) == ("0\n", "")
