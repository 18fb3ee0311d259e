"""A node that is not part of the cluster (wrong cluster id, or the id of another node) and its log."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from cluster.lifecycle.commands import strandline
from cluster.quorum.admin_requests import eventually
from strandline.launch import ports, processes
from strandline.testing import Cluster


class ForeignNode:
    """Connects to the cluster's controllers (`controller.quorum.bootstrap.servers`)."""

    def __init__(
        self, home: Path, cluster: Cluster, node_id: int, roles: str, settings: Mapping[str, str] = {}
    ) -> None:
        self.file = home / "server.properties"
        self.log = home / "server.log"
        taken: set[int] = set()
        listeners = []
        for role, name in (("broker", "PLAINTEXT"), ("controller", "CONTROLLER")):
            if role in roles.split(","):
                port = ports.random_free_port("127.0.0.1", taken)
                taken.add(port)
                listeners.append(f"{name}://127.0.0.1:{port}")
        properties = {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(node.controller_endpoint for node in cluster.nodes),
            "log.dirs": str(home / "data"),
            **settings,
        }
        self.file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def format(self, cluster_id: str, *how: str) -> subprocess.CompletedProcess[str]:
        return strandline("storage", "format", "--cluster-id", cluster_id, *how, "-c", str(self.file))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        child = processes.start(str(self.file), str(self.log))
        try:
            yield
        finally:
            child.kill()
            child.wait()

    def log_line(self, *words: str) -> str:
        """Waits for the line of its log with all of these words."""

        def line() -> str:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            return next((each for each in lines if all(word in each for word in words)), "")

        return eventually(line)
