"""Names that were replaced by the terms of Kafka and Raft do not return (docs/GLOSSARY.md has today's terms)."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "strandline"

MODULES = """
    cli/dump cli/encodings cli/formatting cli/moves cli/printing controller/caretaker controller/clockwork
    controller/deaths controller/dials controller/directories controller/doubts controller/drafts
    controller/elections controller/hosts controller/leaders controller/port controller/rules controller/tokens
    handlers/controllers handlers/failures handlers/leadership handlers/loggers handlers/operations
    handlers/portions handlers/sessions handlers/turns launch/voting log/damage log/entry_file log/housekeeping
    log/leftovers log/opened_records log/resuming log/warming metadata/broker_settings
    metadata/effective_settings metadata/group_settings metadata/settings metadata/topic_settings
    metadata/watching model/settings node/foundation node/recollection node/releases protocol/source
    raft/disk/examination raft/disk/mark raft/machine/announcements raft/machine/answers
    raft/machine/correspondence raft/machine/following raft/machine/hearing raft/machine/joining
    raft/machine/leading raft/machine/mail
    raft/machine/patience raft/machine/seat raft/machine/snapshot_transfer raft/shell/commits
    raft/shell/cutting raft/shell/exchanges raft/shell/inbox raft/shell/leadership raft/shell/replies
    raft/shell/snapshotting records/corrupt replication/conversation replication/engine replication/logs
    replication/offset_questions replication/remote replication/upkeep runtime/slices simulation/cluster/caller
    simulation/cluster/checkers/agreement simulation/cluster/checkers/answers simulation/cluster/checkers/copies
    simulation/cluster/checkers/deaths simulation/cluster/checkers/departures simulation/cluster/checkers/ghosts
    simulation/cluster/checkers/holdings simulation/cluster/checkers/memories
    simulation/cluster/checkers/successions simulation/cluster/checkers/unrest simulation/cluster/insight
    simulation/cluster/ledger simulation/cluster/scribe simulation/cluster/waterline simulation/cluster/wiretap
    simulation/power_loss
"""

CLASSES = """
    Alarm AskForOffsets Askers BeginAgain Caretaker CheckingScan ClusterPart ColdTransactions CommitsAreKept
    CommittedNote CommittedRecordsAreHeld ConfigRefused ConfigsPart ControllerMember Conversation CopiesAgree
    Correspondence DeathWatch Deaths Dial Dials DiskEmptied Doubts Draft Duties Duty EntryFile EpochsNeverFall
    Equipment FormatMisread Foundation Hosts IdentityUnreadable Isrs LeadersAreFollowed LeadersCountWhoIsInSync
    LeadersHandOverFirst LeadersHaveTheRecords Letter LiveSettings LivingLeadersAreProtected LoneReplica
    LostLeadersAnswer Manners MetadataAgrees Misused NoDials NoOldProposalCounts NobodyEntersWhoLeaves
    NobodyIsOld NodeDied NodesDied OffsetsMisread OtherCluster PartitionStep PartitionsAreSound
    ProducerIdsAreGivenOnce ReassignmentsEndInSync Recollection RecordsMeanWhatTheySay RecordsRefused RefusalLog
    Scribe Seat SecurityPart SettingRefused Sight SilenceIsNoDeath Snapshotting StorageRefused Surroundings
    TheDeadAreFenced TheForgetfulAreNotEligible TheLivingKeepTheirPlace TopicRules TopicsPart TopologyRefused
    Turns UnwelcomeFrame Upkeep Verdict VotersAreThoseOfTheLog VotesAreKept Waterlines WholePart Wiretap
"""


def test_no_retired_module_name_returns() -> None:
    assert [name for name in MODULES.split() if (SOURCE / f"{name}.py").exists() or (SOURCE / name).is_dir()] == []


def test_no_retired_class_name_returns() -> None:
    defined = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert defined.isdisjoint(CLASSES.split())
