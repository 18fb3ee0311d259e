from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.log_dump import NotALogFile, dump
from strandline.cli.main import run
from strandline.protocol.messages.metadata_records import TopicRecord
from strandline.protocol.metadata_codec import encode_record
from strandline.records.batch import Codec, Record, encode_batch, end_transaction_marker


def entries(path: Path, *, records: bool = False) -> list[dict[str, Any]]:
    return list(dump(str(path), records=records))


def batch(base_offset: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(base_offset + index, 5, b"k", value, [("h", None)]) for index, value in enumerate(values)]
    return bytes(encode_batch(records, base_offset=base_offset, codec=codec, producer_id=9, base_sequence=0))


def segment(directory: Path, data: bytes, partition: str = "t-0", name: str = "00000000000000000000.log") -> Path:
    (directory / partition).mkdir(exist_ok=True)
    path = directory / partition / name
    path.write_bytes(data)
    return path


def test_batches_are_shown_with_their_positions_and_records(tmp_path: Path) -> None:
    first, second = batch(0, b"a", b"\xff"), batch(2, b"c", codec=Codec.ZSTD)
    found = entries(segment(tmp_path, first + second), records=True)
    assert [entry["type"] for entry in found] == ["batch", "record", "record", "batch", "record"]
    assert (found[0]["last_offset"], found[0]["valid"], found[0]["codec"]) == (1, True, "none")
    assert (found[3]["position"], found[3]["codec"], found[3]["producer_id"]) == (len(first), "zstd", 9)
    assert found[1] == {
        "type": "record",
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": "a",
        "headers": [{"key": "h", "value": None}],
    }
    assert found[2]["value_base64"] == "/w=="


def test_metadata_and_control_records_are_decoded(tmp_path: Path) -> None:
    value = encode_record(TopicRecord(name="orders"), 0)
    data = bytes(encode_batch([Record(0, 0, None, value)]))
    data += bytes(
        end_transaction_marker(
            commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=3, timestamp=0, base_offset=1
        )
    )
    found = entries(segment(tmp_path, data, "__cluster_metadata-0"), records=True)
    assert (found[1]["record"], found[1]["fields"]["name"]) == ("TopicRecord", "orders")
    assert (found[3]["control"], found[3]["fields"]["coordinator_epoch"]) == ("ABORT", 3)


def test_damage_is_shown_with_its_position_and_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(batch(0, b"aaaa") + batch(1, b"b"))
    data[70] ^= 1
    path = segment(tmp_path, bytes(data[:-1]))
    found = entries(path)
    assert [entry["type"] for entry in found] == ["batch", "damage"]
    assert found[0]["valid"] is False
    assert "1 bytes before" in found[1]["why"]
    assert run(["log", "dump", str(path)]) == 1
    assert "2 damaged entries" in capsys.readouterr().err


def test_preallocated_zeros_are_not_damage(tmp_path: Path) -> None:
    path = segment(tmp_path, batch(0, b"a") + bytes(500))
    assert [entry["type"] for entry in entries(path)] == ["batch", "zeros"]


def test_indexes_are_read_with_their_base_offset_up_to_the_zeros(tmp_path: Path) -> None:
    index = segment(tmp_path, struct.pack(">iiii", 3, 100, 9, 200) + bytes(16), name="00000000000000001000.index")
    assert entries(index) == [
        {"type": "index", "offset": 1003, "position": 100},
        {"type": "index", "offset": 1009, "position": 200},
    ]
    times = segment(tmp_path, struct.pack(">qi", 77, 3), name="00000000000000001000.timeindex")
    assert entries(times) == [{"type": "timeindex", "timestamp": 77, "offset": 1003}]
    aborted = segment(tmp_path, struct.pack(">hqqqq", 0, 1, 2, 3, 4), name="00000000000000001000.txnindex")
    assert entries(aborted)[0] == {
        "type": "txnindex",
        "version": 0,
        "producer_id": 1,
        "first_offset": 2,
        "last_offset": 3,
        "last_stable_offset": 4,
    }


def test_checkpoints_are_shown_unchanged_and_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\nt 0 5\n")
    assert [entry["text"] for entry in entries(path)] == ["0", "1", "t 0 5"]
    with pytest.raises(NotALogFile, match=r"\*\.log"):
        entries(tmp_path / "something.txt")


def test_a_partition_directory_is_dumped_as_its_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment(tmp_path, batch(0, b"a"))
    segment(tmp_path, batch(1, b"b"), name="00000000000000000001.log")
    assert run(["log", "dump", "--json", str(tmp_path / "t-0")]) == 0
    assert capsys.readouterr().out.count('"type":"batch"') == 2
    assert run(["log", "dump", str(tmp_path)]) == 1
    assert "holds no *.log" in capsys.readouterr().err
