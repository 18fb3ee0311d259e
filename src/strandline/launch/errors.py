"""Why a cluster could not be started: each error is a sentence for the person at the terminal, with what to do."""

from __future__ import annotations

import signal
from collections.abc import Sequence


class LaunchError(Exception):
    pass


class ConfigOverrideRejected(LaunchError):
    """What was asked for with --set makes no sense; nothing was made or changed."""


class InvalidTopology(LaunchError):
    """What was asked for with --nodes, --controllers or --brokers makes no sense; nothing was made or changed."""


class DirectoryLocked(LaunchError):
    def __init__(self, directory: str) -> None:
        super().__init__(f"another `strandline up` or `down` is at work in {directory}: wait for it, then try again")


class PortInUse(LaunchError):
    def __init__(self, node_id: int, host: str, port: int) -> None:
        super().__init__(
            f"node {node_id} lives on port {port}, but something else listens on {host}:{port}: stop that program, "
            "then run the same command again"
        )


class DataDirectoryEmpty(LaunchError):
    """A node that was formatted before finds nothing on its disk. `others`: there are controllers besides it."""

    def __init__(self, node_id: int, data: str, directory: str, *, others: bool = False) -> None:
        anew = f"remove {directory} and start anew"
        if others:
            anew = (
                f"let it begin with nothing and without a vote, and take its old vote away:\n"
                f"  strandline up --replace {node_id} --data {directory} --detach\n"
                f"  strandline quorum remove {node_id}   (if it was a voter)\n"
                f"  strandline quorum add {node_id}      (to let it vote again)"
            )
        super().__init__(
            f"node {node_id} was formatted before, but {data} holds no meta.properties: its disk was emptied or is not "
            "mounted. Formatting it again as it was would let it forget what it has acknowledged, so this is refused. "
            f"Restore the directory; or, if what it held may be lost, {anew}"
        )


class ClusterIdMismatch(LaunchError):
    def __init__(self, node_id: int, data: str, found: str | None, expected: str) -> None:
        says = f"is of cluster {found}" if found else "does not say of which cluster it is"
        super().__init__(
            f"node {node_id} is of cluster {expected}, but {data} {says} (cluster.id in its meta.properties): put the "
            "directory back that belongs there"
        )


class NotReplaceable(LaunchError):
    pass


class NodeExited(LaunchError):
    """`asked`: somebody (`down`, elsewhere) has stopped it and written that down."""

    def __init__(self, node_id: int, code: int, reason: str, *, asked: bool = False) -> None:
        if code == -signal.SIGKILL:
            # Whoever is killed like this writes nothing about it.
            told = "was killed by signal 9: by somebody, or by a system that ran out of memory"
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            told = f"{how}. The end of its log:\n{reason}"
        super().__init__(f"node {node_id} {told}")
        self.node_id = node_id
        self.reason = reason
        self.asked = asked


class NodesExited(LaunchError):
    """Some of the nodes that were started are gone; `running` are those that are not."""

    def __init__(self, died: Sequence[NodeExited], running: Sequence[int]) -> None:
        told = "\n".join(str(each) for each in died)
        left = f"\nStill running: {', '.join(f'node {each}' for each in running)}." if running else ""
        super().__init__(told + left)
        self.died = list(died)


class NotReady(LaunchError):
    def __init__(self, node_id: int, seconds: float, log: str) -> None:
        super().__init__(f"node {node_id} runs, but is not ready after {seconds:.0f} s: its log {log} may say why")
