"""Which nodes a cluster gets, and what each of them does.

Called by `launch/preparation` with what is there and what was asked for. Two kinds of cluster, and a directory keeps
its kind: *combined* (`--nodes N`: every node is a broker, the first five are controllers too) and *separate*
(`--brokers B --controllers C`). A cluster only grows here: taking nodes away means to move their data and their votes
first, and that is for `broker drain`, `broker unregister` and `quorum remove`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.launch.cluster_state import BROKER, COMBINED, CONTROLLER, NodeState, Roles
from strandline.launch.errors import InvalidTopology

# A write waits for a majority of the controllers: more than five cost more than they give.
MAX_COMBINED_CONTROLLERS = 5


@dataclass(frozen=True, slots=True)
class Topology:
    """How many nodes were asked for; None for a number that was not given."""

    nodes: int | None = None
    controllers: int | None = None
    brokers: int | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and (self.controllers is not None or self.brokers is not None):
            raise InvalidTopology(
                "--nodes makes nodes that are both, --controllers and --brokers make nodes that are one of the two: "
                "give either the one or the others"
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
            return self._first()
        if self._is_open:
            return []
        combined = any(node.roles == COMBINED for node in present)
        if combined and self.is_separate:
            raise InvalidTopology(
                "the nodes of this cluster are brokers and controllers at once, and stay so: ask for more of them with "
                "--nodes, or use another --data directory"
            )
        if not combined and not self.is_separate:
            raise InvalidTopology(
                "this cluster separates brokers from controllers: ask for more with --brokers and --controllers, or "
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
        """What there is more of than was asked for, in words."""
        controllers = sum(node.is_controller for node in present)
        counts = (
            ("nodes", self.nodes, len(present)),
            ("controllers", self.controllers, controllers),
            ("brokers", self.brokers, sum(node.is_broker for node in present)),
        )
        return [f"{there} {what}, not {asked}" for what, asked, there in counts if asked is not None and asked < there]

    @property
    def _is_open(self) -> bool:
        return self.nodes is None and not self.is_separate

    def _first(self) -> list[Roles]:
        if not self.is_separate:
            return combined_roles(1 if self.nodes is None else self.nodes, 0)
        if self.controllers is None or self.brokers is None:
            missing = "--brokers" if self.brokers is None else "--controllers"
            raise InvalidTopology(f"how many {missing[2:]}? A new cluster needs both: add {missing} N")
        return [*[BROKER] * self.brokers, *[CONTROLLER] * self.controllers]


def combined_roles(count: int, controllers: int) -> list[Roles]:
    """Of nodes that are added to a cluster with so many controllers."""
    both = max(0, min(count, MAX_COMBINED_CONTROLLERS - controllers))
    return [*[COMBINED] * both, *[BROKER] * (count - both)]
