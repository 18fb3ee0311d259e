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
    ("asked", "there", "added"),
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
def test_what_is_missing_is_added_and_nothing_is_taken_away(
    asked: Topology, there: list[Roles], added: list[Roles]
) -> None:
    assert asked.missing(present(*there)) == added


@pytest.mark.parametrize(
    ("asked", "there", "told"),
    [
        (Topology(controllers=3), [], "--brokers N"),
        (Topology(brokers=3), [], "--controllers N"),
        (Topology(controllers=3, brokers=1), [COMBINED], "--nodes"),
        (Topology(nodes=3), [BROKER, CONTROLLER], "--brokers and --controllers"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(asked: Topology, there: list[Roles], told: str) -> None:
    with pytest.raises(InvalidTopology, match=told):
        asked.missing(present(*there))


def test_the_two_ways_to_ask_exclude_each_other() -> None:
    with pytest.raises(InvalidTopology, match="either the one or the others"):
        Topology(nodes=3, brokers=1)


def test_a_cluster_that_is_larger_than_asked_for_is_told_of() -> None:
    assert Topology(nodes=1).surplus(present(COMBINED, COMBINED)) == ["2 nodes, not 1"]
    assert Topology(nodes=2).surplus(present(COMBINED, COMBINED)) == []
    assert Topology(controllers=1, brokers=1).surplus(present(BROKER, BROKER, CONTROLLER)) == ["2 brokers, not 1"]
