"""Elects partition leaders: the state of a new partition, and of an existing one when its replicas change.

`new_partition` and `change` are pure: they take one partition and return its state or the record, if any, that it
needs. Every change of a partition is decided here: brokers that are fenced or unfenced (`partition_changes`), ISR
changes (`isr`), requested and periodic elections (`elect_leaders`), `reassignments`, failed directories
(`directory_assignments`).

A change has four steps, always in this order:

1. *Replicas.* A reassignment is complete as soon as the target ISR, without the replicas to be removed, is not empty
   and contains every replica to be added (and, when more are removed than added, all that remain).
2. *Eligible leader replicas* (ELR, KIP-966). While fewer than min.insync.replicas are in sync, nothing is committed, so
   replicas that leave the ISR stay eligible: they have every committed record. Otherwise the ELR is empty.
3. *Leader.* From the target ISR, or from the ELR when that is empty: the current leader if it can lead, else the first
   in order of assignment that can. Otherwise the last known leader (with ELR); otherwise, where the topic allows it,
   the first replica that can lead. The last two are *unclean*: the records they lack are lost, and they are marked as
   recovering.
4. *Epochs.* Naming a leader, even the same one, raises the leader epoch. The leader is named when it changes and when a
   replica is removed, so that the leader drops that replica (and, up to metadata version 11, when the ISR shrinks).

Invariants: the leader is in the ISR; ISR and ELR are disjoint and assigned; the ELR is empty while enough replicas are
in sync. Without ELR the ISR never becomes empty: its last member stays, without a leader.

Kafka 4.3 decides alike, record for record, except where it would break these: it leaves replicas in the ELR that are no
longer assigned, clears the ELR of a partition without a leader when the feature is disabled, counts min.insync.replicas
against the replicas of partition 0, and records -1 as last known leader of a partition that has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol

import msgspec

from strandline.metadata.record_versions import DIRECTORIES_SINCE, LATEST_METADATA_VERSION
from strandline.metadata.topics_image import LEADER_UNCHANGED, RECOVERY_STATE_UNCHANGED
from strandline.metadata.values import NO_LEADER, RECOVERING, PartitionInfo
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import PartitionChangeRecord

# Brokers of older metadata versions detect a smaller ISR by the leader epoch only (KAFKA-15021).
_SHRINKING_KEEPS_EPOCH_SINCE: Final = 12


class BrokerLookup(Protocol):
    """What a change needs to know of brokers: see `controller.leader_eligibility`."""

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may be in an ISR."""
        ...

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        """Whether a broker may lead the replica that it keeps in this directory."""
        ...

    def new_directory(self, broker_id: int) -> Uuid:
        """The directory of a new replica on this broker."""
        ...


class Election(Enum):
    """Which leaders may be elected."""

    ONLINE = auto()
    """The current leader, or the first replica that is in sync or eligible."""
    PREFERRED = auto()
    """The first replica in order of assignment, before the current leader."""
    UNCLEAN = auto()
    """The leader that ONLINE elects; if there is none, the first replica that can lead."""


class ElectionRules(msgspec.Struct, frozen=True):
    """What the cluster's features and the topic's configs say about elections."""

    min_insync_replicas: int = 1
    elr_enabled: bool = False
    unclean: bool = False
    metadata_version: int = LATEST_METADATA_VERSION


class Target(msgspec.Struct, frozen=True):
    """The state that a change aims at; None leaves a field unchanged."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    directory: tuple[int, Uuid] | None = None
    """(broker, the directory of its replica)"""
    recovery_state: int | None = None
    unclean_shutdown: tuple[int, ...] = ()
    """Replicas that may have lost records: no longer eligible."""
    election: Election | None = None
    """None: UNCLEAN where the topic allows it, else ONLINE."""


NO_CHANGE: Final = Target()


class _Assignment(msgspec.Struct, frozen=True):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def new_partition(replicas: Sequence[int], brokers: BrokerLookup) -> PartitionInfo | None:
    """A new partition; None when no replica is on an active broker, so that it would have no leader."""
    isr = tuple(replica for replica in replicas if brokers.is_active(replica))
    if not isr:
        return None
    return PartitionInfo(
        replicas=tuple(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(brokers.new_directory(replica) for replica in replicas),
    )


def change(
    partition: PartitionInfo,
    topic_id: Uuid,
    index: int,
    brokers: BrokerLookup,
    rules: ElectionRules,
    target: Target = NO_CHANGE,
) -> PartitionChangeRecord | None:
    """The record that moves the partition to this target; None when it needs no change."""
    wanted = _completed(_wanted(partition, target))
    elr = _eligible(partition, wanted, target.unclean_shutdown, rules)
    leader, unclean = _elect(partition, wanted, elr, brokers, rules, target.election)
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index)
    isr = wanted.isr
    if leader != partition.leader:
        record.leader = leader
    if leader != NO_LEADER and leader not in isr:
        isr = (leader,)
        elr = () if unclean or _enough(isr, partition, rules) else tuple(each for each in elr if each != leader)
        if unclean and partition.leader_recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING
    if not rules.elr_enabled:
        isr = isr or partition.isr
        elr = () if isr else elr
    if isr != partition.isr:
        record.isr = list(isr)
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    if record.leader == LEADER_UNCHANGED and _raises_leader_epoch(partition, wanted, record.isr, rules):
        record.leader = partition.leader
    if rules.elr_enabled:
        _record_last_leader(record, partition)
    _write_assignment(record, partition, wanted, target, brokers, rules)
    if target.recovery_state is not None and target.recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = target.recovery_state
    return None if _is_empty(record) else record


def _wanted(partition: PartitionInfo, target: Target) -> _Assignment:
    return _Assignment(
        partition.replicas if target.replicas is None else target.replicas,
        partition.isr if target.isr is None else target.isr,
        partition.adding if target.adding is None else target.adding,
        partition.removing if target.removing is None else target.removing,
    )


def _completed(wanted: _Assignment) -> _Assignment:
    """The target of the reassignment, if that is complete."""
    adding, removing = wanted.adding, wanted.removing
    if not adding and not removing:
        return wanted
    isr = tuple(replica for replica in wanted.isr if replica not in removing)
    replicas = tuple(replica for replica in wanted.replicas if replica not in removing)
    if removing and not (isr and replicas):
        return wanted
    awaited = replicas if len(adding) < len(removing) else adding
    if any(replica not in isr for replica in (*adding, *awaited)):
        return wanted
    return _Assignment(replicas, isr, (), ())


def _eligible(
    partition: PartitionInfo, wanted: _Assignment, unclean_shutdown: Sequence[int], rules: ElectionRules
) -> tuple[int, ...]:
    """The ELR. With the feature disabled, what is left from when it was enabled."""
    if not rules.elr_enabled:
        return partition.elr
    if _enough(wanted.isr, partition, rules):
        return ()
    eligible = sorted(
        replica
        for replica in {*partition.elr, *partition.isr}
        if replica in wanted.replicas and replica not in wanted.isr and replica not in unclean_shutdown
    )
    # In the current order, so that no record is written when nothing changes.
    return partition.elr if sorted(partition.elr) == eligible else tuple(eligible)


def _enough(isr: Sequence[int], partition: PartitionInfo, rules: ElectionRules) -> bool:
    """Whether an ISR suffices to commit. A min.insync.replicas above the replication factor counts as that."""
    return len(isr) >= min(rules.min_insync_replicas, len(partition.replicas))


def _elect(
    partition: PartitionInfo,
    wanted: _Assignment,
    elr: Sequence[int],
    brokers: BrokerLookup,
    rules: ElectionRules,
    election: Election | None,
) -> tuple[int, bool]:
    """The leader, and whether the election is unclean."""

    def can_lead(replica: int) -> bool:
        directory = partition.directory_of(replica)
        return directory is not None and brokers.can_lead(replica, directory)

    clean = wanted.isr or elr
    if election is Election.PREFERRED and wanted.replicas[0] in clean and can_lead(wanted.replicas[0]):
        return wanted.replicas[0], False
    if partition.leader in clean and can_lead(partition.leader):
        return partition.leader, False
    for replica in wanted.replicas:
        if replica in clean and can_lead(replica):
            return replica, False
    last = partition.last_known_elr
    if rules.elr_enabled and not clean and len(last) == 1 and last[0] in wanted.replicas and can_lead(last[0]):
        return last[0], True
    if election is Election.UNCLEAN or (election is None and rules.unclean):
        for replica in wanted.replicas:
            if can_lead(replica):
                return replica, True
    return NO_LEADER, False


def _raises_leader_epoch(
    partition: PartitionInfo, wanted: _Assignment, isr: Sequence[int] | None, rules: ElectionRules
) -> bool:
    """Whether the leader epoch rises although the leader stays."""
    if wanted.replicas != partition.replicas and any(each not in wanted.replicas for each in partition.replicas):
        return True
    if isr is None or rules.metadata_version >= _SHRINKING_KEEPS_EPOCH_SINCE:
        return False
    return any(replica not in isr for replica in partition.isr)


def _record_last_leader(record: PartitionChangeRecord, partition: PartitionInfo) -> None:
    """Records the last leader while there is none: the best choice if no clean candidate returns."""
    if record.leader == NO_LEADER:
        if partition.leader != NO_LEADER and not partition.last_known_elr:
            record.last_known_elr = [partition.leader]
    elif record.leader != LEADER_UNCHANGED and partition.last_known_elr:
        record.last_known_elr = []


def _write_assignment(
    record: PartitionChangeRecord,
    partition: PartitionInfo,
    wanted: _Assignment,
    target: Target,
    brokers: BrokerLookup,
    rules: ElectionRules,
) -> None:
    if wanted.replicas != partition.replicas:
        record.replicas = list(wanted.replicas)
    if wanted.adding != partition.adding:
        record.adding_replicas = list(wanted.adding)
    if wanted.removing != partition.removing:
        record.removing_replicas = list(wanted.removing)
    moved = record.replicas is not None or target.directory is not None
    if moved and rules.metadata_version >= DIRECTORIES_SINCE:
        known = dict(zip(partition.replicas, partition.directories, strict=False))
        if target.directory is not None:
            known[target.directory[0]] = target.directory[1]
        directories = [
            known[replica] if replica in known else brokers.new_directory(replica) for replica in wanted.replicas
        ]
        if tuple(directories) != partition.directories:
            record.directories = directories


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == LEADER_UNCHANGED
        and record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.adding_replicas is None
        and record.removing_replicas is None
        and record.directories is None
    )
