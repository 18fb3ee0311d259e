"""The same groups given to Kafka's assignors and to ours: the same assignment, partition by partition.

Kafka's depend on the order of its hash maps. Here topic ids are chosen so that this order is ascending, and members are
handed over in ascending order: then both must agree exactly.
"""

from __future__ import annotations

import json
import subprocess
from random import Random
from typing import Any

import pytest

from strandline.coordinator.consumer.assignors.specification import GroupAssignment, GroupSpec, MemberSpec
from strandline.coordinator.consumer.member import Assignment
from strandline.coordinator.consumer.target import ASSIGNORS
from strandline.model.ids import Uuid

GROUPS = 3_000
# Their hash codes are their places in a table of sixteen.
TOPICS = [Uuid.of(0, 112 + number) for number in range(6)]

Story = list[tuple[str, GroupSpec]]


def assign(name: str, spec: GroupSpec) -> GroupAssignment:
    steps = ASSIGNORS[name](spec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert isinstance(end.value, dict)
            return end.value


def story(random: Random) -> Story:
    """A group as it changes: members join and leave, subscriptions and topics change."""
    name = random.choice(["uniform", "uniform", "range"])
    is_homogeneous = random.random() < 0.5
    counts = {topic: random.randint(1, 12) for topic in random.sample(TOPICS, random.randint(1, len(TOPICS)))}
    members: dict[str, frozenset[Uuid]] = {}
    current: GroupAssignment = {}
    steps: Story = []
    for step in range(random.randint(2, 8)):
        if members and random.random() < 0.4:
            gone = random.choice(sorted(members))
            del members[gone]
            current.pop(gone, None)
        if not members or random.random() < 0.8:
            topics = sorted(counts) if is_homogeneous else random.sample(sorted(counts), random.randint(1, len(counts)))
            members[f"m{random.randint(0, 99):02}-{step}"] = frozenset(topics)
        if random.random() < 0.2:
            topic = random.choice(sorted(counts))
            counts[topic] = min(12, counts[topic] + random.randint(1, 3))
        specs = {
            member_id: MemberSpec(f"i{member_id}" if member_id < "m30" else None, topics, current.get(member_id, {}))
            for member_id, topics in sorted(members.items())
        }
        steps.append((name, GroupSpec(specs, dict(counts))))
        current = assign(name, steps[-1][1])
    return steps


def as_json(name: str, spec: GroupSpec) -> dict[str, Any]:
    return {
        "assignor": name,
        "topics": {str(topic): count for topic, count in spec.partition_counts.items()},
        "members": [
            {
                "id": member_id,
                "instance": member.instance_id,
                "topics": [str(topic) for topic in sorted(member.topics)],
                "current": _named(member.current),
            }
            for member_id, member in spec.members.items()
        ],
    }


def _named(assignment: Assignment) -> dict[str, list[int]]:
    return {str(topic): sorted(partitions) for topic, partitions in assignment.items()}


@pytest.mark.slow
def test_our_assignors_assign_as_kafkas_do(oracle_programs: str) -> None:
    random = Random(848)
    groups: Story = []
    while len(groups) < GROUPS:
        groups += story(random)
    lines = "".join(json.dumps(as_json(name, spec)) + "\n" for name, spec in groups)
    command = ["java", "-cp", oracle_programs, "KafkaAssignors"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    kafkas = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(kafkas) == len(groups)
    for (name, spec), theirs in zip(groups, kafkas, strict=True):
        ours = {member_id: _named(assignment) for member_id, assignment in assign(name, spec).items()}
        assert ours == theirs, as_json(name, spec)
