"""Quorums under random faults, one per seed. STRANDLINE_FAULT_SEEDS=n runs n seeds instead of a few."""

from __future__ import annotations

import os

import pytest

from unit.raft.random_faults import RandomFaults

_SEEDS = int(os.environ.get("STRANDLINE_FAULT_SEEDS", "32"))
_FIRST = int(os.environ.get("STRANDLINE_FIRST_SEED", "0"))
_GROUPS = 8


@pytest.mark.parametrize("group", range(_GROUPS))
def test_a_quorum_keeps_its_invariants_under_random_faults_and_recovers_afterwards(group: int) -> None:
    for seed in range(_FIRST + group, _FIRST + _SEEDS, _GROUPS):
        try:
            check_seed(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def check_seed(seed: int) -> None:
    faults = RandomFaults(seed)
    faults.run_with_faults(1500)
    faults.recover_from_faults()
