"""CRC-32C, the checksum of every batch and of producer snapshots, in C.

The package that brings it reads its own version from its metadata when it is imported, and with that a good part of the
standard library: a tenth of a node's start. So its extension module is loaded by itself, where it can be found.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as whole_package

        return whole_package
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


crc32c = _load()
