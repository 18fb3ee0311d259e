"""The content of a file as immutable pages of up to 4 KiB, by page number; missing pages read as zeros.

Used by `volume`. A write replaces the pages it touches; all others stay shared with other copies of the file.
"""

from __future__ import annotations

PAGE_BYTES = 4096

Pages = dict[int, bytes]


def pages_up_to(size: int) -> int:
    return -(-size // PAGE_BYTES)


def read_pages(pages: Pages, file_size: int, position: int, size: int) -> bytes:
    end = min(position + size, file_size)
    if end <= position:
        return b""
    first, last = position // PAGE_BYTES, pages_up_to(end)
    whole = b"".join([pages.get(page, b"").ljust(PAGE_BYTES, b"\0") for page in range(first, last)])
    skip = position - first * PAGE_BYTES
    return whole[skip : skip + end - position]


def write_pages(pages: Pages, position: int, data: bytes) -> None:
    """A stored page ends at its last byte ever written; the rest reads as zeros."""
    written = 0
    while written < len(data):
        page, skip = divmod(position + written, PAGE_BYTES)
        piece = data[written : written + PAGE_BYTES - skip]
        old = pages.get(page, b"")
        if len(old) < skip:
            old = old.ljust(skip, b"\0")
        pages[page] = old[:skip] + piece + old[skip + len(piece) :]
        written += len(piece)


def truncate_pages(pages: Pages, size: int) -> None:
    page, skip = divmod(size, PAGE_BYTES)
    for beyond in [number for number in pages if number > page or (number == page and skip == 0)]:
        del pages[beyond]
    if page in pages:
        pages[page] = pages[page][:skip]
