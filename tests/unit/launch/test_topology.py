from __future__ import annotations

import pytest

from strandline.launch.cluster_state import BROKER, COMBINED, CONTROLLER, NodeState, Roles
from strandline.launch.errors import InvalidTopology
from strandline.launch.topology import Topology


def present(*roles: Roles) -> list[NodeState]:
    return [
        NodeState(number, None, "127.0.0.1", 9091 + number, 19091 + number, "/data", "/log", each)
        for number, each in enumerate(roles, 1)
    ]


@pytest.mark.parametrize(
    ("requested", "existing", "added"),
    [
        (Topology(), [], [COMBINED]),
        (Topology(nodes=3), [], [COMBINED] * 3),
        (Topology(nodes=5), [], [COMBINED] * 5),
        (Topology(nodes=7), [], [*[COMBINED] * 5, BROKER, BROKER]),
        (Topology(controllers=3, brokers=4), [], [*[BROKER] * 4, *[CONTROLLER] * 3]),
        (Topology(controllers=1, brokers=0), [], [CONTROLLER]),
        (Topology(), [COMBINED] * 3, []),
        (Topology(nodes=3), [COMBINED] * 3, []),
        (Topology(nodes=1), [COMBINED] * 3, []),
        (Topology(nodes=5), [COMBINED] * 3, [COMBINED] * 2),
        (Topology(nodes=7), [COMBINED] * 4, [COMBINED, BROKER, BROKER]),
        (Topology(nodes=8), [*[COMBINED] * 5, BROKER], [BROKER, BROKER]),
        (Topology(), [BROKER, CONTROLLER], []),
        (Topology(brokers=3), [BROKER, CONTROLLER], [BROKER, BROKER]),
        (Topology(controllers=3), [BROKER, CONTROLLER], [CONTROLLER, CONTROLLER]),
        (Topology(controllers=2, brokers=2), [BROKER, CONTROLLER], [BROKER, CONTROLLER]),
    ],
)
def test_missing_nodes_are_added_and_none_are_removed(
    requested: Topology, existing: list[Roles], added: list[Roles]
) -> None:
    assert requested.missing(present(*existing)) == added


@pytest.mark.parametrize(
    ("requested", "existing", "message"),
    [
        (Topology(controllers=3), [], "--brokers N"),
        (Topology(brokers=3), [], "--controllers N"),
        (Topology(controllers=3, brokers=1), [COMBINED], "--nodes"),
        (Topology(nodes=3), [BROKER, CONTROLLER], "--brokers and --controllers"),
    ],
)
def test_an_invalid_topology_is_rejected_with_a_remedy(
    requested: Topology, existing: list[Roles], message: str
) -> None:
    with pytest.raises(InvalidTopology, match=message):
        requested.missing(present(*existing))


def test_combined_and_separate_options_exclude_each_other() -> None:
    with pytest.raises(InvalidTopology, match="either --nodes, or"):
        Topology(nodes=3, brokers=1)


def test_a_cluster_larger_than_requested_is_reported() -> None:
    assert Topology(nodes=1).surplus(present(COMBINED, COMBINED)) == ["2 nodes, not 1"]
    assert Topology(nodes=2).surplus(present(COMBINED, COMBINED)) == []
    assert Topology(controllers=1, brokers=1).surplus(present(BROKER, BROKER, CONTROLLER)) == ["2 brokers, not 1"]
