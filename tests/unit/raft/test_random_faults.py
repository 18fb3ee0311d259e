"""Many small quorums in bad weather, each from its own seed. STRANDLINE_STORMS=n runs n of them instead of a few."""

from __future__ import annotations

import os

import pytest

from unit.raft.random_faults import RandomFaults

_STORMS = int(os.environ.get("STRANDLINE_STORMS", "32"))
_FIRST = int(os.environ.get("STRANDLINE_FIRST_STORM", "0"))
_GROUPS = 8


@pytest.mark.parametrize("group", range(_GROUPS))
def test_a_quorum_keeps_its_invariants_under_random_faults_and_recovers_afterwards(group: int) -> None:
    for seed in range(_FIRST + group, _FIRST + _STORMS, _GROUPS):
        try:
            ride_out(seed)
        except Exception as error:
            error.add_note(f"storm {seed}")
            raise


def ride_out(seed: int) -> None:
    storm = RandomFaults(seed)
    storm.rage(1500)
    storm.clear_up()
