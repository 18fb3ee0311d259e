"""Why a cluster could not be started: each error is a sentence for the person at the terminal, with what to do."""

from __future__ import annotations


class LaunchError(Exception):
    pass


class SettingRefused(LaunchError):
    """What was asked for with --set makes no sense; nothing was made or changed."""


class AlreadyStarting(LaunchError):
    def __init__(self, directory: str) -> None:
        super().__init__(f"another `strandline up` or `down` is at work in {directory}: wait for it, then try again")


class PortTaken(LaunchError):
    def __init__(self, node_id: int, host: str, port: int) -> None:
        super().__init__(
            f"node {node_id} lives on port {port}, but something else listens on {host}:{port}: stop that program, "
            "then run the same command again"
        )


class DiskEmptied(LaunchError):
    def __init__(self, node_id: int, data: str, directory: str) -> None:
        super().__init__(
            f"node {node_id} was formatted before, but {data} holds no meta.properties: its disk was emptied or is not "
            "mounted. Formatting it again would let it forget what it has acknowledged, so this is refused. Restore "
            f"the directory; or, if its records may be lost, remove {directory} and start anew"
        )


class NodeDied(LaunchError):
    """`asked`: somebody (`down`, elsewhere) has stopped it and written that down."""

    def __init__(self, node_id: int, code: int, reason: str, *, asked: bool = False) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"node {node_id} {how}. The end of its log:\n{reason}")
        self.node_id = node_id
        self.reason = reason
        self.asked = asked


class NotReady(LaunchError):
    def __init__(self, node_id: int, seconds: float, log: str) -> None:
        super().__init__(f"node {node_id} runs, but is not ready after {seconds:.0f} s: its log {log} may say why")
