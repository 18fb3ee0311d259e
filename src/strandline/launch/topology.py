"""Which nodes a cluster has, and their roles.

Called by `launch/preparation` with the existing and the requested numbers. Two kinds of cluster, and a directory keeps
its kind: *combined* (`--nodes N`: every node is a broker, the first five are controllers too) and *separate*
(`--brokers B --controllers C`). A cluster only grows here: data and votes of a node must be moved before its removal,
with `broker drain`, `broker unregister` and `quorum remove`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.launch.cluster_state import BROKER, COMBINED, CONTROLLER, NodeState, Roles
from strandline.launch.errors import InvalidTopology

MAX_COMBINED_CONTROLLERS = 5
"""More voters make every commit slower and hardly add availability."""


class Topology(msgspec.Struct, frozen=True):
    """The requested numbers of nodes; None if not given."""

    nodes: int | None = None
    controllers: int | None = None
    brokers: int | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and (self.controllers is not None or self.brokers is not None):
            raise InvalidTopology(
                "--nodes adds combined nodes, --controllers and --brokers add nodes with one role: "
                "give either --nodes, or --controllers and --brokers"
            )
        for option, number, least in (
            ("--nodes", self.nodes, 1),
            ("--controllers", self.controllers, 1),
            ("--brokers", self.brokers, 0),
        ):
            if number is not None and number < least:
                raise InvalidTopology(f"{option} {number}: it must be at least {least}")

    @property
    def is_separate(self) -> bool:
        return self.controllers is not None or self.brokers is not None

    def missing(self, present: Sequence[NodeState]) -> list[Roles]:
        """The roles of the nodes to add, in the order of their ids."""
        if not present:
            return self._initial()
        if self._is_unspecified:
            return []
        combined = any(node.roles == COMBINED for node in present)
        if combined and self.is_separate:
            raise InvalidTopology(
                "the nodes of this cluster are combined (broker and controller): add more with --nodes, or use another "
                "--data directory"
            )
        if not combined and not self.is_separate:
            raise InvalidTopology(
                "this cluster has separate brokers and controllers: add more with --brokers and --controllers, or "
                "use another --data directory"
            )
        controllers = sum(node.is_controller for node in present)
        if combined:
            assert self.nodes is not None
            return combined_roles(self.nodes - len(present), controllers)
        brokers = len(present) - controllers
        return [
            *[BROKER] * ((self.brokers or 0) - brokers),
            *[CONTROLLER] * ((self.controllers or 0) - controllers),
        ]

    def surplus(self, present: Sequence[NodeState]) -> list[str]:
        """Numbers that exceed the requested ones, as text."""
        controllers = sum(node.is_controller for node in present)
        counts = (
            ("nodes", self.nodes, len(present)),
            ("controllers", self.controllers, controllers),
            ("brokers", self.brokers, sum(node.is_broker for node in present)),
        )
        return [f"{there} {what}, not {asked}" for what, asked, there in counts if asked is not None and asked < there]

    @property
    def _is_unspecified(self) -> bool:
        return self.nodes is None and not self.is_separate

    def _initial(self) -> list[Roles]:
        if not self.is_separate:
            return combined_roles(1 if self.nodes is None else self.nodes, 0)
        if self.controllers is None or self.brokers is None:
            missing = "--brokers" if self.brokers is None else "--controllers"
            raise InvalidTopology(f"a new cluster needs --brokers and --controllers: add {missing} N")
        return [*[BROKER] * self.brokers, *[CONTROLLER] * self.controllers]


def combined_roles(count: int, controllers: int) -> list[Roles]:
    """The roles of `count` nodes added to a cluster with this number of controllers."""
    both = max(0, min(count, MAX_COMBINED_CONTROLLERS - controllers))
    return [*[COMBINED] * both, *[BROKER] * (count - both)]
