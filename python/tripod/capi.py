"""Calls a compiled model.so through its C API (include/tripod/model.h) with ctypes and numpy.

A Python value stands for a `tripod_value` like this:
  numpy array          TENSOR; STRINGS when its dtype is object, str or bytes
  list or tuple        SEQUENCE
  Optional(value)      OPTIONAL that holds `value`; Optional(None) is the absent one
Sub-byte types are numpy arrays of ml_dtypes (one element a byte); they are packed for the call.
"""
from __future__ import annotations

import ctypes as ct
import json
import threading
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

try:
    import ml_dtypes
except ImportError:  # a machine that only runs models: arrays of such a type are its bits, in a field of its name
    class ml_dtypes:  # type: ignore[no-redef]
        bfloat16 = np.dtype([("bfloat16", np.uint16)])
        int4, uint4 = np.dtype([("int4", np.int8)]), np.dtype([("uint4", np.uint8)])
        float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz = (
            np.dtype([(f"float8_{t}", np.uint8)]) for t in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))

API_VERSION = 3

# In the order of enum tripod_dtype.
DTYPES: list[np.dtype] = [np.dtype(t) for t in (
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64,
    np.uint8, np.uint16, np.uint32, np.uint64, np.bool_, ml_dtypes.int4, ml_dtypes.uint4,
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, object)]
STRING = len(DTYPES) - 1
FOUR_BIT = {DTYPES.index(np.dtype(ml_dtypes.int4)), DTYPES.index(np.dtype(ml_dtypes.uint4))}
KIND_TENSOR, KIND_STRINGS, KIND_SEQUENCE, KIND_OPTIONAL = range(4)


class TripodError(RuntimeError):
    """A call that failed; `status` is the tripod_status, the text is the model's own message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass
class Optional:
    """An ONNX optional: `value` is None when it is absent."""

    value: Any


class Tensor(ct.Structure):
    _fields_ = [("data", ct.c_void_p), ("shape", ct.POINTER(ct.c_int64)), ("strides", ct.POINTER(ct.c_int64)),
                ("rank", ct.c_int32), ("dtype", ct.c_int32), ("device", ct.c_int32), ("device_id", ct.c_int32)]


class Value(ct.Structure):
    pass


Value._fields_ = [("kind", ct.c_int32), ("tensor", Tensor), ("items", ct.POINTER(Value)), ("count", ct.c_int64)]

ALLOCATOR = ct.CFUNCTYPE(ct.c_void_p, ct.c_void_p, ct.c_int32, ct.c_size_t, ct.c_int32, ct.c_int32,
                         ct.POINTER(ct.c_int64))


class ContextOptions(ct.Structure):
    _fields_ = [("version", ct.c_uint32), ("device", ct.c_int32), ("device_id", ct.c_int32), ("stream", ct.c_void_p),
                ("allocator", ALLOCATOR), ("allocator_user", ct.c_void_p), ("step_hook", ct.c_void_p),
                ("step_user", ct.c_void_p), ("cuda_graphs", ct.c_int32)]


class Api(ct.Structure):
    _fields_ = [("version", ct.c_uint32),
                ("describe", ct.CFUNCTYPE(ct.c_char_p)),
                ("num_inputs", ct.CFUNCTYPE(ct.c_int32)),
                ("num_outputs", ct.CFUNCTYPE(ct.c_int32)),
                ("create_context", ct.CFUNCTYPE(ct.c_int32, ct.POINTER(ContextOptions), ct.POINTER(ct.c_void_p))),
                ("destroy_context", ct.CFUNCTYPE(None, ct.c_void_p)),
                ("run", ct.CFUNCTYPE(ct.c_int32, ct.c_void_p, ct.POINTER(Value), ct.c_int32, ct.POINTER(Value),
                                     ct.c_int32)),
                ("set_num_threads", ct.CFUNCTYPE(ct.c_int32, ct.c_int32)),
                ("last_error", ct.CFUNCTYPE(ct.c_char_p)),
                ("synchronize", ct.CFUNCTYPE(ct.c_int32, ct.c_void_p))]


def aligned(a: np.ndarray, bytes_: int = 64) -> np.ndarray:
    """A dense copy of `a` that begins at a multiple of `bytes_`: numpy itself gives 16."""
    raw = np.empty(a.nbytes + bytes_, dtype=np.uint8)
    start = -raw.ctypes.data % bytes_
    copy = raw[start:start + a.nbytes].view(a.dtype).reshape(a.shape)
    copy[...] = a
    return copy


def _pack4(a: np.ndarray) -> np.ndarray:
    """Two 4-bit elements a byte, low nibble first: uint8[(n + 1) / 2]."""
    flat = a.reshape(-1).view(np.uint8) & 15
    flat = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
    return (flat[0::2] | (flat[1::2] << 4)).astype(np.uint8)


def _unpack4(packed: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """The reverse of _pack4: `count` elements of `dtype`."""
    both = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    signed = dtype == np.dtype(ml_dtypes.int4)
    return np.where(signed & (both > 7), both - 16, both).astype(dtype)


def _fill_tensor(value: Value, a: np.ndarray, keep: list[Any]) -> None:
    """Writes the numpy array `a` into `value`; what must outlive the call is appended to `keep`."""
    shape = (ct.c_int64 * max(a.ndim, 1))(*a.shape)
    keep.append(shape)
    value.tensor.shape = shape
    value.tensor.rank = a.ndim
    if a.dtype.kind in "OUS":
        texts = [t if isinstance(t, bytes) else str(t).encode() for t in a.reshape(-1)]
        pointers = (ct.c_char_p * max(len(texts), 1))(*texts)
        keep.append(pointers)
        value.kind, value.tensor.dtype = KIND_STRINGS, STRING
        value.tensor.data = ct.cast(pointers, ct.c_void_p)
        return
    if a.dtype not in DTYPES:
        raise TripodError(1, f"dtype {a.dtype} has no tripod_dtype")
    value.kind, value.tensor.dtype = KIND_TENSOR, DTYPES.index(a.dtype)
    a = _pack4(a) if value.tensor.dtype in FOUR_BIT else np.asarray(a, order="C")
    keep.append(a)
    value.tensor.data = a.ctypes.data


def _fill(value: Value, v: Any, keep: list[Any]) -> None:
    """Writes any Python value of the module's table into `value`."""
    if isinstance(v, (list, tuple, Optional)):
        items = list(v) if not isinstance(v, Optional) else [] if v.value is None else [v.value]
        value.kind = KIND_OPTIONAL if isinstance(v, Optional) else KIND_SEQUENCE
        array = (Value * max(len(items), 1))()
        for slot, item in zip(array, items):
            _fill(slot, item, keep)
        keep.append(array)
        value.items, value.count = array, len(items)
        return
    _fill_tensor(value, np.asarray(v), keep)


def _read(value: Value) -> Any:
    """A copy of what a run left in `value`, as numpy arrays, lists and Optionals."""
    t = value.tensor
    if value.kind in (KIND_SEQUENCE, KIND_OPTIONAL):
        items = [_read(value.items[i]) for i in range(value.count)]
        return items if value.kind == KIND_SEQUENCE else Optional(items[0] if items else None)
    shape = tuple(t.shape[i] for i in range(t.rank))
    count = int(np.prod(shape, dtype=np.int64))
    if value.kind == KIND_STRINGS:
        texts = ct.cast(t.data, ct.POINTER(ct.c_char_p))
        return np.array([texts[i].decode() for i in range(count)], dtype=object).reshape(shape)
    dtype = DTYPES[t.dtype]
    packed = t.dtype in FOUR_BIT
    size = (count + 1) // 2 if packed else count * dtype.itemsize
    raw = np.frombuffer(ct.string_at(t.data, size) if size else b"", dtype=np.uint8)
    return (_unpack4(raw, count, dtype) if packed else raw.view(dtype)).reshape(shape).copy()


def parse_device(device: str) -> tuple[int, int]:
    """(tripod_device, device_id) of "cpu", "cuda" or "cuda:N"."""
    kind, _, number = device.partition(":")
    if device == "cpu":
        return 0, 0
    if kind != "cuda" or not (number.isdigit() or device == "cuda"):
        raise TripodError(1, f"device: wanted cpu, cuda or cuda:N, got {device!r}")
    return 1, int(number or 0)


class Model:
    """A loaded model.so with one context. Close it, or use it in a `with`. Threads may share it: their runs wait for each
    other.

    Arrays are numpy's, in host memory, also for a model on a GPU, which then copies them at each call; TVM-FFI takes
    tensors that are on the GPU already.
    """

    def __init__(self, path: str, threads: int | None = None, device: str | None = None, stream: int | None = None,
                 cuda_graphs: bool = False):
        """Opens `path`; `threads` as in set_num_threads (None leaves the model's default); `device` is "cpu", "cuda" or
        "cuda:N" (None: what the model was compiled for, the first GPU); `stream` is a CUstream of that GPU, and
        `cuda_graphs` launches its kernels as CUDA graphs."""
        library = ct.CDLL(str(path))
        get = library.tripod_get_api
        get.restype, get.argtypes = ct.POINTER(Api), [ct.c_uint32]
        pointer = get(API_VERSION)
        if not pointer:
            raise TripodError(4, "the file was built for another version of the Tripod API")
        self._library, self._api = library, pointer.contents
        self._buffers: dict[int, np.ndarray] = {}
        self._running = threading.Lock()  # outputs are read where the context and the allocator keep them
        self._allocator = ALLOCATOR(self._allocate)
        self._context = ct.c_void_p()
        if device is None:
            device = "cuda" if self.describe().get("target") == "cuda" else "cpu"
        options = ContextOptions(API_VERSION, *parse_device(device), stream, self._allocator, None, None, None, cuda_graphs)
        if threads is not None:
            self._check(self._api.set_num_threads(threads))
        self._check(self._api.create_context(ct.byref(options), ct.byref(self._context)))
        strings = [o.get("dtype") == "string" for o in self.describe().get("outputs", [])]
        self._output_kinds = [KIND_STRINGS if s else KIND_TENSOR for s in strings]

    def close(self) -> None:
        if self._context:
            self._api.destroy_context(self._context)
            self._context = ct.c_void_p()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _allocate(self, _user: int, output: int, size: int, _dtype: int, _rank: int, _shape: Any) -> int:
        """The allocator callback: `size` bytes aligned to 64, kept until the output's next allocation."""
        try:
            buffer = np.empty(size + 64, dtype=np.uint8)
        except MemoryError:
            return 0  # the model reports it
        self._buffers[output] = buffer
        return (buffer.ctypes.data + 63) // 64 * 64

    def last_error(self) -> str:
        """Message of the last failure on this thread."""
        return (self._api.last_error() or b"").decode(errors="replace")

    def _check(self, status: int) -> None:
        if status:
            raise TripodError(status, self.last_error())

    def synchronize(self) -> None:
        """Waits for runs on a GPU; raises what one of their kernels found."""
        self._check(self._api.synchronize(self._context))

    def describe(self) -> dict[str, Any]:
        """The manifest."""
        return json.loads(self._api.describe())

    @property
    def num_outputs(self) -> int:
        return self._api.num_outputs()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the model once on `inputs` (in the manifest's order); gives copies of its outputs."""
        keep: list[Any] = []
        ins = (Value * max(len(inputs), 1))()
        for slot, v in zip(ins, inputs):
            _fill(slot, v, keep)
        n = self.num_outputs
        outs = (Value * max(n, 1))()
        for slot, kind in zip(outs, self._output_kinds):
            slot.kind = kind
        with self._running:
            self._check(self._api.run(self._context, ins, len(inputs), outs, n))
            return [_read(outs[i]) for i in range(n)]

    def bind(self, inputs: Sequence[np.ndarray]) -> tuple[Callable[[], int], list[np.ndarray]]:
        """A call with everything prepared, for timing: runs once to learn the output shapes, then returns
        (call, outputs), where call() runs the model on `inputs` into `outputs` and gives the tripod_status."""
        outputs = [aligned(o) for o in self.run(inputs)]
        keep: list[Any] = []
        ins, outs = (Value * max(len(inputs), 1))(), (Value * max(len(outputs), 1))()
        for slot, v in zip(ins, inputs):
            _fill(slot, v, keep)
        shapes = []
        for slot, v in zip(outs, outputs):
            _fill(slot, v, keep)
            shapes.append((slot.tensor.shape, slot.tensor.data))
        run, context, n_in, n_out = self._api.run, self._context, len(inputs), len(outputs)

        def call(_keep: list[Any] = keep) -> int:
            return run(context, ins, n_in, outs, n_out)

        return call, outputs
