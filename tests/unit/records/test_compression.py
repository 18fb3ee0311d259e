from __future__ import annotations

import contextlib
import subprocess
import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.compression import Codec, compress, decompress
from strandline.records.errors import CorruptBatch, DecompressionLimit

TEXT = b"".join(b"%d bottles of beer on the wall, " % n for n in range(20_000))
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 600, bytes(200_000)], ids=len)
def test_compressed_data_decompresses_to_itself(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [-1, *range(1, 10)]), (Codec.LZ4, range(1, 18)), (Codec.ZSTD, [-131072, -7, 1, 3, 9, 22])],
    ids=str,
)
def test_every_level_that_a_config_allows_works(codec: Codec, levels: list[int]) -> None:
    data = TEXT[:10_000]
    for level in levels:
        assert bytes(decompress(codec, compress(codec, data, level), len(data))) == data


def test_levels_make_a_difference() -> None:
    assert len(compress(Codec.GZIP, TEXT, 9)) < len(compress(Codec.GZIP, TEXT, 1))
    assert len(compress(Codec.LZ4, TEXT, 12)) < len(compress(Codec.LZ4, TEXT, 1)) < len(compress(Codec.LZ4, TEXT))
    assert len(compress(Codec.ZSTD, TEXT, 19)) < len(compress(Codec.ZSTD, TEXT, 1))


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    framed = bytes(compress(Codec.SNAPPY, TEXT))
    assert framed[:16].hex() == "82534e4150505900" + "00000001" + "00000001"
    first = int.from_bytes(framed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + first])) == TEXT[: 32 * 1024]


def test_snappy_without_framing_is_decompressed() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT))) == TEXT


def test_lz4_is_written_as_independent_blocks_of_64_kib_without_checksums() -> None:
    frame = bytes(compress(Codec.LZ4, TEXT))
    assert frame[:7].hex() == "04224d18604082"
    assert frame[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(frame)) == TEXT


@pytest.mark.parametrize("level", [1, 9, 17])
def test_lz4_blocks_are_independent_and_of_64_kib_at_every_level(level: int) -> None:
    _, _, _, _, flags, block_size, *_ = bytes(compress(Codec.LZ4, TEXT, level))
    assert flags & 0x20
    assert block_size == 0x40


def test_an_lz4_block_that_does_not_shrink_is_stored_as_it_is() -> None:
    noise = bytes((n * n * 2654435761 >> 13) & 0xFF for n in range(1000))
    frame = bytes(compress(Codec.LZ4, noise))
    assert frame[7:11] == (1000 | 1 << 31).to_bytes(4, "little")
    assert bytes(decompress(Codec.LZ4, frame, 1000)) == noise


def test_lz4_frames_of_other_writers_are_decompressed() -> None:
    assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), len(TEXT))) == TEXT


def test_zstd_without_a_content_size_is_decompressed() -> None:
    compressor = cramjam.zstd.Compressor(3)
    compressor.compress(TEXT)
    assert bytes(decompress(Codec.ZSTD, bytes(compressor.finish()), len(TEXT))) == TEXT


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_over_the_limit_is_rejected(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert len(decompress(codec, data, len(TEXT))) == len(TEXT)
    with pytest.raises(DecompressionLimit):
        decompress(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_truncated_frame_is_corrupt(codec: Codec) -> None:
    whole = bytes(compress(codec, TEXT[:500]))
    for end in range(1, len(whole)):
        try:
            decompressed = bytes(decompress(codec, whole[:end], 10_000))
        except CorruptBatch:
            continue
        # Snappy's framing has no end mark: truncated between two blocks it is a shorter, valid stream.
        assert codec == Codec.SNAPPY
        assert decompressed == b""


@given(st.sampled_from([*COMPRESSED, 5, 7, -1]), st.binary(max_size=200), st.integers(0, 5000))
def test_any_bytes_decompress_or_are_corrupt(codec: int, data: bytes, limit_bytes: int) -> None:
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, data, limit_bytes)) <= limit_bytes


@given(st.sampled_from(COMPRESSED), st.data())
def test_mutated_frames_decompress_or_are_corrupt(codec: Codec, data: st.DataObject) -> None:
    frame = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, frame, 4000)) <= 4000


MEASURE = """
import sys
from strandline.records.compression import decompress
from strandline.records.errors import DecompressionLimit

def peak_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

def rejected(limit_bytes):
    try:
        decompress(int(sys.argv[1]), bomb, limit_bytes)
    except DecompressionLimit:
        return True

bomb = sys.stdin.buffer.read()
assert rejected(1 << 16)
before = peak_kib()
assert rejected(8 << 20)
print((peak_kib() - before) // 1024)
"""


def zstd_bomb() -> bytes:
    """One MiB that repeats "the same byte, 128 KiB times", with the largest window that a frame may require."""
    block = (1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"a"
    return bytes.fromhex("28b52ffd0088") + block * (1 << 18)


def gzip_bomb() -> bytes:
    compressor = cramjam.gzip.Compressor(9)
    for _ in range(64):
        compressor.compress(bytes(1 << 20))
    return bytes(compressor.finish())


def lz4_bomb() -> bytes:
    """Blocks of 4 MiB, the largest possible."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    header = bytes.fromhex("04224d18") + bytes([0x60, 0x70, 0x73])
    return header + (len(block).to_bytes(4, "little") + block) * 64 + bytes(4)


BOMBS = {Codec.ZSTD: zstd_bomb, Codec.GZIP: gzip_bomb, Codec.LZ4: lz4_bomb}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize("codec", list(BOMBS))
def test_a_decompression_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = BOMBS[codec]()
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(int(codec))],
        input=bomb,
        capture_output=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    grown_mib = int(run.stdout)
    # The buffer of eight, and a window of at most as much again: the bombs decompress to 32 GiB, 64 MiB and 256 MiB.
    assert 4 <= grown_mib <= 20


def test_a_snappy_bomb_is_rejected_by_its_stated_size() -> None:
    claimed = b"\xff\xff\xff\xff\x0f" + bytes(100)
    with pytest.raises(DecompressionLimit):
        decompress(Codec.SNAPPY, claimed, 1 << 20)
