"""CRC-32C, the checksum of batches and producer snapshots, implemented in C.

On import, the package `crc32c` reads its own version from its metadata, which imports a large part of the standard
library and takes a tenth of a node's start-up. So its extension module is loaded directly where it can be found.
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
