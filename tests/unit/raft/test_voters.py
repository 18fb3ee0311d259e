"""Keys of replicas, and a history of voters that follows its log."""

from __future__ import annotations

import pytest

from strandline.model.ids import ZERO_UUID, Endpoint, Uuid
from strandline.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage
from strandline.raft.machine.voters import ReplicaKey, Voter, VoterHistory, VoterSet

OLD, NEW = Uuid.of(1, 100), Uuid.of(1, 200)


def voter(node_id: int, directory_id: Uuid = OLD) -> Voter:
    listeners = (("CONTROLLER", Endpoint(f"n{node_id}", 9093)), ("BACKUP", Endpoint(f"n{node_id}", 9094)))
    return Voter(node_id, directory_id, listeners)


ONE, TWO, THREE = (VoterSet(tuple(voter(n) for n in range(1, count + 1))) for count in (1, 2, 3))


def test_a_known_directory_id_must_match_and_an_unknown_one_matches_any() -> None:
    assert ReplicaKey(1, OLD).matches(ReplicaKey(1, OLD))
    assert ReplicaKey(1, OLD).matches(ReplicaKey(1, ZERO_UUID))
    assert not ReplicaKey(1, NEW).matches(ReplicaKey(1, OLD))
    assert not ReplicaKey(1, ZERO_UUID).matches(ReplicaKey(1, OLD))
    assert not ReplicaKey(2, OLD).matches(ReplicaKey(1, ZERO_UUID))


def test_a_node_with_a_new_directory_id_is_not_the_same_voter() -> None:
    assert TWO.voter_with_key(ReplicaKey(2, OLD)) == voter(2)
    assert TWO.voter_with_key(ReplicaKey(2, NEW)) is None
    assert TWO.voter_with_key(ReplicaKey(3, OLD)) is None


def test_a_voter_set_changes_by_one_voter_and_keeps_its_order() -> None:
    assert TWO.with_voter(voter(0)).voters == (voter(0), voter(1), voter(2))
    assert TWO.with_voter(voter(1, NEW)).voters == (voter(1, NEW), voter(2))
    assert THREE.without(2).voters == (voter(1), voter(3))
    assert VoterSet.of_record(THREE.record()) == THREE
    with pytest.raises(ValueError, match="unique and sorted by id"):
        VoterSet((voter(1), voter(1, NEW)))


def test_an_endpoint_is_found_by_its_listener_name_or_is_the_default() -> None:
    assert voter(1).endpoint_for("BACKUP") == Endpoint("n1", 9094)
    assert voter(1).endpoint_for("ELSEWHERE") == Endpoint("n1", 9093)
    assert Voter(1).endpoint_for("CONTROLLER") is None


def test_a_change_of_voters_counts_from_its_record_on_and_is_undone_by_truncation() -> None:
    history = VoterHistory(ONE, kraft_version=1)
    history.on_record(4, LeaderChangeMessage())
    history.on_record(5, TWO.record())
    history.on_record(9, THREE.record())
    assert (history.voters, history.voters_offset) == (THREE, 9)
    history.on_truncated(10)
    assert (history.voters, history.voters_offset) == (THREE, 9)
    history.on_truncated(9)
    assert (history.voters, history.voters_offset) == (TWO, 5)
    history.on_truncated(0)
    assert (history.voters, history.voters_offset, history.kraft_version) == (ONE, -1, 1)


def test_configured_voters_count_until_the_log_has_a_voters_record() -> None:
    history = VoterHistory(ONE)
    assert (history.voters, history.kraft_version) == (ONE, 0)
    history.on_record(7, KRaftVersionRecord(kraft_version=1))
    history.on_record(8, TWO.record())
    assert (history.voters, history.kraft_version) == (TWO, 1)
    history.on_truncated(7)
    assert (history.voters, history.kraft_version) == (ONE, 0)


def test_a_snapshot_contains_the_voters_as_of_its_end_offset() -> None:
    history = VoterHistory(ONE, kraft_version=1)
    history.on_record(5, TWO.record())
    assert history.before(5) == (1, ONE)
    assert history.before(6) == (1, TWO)
    history.on_snapshot(20, 1, THREE)
    assert (history.voters, history.voters_offset, history.kraft_version) == (THREE, 19, 1)
    history.on_snapshot(30, 0, None)
    assert (history.voters, history.voters_offset, history.kraft_version) == (ONE, -1, 0)


def test_entries_before_the_log_start_are_dropped_except_the_one_in_force_there() -> None:
    history = VoterHistory(ONE, kraft_version=1)
    history.on_record(5, TWO.record())
    history.on_record(9, THREE.record())
    history.forget_before(8)
    assert history.before(8) == (1, TWO)
    assert history.before(10) == (1, THREE)
    history.on_truncated(9)
    assert history.voters == TWO
