"""Errors of starting a cluster: each message is for the user at the terminal and contains the remedy."""

from __future__ import annotations

import signal
from collections.abc import Sequence


class LaunchError(Exception):
    pass


class ConfigOverrideRejected(LaunchError):
    """An invalid --set; nothing was changed."""


class InvalidTopology(LaunchError):
    """An invalid combination of --nodes, --controllers and --brokers; nothing was changed."""


class DirectoryLocked(LaunchError):
    def __init__(self, directory: str) -> None:
        super().__init__(f"another `strandline up` or `down` is using {directory}: wait until it is done, then retry")


class PortInUse(LaunchError):
    def __init__(self, node_id: int, host: str, port: int) -> None:
        super().__init__(
            f"node {node_id} uses port {port}, but another program listens on {host}:{port}: stop that program, "
            "then run the same command again"
        )


class DataDirectoryEmpty(LaunchError):
    """The directory of a formatted node is empty. `others`: the cluster has other controllers."""

    def __init__(self, node_id: int, data: str, directory: str, *, others: bool = False) -> None:
        remedy = f"remove {directory} and start a new cluster"
        if others:
            remedy = (
                f"start it empty and as an observer, and replace its vote:\n"
                f"  strandline up --replace {node_id} --data {directory} --detach\n"
                f"  strandline quorum remove {node_id}   (if it was a voter)\n"
                f"  strandline quorum add {node_id}      (to make it a voter again)"
            )
        super().__init__(
            f"node {node_id} was formatted before, but {data} holds no meta.properties: its disk was emptied or is not "
            "mounted. It is not formatted again as the same voter, since it may have acknowledged votes and records "
            f"that are lost. Restore the directory; or, if its data may be lost, {remedy}"
        )


class ClusterIdMismatch(LaunchError):
    def __init__(self, node_id: int, data: str, found: str | None, expected: str) -> None:
        actual = f"belongs to cluster {found}" if found else "names no cluster"
        super().__init__(
            f"node {node_id} belongs to cluster {expected}, but {data} {actual} (cluster.id in its meta.properties): "
            "restore the directory of this cluster"
        )


class NotReplaceable(LaunchError):
    pass


class NodeExited(LaunchError):
    """`expected`: it was stopped by `down`, perhaps of another process."""

    def __init__(self, node_id: int, code: int, reason: str, *, expected: bool = False) -> None:
        if code == -signal.SIGKILL:
            # SIGKILL leaves nothing in the log.
            exit_text = "was killed by signal 9: by a user, or by the system when it ran out of memory"
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            exit_text = f"{how}. The end of its log:\n{reason}"
        super().__init__(f"node {node_id} {exit_text}")
        self.node_id = node_id
        self.reason = reason
        self.expected = expected


class NodesExited(LaunchError):
    """Some of the started nodes have exited; `running` are the others."""

    def __init__(self, exited: Sequence[NodeExited], running: Sequence[int]) -> None:
        exits = "\n".join(str(each) for each in exited)
        left = f"\nStill running: {', '.join(f'node {each}' for each in running)}." if running else ""
        super().__init__(exits + left)
        self.exited = list(exited)


class NotReady(LaunchError):
    def __init__(self, node_id: int, seconds: float, log: str) -> None:
        super().__init__(f"node {node_id} is running, but not ready after {seconds:.0f} s: see its log {log}")
