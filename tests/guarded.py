"""A tripod.Model whose inputs, outputs and own memory end at pages that may not be touched (guard/guard_memory.c).

The process must run under `environment()`: the arenas of a model.so are then guarded as well. A read or a write outside
a buffer ends the process, which the runners report as a crash.
"""
from __future__ import annotations

import ctypes as ct
import os
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from tripod import Model

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build" / "release" / "lib" / "libguard_memory.so"


def active() -> bool:
    """Does this process run with the library preloaded?"""
    return str(LIBRARY) in os.environ.get("LD_PRELOAD", "")


def environment() -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str(LIBRARY)}


class GuardedModel(Model):
    """Blocks lie at the end of their pages, or at the begin of them (`at_begin`)."""

    def __init__(self, path: str, threads: int | None = None, at_begin: bool = False):
        self._guard = ct.CDLL(str(LIBRARY))
        self._guard.guard_allocate.restype = ct.c_void_p
        self._guard.guard_allocate.argtypes = [ct.c_size_t, ct.c_size_t]
        self._guard.guard_at_begin(int(at_begin))
        super().__init__(path, threads)

    def _block(self, alignment: int, size: int) -> int:
        address = self._guard.guard_allocate(alignment, max(size, 1))
        if not address:
            raise MemoryError(f"{size} guarded bytes")
        return address

    def place(self, a: np.ndarray) -> np.ndarray:
        """A copy of `a` between two pages that may not be touched, aligned to its elements and no more."""
        a = np.asarray(a, order="C")
        if a.dtype.kind in "OUS" or a.nbytes == 0:
            return a
        raw = (ct.c_uint8 * a.nbytes).from_address(self._block(a.itemsize, a.nbytes))
        placed = np.frombuffer(raw, dtype=np.uint8).view(a.dtype).reshape(a.shape)
        placed[...] = a
        return placed

    def _allocate(self, _user: int, output: int, size: int, dtype: int, _rank: int, _shape: Any) -> int:
        """The allocator callback. Outputs may be aligned to their elements only, as the caller's own may."""
        from tripod.capi import DTYPES
        return self._block(DTYPES[dtype].itemsize, size)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return super().run([self.place(v) if isinstance(v, np.ndarray) else v for v in inputs])
