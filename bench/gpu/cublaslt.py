"""Products by cuBLASLt through ctypes: the first kernels that its heuristic proposes, each as a call of its own.

torch.matmul runs the one that the heuristic puts first; the best of the first eight is the peer that a library user gets
by trying them. Matrices are row-major: C = A B is computed as the column-major product C' = B' A'.
"""
from __future__ import annotations

import ctypes as ct
from pathlib import Path
from typing import Any, Callable

COMPUTE_32F = 68
TYPES = {"f16": 2, "f32": 0}  # cudaDataType_t
WORKSPACE = 32 << 20
MAX_WORKSPACE_BYTES, BATCH_COUNT, BATCH_STRIDE = 1, 5, 6  # attributes of the preference and of a matrix layout


class Heuristic(ct.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algo", ct.c_uint64 * 8), ("workspace", ct.c_size_t), ("state", ct.c_int), ("waves", ct.c_float), ("reserved", ct.c_int * 4)]


def library() -> ct.CDLL:
    """The one that torch has loaded, or the toolkit's."""
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcublasLt.so" in line}
    return ct.CDLL(next(iter(mapped), "libcublasLt.so.13"))


class CublasLt:
    def __init__(self) -> None:
        self._lib, self._handle = library(), ct.c_void_p()
        self._lib.cublasLtGetVersion.restype = ct.c_size_t
        self.version = self._lib.cublasLtGetVersion()
        self._call("cublasLtCreate", ct.byref(self._handle))

    def _call(self, name: str, *args: Any) -> None:
        if status := getattr(self._lib, name)(*args):
            raise RuntimeError(f"{name} answered {status}")

    def layout(self, dtype: str, rows: int, columns: int, batch: int) -> ct.c_void_p:
        """Of a row-major matrix of `rows` x `columns`: column-major, its transpose."""
        made = ct.c_void_p()
        self._call("cublasLtMatrixLayoutCreate", ct.byref(made), TYPES[dtype], ct.c_uint64(columns), ct.c_uint64(rows), ct.c_int64(columns))
        if batch > 1:
            for attribute, value in ((BATCH_COUNT, ct.c_int32(batch)), (BATCH_STRIDE, ct.c_int64(rows * columns))):
                self._call("cublasLtMatrixLayoutSetAttribute", made, attribute, ct.byref(value), ct.c_size_t(ct.sizeof(value)))
        return made

    def products(self, dtype: str, m: int, n: int, k: int, batch: int, stream: int, workspace: Any,
                 most: int = 8) -> list[Callable[[Any, Any, Any], None]]:
        """Functions (a, b, c) that enqueue c = a b on `stream`, one for each kernel proposed; the best expected first.

        a, b, c are torch tensors of [batch, m, k], [batch, k, n], [batch, m, n]; `workspace` one of WORKSPACE bytes, which all
        calls use, one after the other.
        """
        operation, preference = ct.c_void_p(), ct.c_void_p()
        self._call("cublasLtMatmulDescCreate", ct.byref(operation), COMPUTE_32F, TYPES["f32"])
        self._call("cublasLtMatmulPreferenceCreate", ct.byref(preference))
        size = ct.c_uint64(WORKSPACE)
        self._call("cublasLtMatmulPreferenceSetAttribute", preference, MAX_WORKSPACE_BYTES, ct.byref(size), ct.c_size_t(8))
        la, lb, lc = (self.layout(dtype, *shape, batch) for shape in ((m, k), (k, n), (m, n)))
        found, count = (Heuristic * most)(), ct.c_int()
        self._call("cublasLtMatmulAlgoGetHeuristic", self._handle, operation, lb, la, lc, lc, preference, most, found, ct.byref(count))
        one, zero = ct.c_float(1), ct.c_float(0)

        def function(h: Heuristic) -> Callable[[Any, Any, Any], None]:
            def run(a: Any, b: Any, c: Any) -> None:
                out = ct.c_void_p(c.data_ptr())
                self._call("cublasLtMatmul", self._handle, operation, ct.byref(one), ct.c_void_p(b.data_ptr()), lb, ct.c_void_p(a.data_ptr()), la,
                           ct.byref(zero), out, lc, out, lc, ct.byref(h), ct.c_void_p(workspace.data_ptr()), ct.c_size_t(WORKSPACE), ct.c_void_p(stream))
            return run

        return [function(found[i]) for i in range(count.value) if found[i].state == 0]
