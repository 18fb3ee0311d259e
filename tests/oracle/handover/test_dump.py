"""Kafka's tools read every file of our node, after a clean stop and after a kill, without errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.java.jvm import Tools
from oracle.handover.handovers import Handovers
from oracle.metadata_shell import run_metadata_shell

pytestmark = pytest.mark.xdist_group("handover")

DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = ("mismatch", "not found", "invalid bytes", "exception", "larger than", "isvalid: false")
METADATA = "__cluster_metadata-0"
STATES = ("closed-by-us", "killed")


def files(home: Path, suffix: str) -> list[str]:
    """All files with a suffix, without the metadata log and without deleted topics, whose files are being deleted."""
    return [
        str(file)
        for file in sorted(home.glob(f"*/*.{suffix}"))
        if not file.parent.name.endswith("-delete") and file.parent.name != METADATA
    ]


def dump(tools: Tools, home: Path, suffix: str) -> list[str]:
    done = tools.run(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(files(home, suffix)))
    assert done.code == 0, done.output
    assert not [line for line in done.lines if any(word in line.lower() for word in COMPLAINTS)]
    return done.lines


@pytest.fixture(params=STATES)
def home(formatted_by_us: Handovers, request: pytest.FixtureRequest) -> Path:
    return formatted_by_us.properties.parent / str(request.param)


def test_all_batches_and_records_of_logs_are_read(home: Path, tools: Tools) -> None:
    lines = dump(tools, home, "log")
    records = [line for line in lines if line.startswith("| offset: ")]
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert len(records) > 600 and len(records) > len(batches) > 60
    assert {line.split("compresscodec: ")[1].split()[0] for line in batches} == {
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    }


def test_offsets_have_gaps_only_where_compaction_left_them(home: Path, tools: Tools) -> None:
    file = ""
    gaps: set[str] = set()
    for line in dump(tools, home, "log"):
        if line.startswith("Non-consecutive offsets in "):
            file = line
        elif " is followed by " in line and not line.startswith("-1 "):
            gaps.add(Path(file).parent.name)
    assert gaps <= {"compacted-0"}


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes_agree_with_their_logs(home: Path, tools: Tools, suffix: str) -> None:
    entries = [line for line in dump(tools, home, suffix) if line.startswith(("offset: ", "timestamp: "))]
    assert len(entries) > 10
    checked = tools.run(DUMP, "--index-sanity-check", "--files", ",".join(files(home, suffix)))
    passed = [line for line in checked.lines if line.endswith(("passed sanity check.", "is empty."))]
    assert checked.code == 0 and len(passed) == len(files(home, suffix)), checked.output


def test_producer_snapshots_are_read(home: Path, tools: Tools) -> None:
    producers = [line for line in dump(tools, home, "snapshot") if line.startswith("producerId: ")]
    assert len(producers) > 10


@pytest.mark.parametrize("suffix", ["log", "checkpoint"])
def test_metadata_is_decoded_record_by_record(home: Path, tools: Tools, suffix: str) -> None:
    files = ",".join(str(file) for file in sorted((home / METADATA).glob(f"*.{suffix}")))
    done = tools.run(DUMP, "--cluster-metadata-decoder", "--files", files)
    assert done.code == 0, done.output
    assert not [line for line in done.lines if any(word in line.lower() for word in (*COMPLAINTS, "error"))]
    decoded = {line.split('"type":"')[1].split('"')[0] for line in done.lines if '"type":"' in line}
    assert {"FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} <= decoded


@pytest.mark.parametrize("state", STATES)
def test_the_metadata_shell_reads_our_newest_snapshot(formatted_by_us: Handovers, programs: str, state: str) -> None:
    snapshot = max((formatted_by_us.properties.parent / state / METADATA).glob("*.checkpoint"))
    assert not snapshot.name.startswith("0" * 20), "no snapshot was taken"
    wanted = {"plain", "rolled", "compacted", "doomed"}
    listed = run_metadata_shell(
        programs, snapshot, ("ls", "/image/topics/byName"), lambda output: wanted <= set(output.split())
    )
    assert wanted <= set(listed.split())
