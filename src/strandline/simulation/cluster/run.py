"""Runs one plan: starts the cluster, injects faults with all checkers active, heals, and waits for recovery."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import Context

import msgspec
from msgspec.structs import replace

from strandline.simulation.cluster.checker import Checker, CheckerRunner
from strandline.simulation.cluster.checkers.broker_fencing import FailedBrokersAreFenced, LiveBrokersAreNotFenced
from strandline.simulation.cluster.checkers.controlled_shutdown import LeadershipMovesBeforeShutdown
from strandline.simulation.cluster.checkers.election_safety import OneLeaderPerEpoch
from strandline.simulation.cluster.checkers.epochs import EpochsNeverDecrease
from strandline.simulation.cluster.checkers.image_replay import ImageMatchesRecords
from strandline.simulation.cluster.checkers.isr_durability import IsrHoldsCommittedRecords
from strandline.simulation.cluster.checkers.leader_stability import (
    LeadersResignWithoutMajority,
    NoPreVoteAgainstReachableLeader,
)
from strandline.simulation.cluster.checkers.maximal_isr import MaximalIsrContainsCommittedIsr
from strandline.simulation.cluster.checkers.metadata_agreement import MetadataAgreesEverywhere
from strandline.simulation.cluster.checkers.partition_changes import (
    FencedBrokersDoNotJoinIsr,
    NoUncleanElections,
    ReassignmentsCompleteInSync,
)
from strandline.simulation.cluster.checkers.partition_consistency import PartitionsAreConsistent
from strandline.simulation.cluster.checkers.pending_requests import LostLeadershipFailsPendingRequests
from strandline.simulation.cluster.checkers.producer_ids import ProducerIdBlocksAreUnique
from strandline.simulation.cluster.checkers.quorum_commits import QuorumCommitsAreDurable
from strandline.simulation.cluster.checkers.replica_agreement import ReplicasAgree
from strandline.simulation.cluster.checkers.stale_epochs import (
    OneProcessPerBroker,
    StaleBrokerEpochsAreRejected,
    StaleIsrProposalsAreRejected,
    StaleRegistrationsAreRejected,
)
from strandline.simulation.cluster.checkers.unclean_restarts import UncleanRestartsLoseEligibility
from strandline.simulation.cluster.checkers.voter_sets import VoterSetsMatchTheLog
from strandline.simulation.cluster.checkers.votes import VotesAreDurable
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.committed_records import CommittedRecords
from strandline.simulation.cluster.faults import Faults, raise_error
from strandline.simulation.cluster.liveness import until_settled
from strandline.simulation.cluster.metadata_model import MetadataModel
from strandline.simulation.cluster.metadata_workload import MetadataWorker
from strandline.simulation.cluster.plan import Plan
from strandline.simulation.cluster.record_workload import RecordWorkload
from strandline.simulation.cluster.topic_history import TopicHistory
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.loop import Deadlock, LimitReached, VirtualLoop
from strandline.simulation.process import current_process
from strandline.simulation.world import Simulation, UnhandledErrors

_SETTLING_S = 180
_RESPONSE_S = 20
_MAX_STEPS = 1_000_000


class Outcome(msgspec.Struct):
    plan: Plan
    violation: Violation | None = None
    digest: str = ""
    steps: int = 0
    virtual_s: float = 0.0
    acknowledged: int = 0
    unknown: int = 0
    committed: int = 0
    delivered: int = 0
    """Records acknowledged to producers."""
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    story: list[str] = msgspec.field(default_factory=list)
    details: str = ""
    """The stack trace of an unexpected error."""


def run_plan(plan: Plan, on_line: Callable[[str], None] | None = None) -> Outcome:
    """`on_line` receives the log lines of the nodes."""
    try:
        return _run(plan, on_line)
    finally:
        _collect_garbage()


def _run(plan: Plan, on_line: Callable[[str], None] | None) -> Outcome:
    outcome = Outcome(plan)
    with _NodeLogHandler(on_line) as handler, Simulation(plan.seed, replace(plan.weather)) as simulation:
        handler.loop = simulation.loop
        chronicle = Chronicle(simulation.loop)
        run = Run(simulation, plan, chronicle)
        try:
            simulation.run(run.scenario(), max_virtual_s=plan.safety_ms / 1000 + _SETTLING_S, max_steps=_MAX_STEPS)
        except Violation as violation:
            outcome.violation = violation
        except (Deadlock, LimitReached) as error:
            outcome.violation = Violation("liveness", str(error))
        except UnhandledErrors as error:
            outcome.violation = Violation("error", str(error))
        except Exception as error:
            error.add_note(f"in seed {plan.seed}")
            outcome.violation = Violation("error", _with_notes(error))
            outcome.violation.__cause__ = error
        if outcome.violation is not None:
            chronicle.note("", f"VIOLATION {outcome.violation}")
            outcome.details = _details(outcome.violation)
        outcome.digest = simulation.trace.digest()
        outcome.steps = simulation.loop.steps
        outcome.virtual_s = simulation.loop.now_us / 1_000_000
        outcome.acknowledged, outcome.unknown = run.history.acknowledged, run.history.unknown
        outcome.delivered = sum(workload.records.acknowledged for workload in run.record_workloads)
        outcome.committed = run.cluster.metadata.end
        outcome.faults, outcome.story = chronicle.faults, chronicle.story()
    return outcome


def _collect_garbage() -> None:
    """Frees the nodes of the run, which were dropped without being stopped. (A starting node calls gc.freeze, since it
    expects to live long.) Warnings of coroutines closed now are suppressed."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.unfreeze()
        gc.collect()
    finally:
        sys.unraisablehook = hook


class Run:
    def __init__(self, simulation: Simulation, plan: Plan, chronicle: Chronicle) -> None:
        self._plan = plan
        self._chronicle = chronicle
        self.cluster = cluster = Cluster(simulation, plan, chronicle)
        metadata, model = cluster.metadata, MetadataModel()
        metadata.subscribe(model.replay)
        committed_records = CommittedRecords(cluster, model)
        self.history = TopicHistory(metadata)
        self.record_workloads = [RecordWorkload(number + 1, cluster, self.history) for number in range(plan.producers)]
        checkers: list[Checker] = [
            OneLeaderPerEpoch(),
            VotesAreDurable(cluster),
            QuorumCommitsAreDurable(cluster, metadata),
            MetadataAgreesEverywhere(cluster, metadata),
            PartitionsAreConsistent(metadata, plan.configs),
            EpochsNeverDecrease(metadata, chronicle),
            StaleBrokerEpochsAreRejected(cluster),
            StaleIsrProposalsAreRejected(cluster),
            StaleRegistrationsAreRejected(cluster),
            OneProcessPerBroker(cluster),
            LiveBrokersAreNotFenced(cluster),
            ImageMatchesRecords(metadata, model),
            NoUncleanElections(model, plan.configs),
            ReassignmentsCompleteInSync(model),
            FencedBrokersDoNotJoinIsr(model),
            ProducerIdBlocksAreUnique(metadata),
            NoPreVoteAgainstReachableLeader(cluster),
            LeadersResignWithoutMajority(cluster),
            VoterSetsMatchTheLog(),
            LeadershipMovesBeforeShutdown(cluster, model),
            FailedBrokersAreFenced(cluster),
            LostLeadershipFailsPendingRequests(cluster),
            UncleanRestartsLoseEligibility(cluster, model),
            committed_records,
            MaximalIsrContainsCommittedIsr(cluster),
            ReplicasAgree(cluster, committed_records),
            IsrHoldsCommittedRecords(cluster, committed_records),
        ]
        self._checker_runner = CheckerRunner(cluster, checkers)

    async def scenario(self) -> None:
        cluster = self.cluster
        faults = Faults(cluster)
        workers = [MetadataWorker(number + 1, cluster, self.history) for number in range(self._plan.clients)]
        programs = {worker.name: worker.run for worker in workers}
        for workload in self.record_workloads:
            programs |= {workload.writer: workload.write, workload.reader: workload.read}
        cluster.clients = list(programs)
        cluster.start()
        faults.start()
        working = {name: cluster.simulation.machine(name).boot(program) for name, program in programs.items()}
        for task in working.values():
            task.add_done_callback(raise_error)
        await asyncio.sleep(self._plan.safety_ms / 1000)
        await faults.heal()
        await until_settled(cluster, self.history)
        for worker in workers:
            worker.stopping = True
        for workload in self.record_workloads:
            workload.stopping = True
        await self._until_clients_end(working)
        for workload in self.record_workloads:
            await cluster.simulation.machine(f"{workload.reader} again").boot(workload.read_back)
        self._checker_runner.finish()
        self.history.check()

    async def _until_clients_end(self, working: Mapping[str, asyncio.Task[None]]) -> None:
        """Requests that were sent before healing must complete soon after it."""
        for name, task in working.items():
            for _ in range(_RESPONSE_S * 10):
                if task.done():
                    break
                await asyncio.sleep(0.1)
            else:
                excused = any(workload.is_excused() for workload in self.record_workloads if workload.writer == name)
                if not excused:
                    raise Violation("liveness", f"{name} has waited {_RESPONSE_S} s for a response")
                task.cancel()


def _details(violation: Violation) -> str:
    cause = violation.__cause__
    return "" if cause is None else "".join(traceback.format_exception(cause))


def _with_notes(error: BaseException) -> str:
    return "\n".join([repr(error), *getattr(error, "__notes__", ())])


class _NodeLogHandler(logging.Handler):
    """Handles log lines of the nodes. An error logged with a traceback is a bug: it ends the run after the event."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        super().__init__(logging.DEBUG if on_line is not None else logging.ERROR)
        self.loop: VirtualLoop | None = None
        self._on_line = on_line
        self._logger = logging.getLogger("strandline")
        self._bug: logging.LogRecord | None = None
        self._before = (self._logger.level, self._logger.propagate)

    def __enter__(self) -> _NodeLogHandler:
        self._logger.setLevel(logging.INFO if self._on_line is not None else logging.ERROR)
        self._logger.propagate = False
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)  # also clears the level caches of child loggers

    def emit(self, record: logging.LogRecord) -> None:
        if self.loop is None or self.loop.is_closed():
            return
        if self._on_line is not None:
            process = current_process()
            name = "" if process is None else process.name
            self._on_line(f"{self.loop.now_us / 1_000_000:10.4f} s  {name:<10} {record.getMessage()}")
        if record.levelno >= logging.ERROR and record.exc_info and self._bug is None:
            self._bug = record
            self.loop.call_soon(self._raise_bug, context=Context())

    def _raise_bug(self) -> None:
        assert self._bug is not None and self._bug.exc_info is not None
        error = self._bug.exc_info[1]
        raise Violation("error", f"{self._bug.getMessage()}: {error!r}") from error
