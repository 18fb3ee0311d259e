"""Node processes: starts them, recognises them by pid, stops them.

A pid may be reused after a reboot or a kill. A process counts as the node only if its command line contains the node's
properties file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import strandline

POLL_SECONDS = 0.01


def start(properties: str, log: str) -> subprocess.Popen[bytes]:
    """Starts a node in its own session: Ctrl-C in the terminal reaches only the launcher, which stops it cleanly."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "strandline", "server", properties],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_environment(),
        )


def _environment() -> dict[str, str]:
    """The child imports the same package as this process, however that was started."""
    source = os.path.dirname(os.path.dirname(os.path.abspath(strandline.__file__)))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != source]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, *paths]), "PYTHONUNBUFFERED": "1"}


def is_node(pid: int | None, properties: str) -> bool:
    """Whether this pid is at present the node with this properties file."""
    if pid is None or pid <= 0:
        return False
    command = _command_line(pid)
    return command is not None and properties in command and "server" in command


def _command_line(pid: int) -> list[str] | None:
    """The command line of a process; None if there is no such process, empty for a zombie."""
    if os.path.isdir("/proc/self"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return os.fsdecode(file.read()).split("\0")
        except OSError:
            return None
    shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        return None
    # `ps` does not quote: offers every tail of the line, so that a path with blanks is found too.
    words = shown.stdout.strip().split(" ")
    return words + [" ".join(words[index:]) for index in range(len(words))]


def terminate(pid: int) -> None:
    """SIGTERM, also for a paused process, which handles it after SIGCONT."""
    _signal(pid, signal.SIGTERM)
    _signal(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    _signal(pid, signal.SIGKILL)


def pause(pid: int) -> None:
    """SIGSTOP: the process does not respond, but its connections stay open."""
    _signal(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until_exited(pid: int, properties: str, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while is_node(pid, properties):
        _reap(pid)
        if time.monotonic() >= deadline:
            return not is_node(pid, properties)
        time.sleep(POLL_SECONDS)
    return True


def _reap(pid: int) -> None:
    """An exited child stays in the process table until it is waited for."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def tail(log: str, lines: int = 20, since: int = 0) -> str:
    """The last lines of a node's log from byte `since` on, which usually contain the reason of its exit."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"(its log cannot be read: {error})"
    return "\n".join(text.strip().splitlines()[-lines:]) or "(it wrote nothing)"
