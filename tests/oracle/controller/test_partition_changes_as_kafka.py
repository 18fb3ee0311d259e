"""Kafka's controller and ours change the same partitions with equal records, and place replicas on the same brokers.

Thousands of random partitions in states that a cluster can reach, each with a requested change. Where we differ on
purpose (`strandline.controller.partitions` says where and why), `_corrected` corrects Kafka's result.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from compat.java.jvm import java
from strandline.controller.partitions import Election, ElectionRules, Target, change
from strandline.controller.placement import Candidate, Striping
from strandline.metadata.values import PartitionInfo
from strandline.model.ids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from strandline.protocol.messages.metadata_records import PartitionChangeRecord

CASES = 20_000
TOPIC = Uuid.of(1, 100)
FIELDS = (
    "leader",
    "leader_recovery_state",
    "isr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
    "directories",
)

Fields = dict[str, Any]


class BrokerLookup:
    def __init__(self, live: list[int]) -> None:
        self._live = live

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        return broker_id in self._live

    def new_directory(self, broker_id: int) -> Uuid:
        return Uuid.of(3, 1000 + broker_id)


def run_kafka(classpath: str, kind: str, cases: list[Fields]) -> list[Any]:
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = java(classpath, "KafkaController", kind, text=lines, timeout=300)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(cases)
    return results


def some(random: Random, members: list[int], at_least: int = 0) -> list[int]:
    return random.sample(members, random.randint(min(at_least, len(members)), len(members)))


def a_partition(random: Random, elr: bool) -> Fields:
    replicas = random.sample(range(1, 8), random.randint(1, 5))
    adding: list[int] = []
    removing: list[int] = []
    if random.random() < 0.4:
        adding = sorted(some(random, replicas))
        removing = sorted(some(random, [replica for replica in replicas if replica not in adding]))
    isr = some(random, replicas, 0 if elr else 1)
    outside = [replica for replica in replicas if replica not in isr]
    eligible = sorted(some(random, outside)) if random.random() < (0.7 if elr else 0.2) else []
    leader = random.choice(isr) if isr and random.random() < 0.7 else -1
    last_known = [random.choice(replicas)] if leader == -1 and random.random() < 0.5 else []
    known = [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, Uuid.of(3, 1000 + random.randint(0, 9))]
    return {
        "replicas": replicas,
        "isr": isr,
        "elr": eligible,
        "last_known_elr": last_known,
        "adding": adding,
        "removing": removing,
        "leader": leader,
        "leader_recovery_state": random.choice((0, 0, 0, 1)),
        "directories": [str(random.choice(known)) for _ in replicas],
    }


def a_target(random: Random, partition: Fields, live: list[int]) -> Fields:
    """One of the changes that are requested of partitions."""
    isr, leader = partition["isr"], partition["leader"]
    kind = random.choice(("nothing", "leave", "unclean", "isr", "reassign", "cancel", "directory"))
    target: Fields = {}
    if kind in ("leave", "unclean") and isr:
        gone = random.choice(isr)
        target["isr"] = [replica for replica in isr if replica != gone]
        if kind == "unclean":
            target["unclean_shutdown"] = [gone]
        if gone in live:
            live.remove(gone)
    elif kind == "isr" and leader != -1:
        followers = [replica for replica in partition["replicas"] if replica != leader]
        target["isr"] = random.sample(
            (some := [leader, *random.sample(followers, random.randint(0, len(followers)))]), len(some)
        )
        target["recovery_state"] = random.choice((0, partition["leader_recovery_state"]))
    elif kind == "reassign":
        wanted = random.sample(range(1, 8), random.randint(1, 4))
        removing = sorted(set(partition["replicas"]) - set(wanted))
        target["adding"] = sorted(set(wanted) - set(partition["replicas"]))
        target["removing"] = removing
        target["replicas"] = wanted + removing
    elif kind == "cancel" and len(partition["adding"]) < len(partition["replicas"]):
        target["replicas"] = [replica for replica in partition["replicas"] if replica not in partition["adding"]]
        target["adding"] = target["removing"] = []
        kept = [replica for replica in isr if replica not in partition["adding"]]
        target["isr"] = kept or target["replicas"][:1]
    elif kind == "directory":
        target["directory"] = [random.choice(partition["replicas"]), str(Uuid.of(4, 4444))]
    return target


def a_case(random: Random) -> Fields:
    elr = random.random() < 0.6
    partition = a_partition(random, elr)
    live = some(random, list(range(1, 8)))
    target = a_target(random, partition, live)
    if not elr and set(partition["elr"]) & set(target.get("isr", ())):
        # Kafka then mistakes a leader from the ISR for one from the ELR, and removes the others from the ISR.
        partition["elr"] = []
    return {
        "partition": partition,
        "target": target,
        "live": live,
        "elr_enabled": elr,
        "min_isr": min(random.randint(1, 3), len(partition["replicas"])),
        "metadata_version": random.choice((7, 11, 12, 16, 17, 23, 30)),
        # No request combines a reassignment with an unclean election: Kafka has no directory for the new leader then.
        "election": "ONLINE" if "adding" in target else random.choice(("ONLINE", "ONLINE", "PREFERRED", "UNCLEAN")),
    }


def ours(case: Fields) -> Fields | None:
    has, wants = case["partition"], dict(case["target"])
    partition = PartitionInfo(
        tuple(has["replicas"]),
        tuple(has["isr"]),
        tuple(has["removing"]),
        tuple(has["adding"]),
        has["leader"],
        5,
        9,
        tuple(Uuid.parse(text) for text in has["directories"]),
        tuple(has["elr"]),
        tuple(has["last_known_elr"]),
        has["leader_recovery_state"],
    )
    if "directory" in wants:
        wants["directory"] = (wants["directory"][0], Uuid.parse(wants["directory"][1]))
    target = Target(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in wants.items()},
        election=Election[case["election"]],
    )
    rules = ElectionRules(case["min_isr"], case["elr_enabled"], False, case["metadata_version"])
    return _fields(change(partition, TOPIC, 0, BrokerLookup(case["live"]), rules, target))


def _fields(record: PartitionChangeRecord | None) -> Fields | None:
    if record is None:
        return None
    fields: Fields = {name: getattr(record, name) for name in FIELDS}
    if fields["directories"] is not None:
        fields["directories"] = [str(directory) for directory in fields["directories"]]
    return fields


def _corrected(case: Fields, kafkas: Fields | None) -> Fields | None:
    """Kafka's record, without what would break our invariants."""
    has = case["partition"]
    fields: Fields = kafkas or {**dict.fromkeys(FIELDS), "leader": -2, "leader_recovery_state": -1}
    fields = dict(fields)
    isr = has["isr"] if fields["isr"] is None else fields["isr"]
    elr = has["elr"] if fields["eligible_leader_replicas"] is None else fields["eligible_leader_replicas"]
    replicas = has["replicas"] if fields["replicas"] is None else fields["replicas"]
    if case["elr_enabled"]:
        elr = [replica for replica in elr if replica in replicas]
        if len(isr) >= case["min_isr"]:
            elr = []
    elif not isr:
        elr = has["elr"]
    fields["eligible_leader_replicas"] = None if elr == has["elr"] else elr
    if fields["last_known_elr"] == [-1]:
        fields["last_known_elr"] = None
    empty = {**dict.fromkeys(FIELDS), "leader": -2, "leader_recovery_state": -1}
    return None if fields == empty else fields


def test_every_change_of_a_partition_is_the_record_that_kafka_writes(oracle_programs: str) -> None:
    random = Random(43)
    cases = [a_case(random) for _ in range(CASES)]
    results = run_kafka(oracle_programs, "change", cases)
    different = []
    kinds = set()
    for case, response in zip(cases, results, strict=True):
        expected, found = _corrected(case, response), ours(case)
        if found != expected:
            different.append({"case": case, "kafka": expected, "ours": found})
        kinds |= {name for name in FIELDS if found and found[name] not in (None, -1, -2)}
    assert not different, f"{len(different)} of {CASES} differ, first: {json.dumps(different[0])}"
    assert kinds == set(FIELDS), "some case sets every field"


class ConstantRandom(Random):
    """Draws the same number every time, so that the order of the draws does not matter."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def randrange(self, bound: int) -> int:  # type: ignore[override]
        return self._number % bound

    def shuffle(self, items: list[Any]) -> None:  # type: ignore[override]
        for last in reversed(range(1, len(items))):
            other = self.randrange(last + 1)
            items[last], items[other] = items[other], items[last]


def test_replicas_are_placed_where_kafka_places_them(oracle_programs: str) -> None:
    random = Random(44)
    cases: list[Fields] = []
    while len(cases) < 2_000:
        brokers = [
            (broker, random.choice((None, "a", "b", "c")), random.random() < 0.2)
            for broker in random.sample(range(20), random.randint(1, 9))
        ]
        if not all(fenced for _, _, fenced in brokers):
            factor = random.randint(1, len(brokers))
            number = random.randint(0, 1000)
            cases.append({"brokers": brokers, "factor": factor, "partitions": 12, "random": number})
    results = run_kafka(oracle_programs, "place", cases)
    for case, response in zip(cases, results, strict=True):
        striping = Striping([Candidate(*broker) for broker in case["brokers"]], ConstantRandom(case["random"]))
        assert [striping.place(case["factor"]) for _ in range(case["partitions"])] == response, case


@pytest.mark.parametrize("seed", range(3))
def test_the_comparison_notices_a_difference(seed: int) -> None:
    """A comparison must be able to fail: with another kind of election some records differ."""
    random = Random(seed)
    cases = [a_case(random) for _ in range(200)]
    assert any(ours(case) != ours({**case, "election": "UNCLEAN"}) for case in cases)
