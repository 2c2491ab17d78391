"""A compiled model called on torch tensors of the GPU, without copies and without anything between it and its C API."""
from __future__ import annotations

import ctypes as ct
from typing import Any, Sequence

from tripod.capi import KIND_TENSOR, Model, Value

DTYPES = {"torch.float32": 0, "torch.float64": 1, "torch.float16": 2, "torch.bfloat16": 3, "torch.int32": 6, "torch.int64": 7}
CUDA = 1


def fill(value: Value, t: Any, keep: list[Any]) -> None:
    shape = (ct.c_int64 * max(t.dim(), 1))(*t.shape)
    keep += [shape, t]
    value.kind = KIND_TENSOR
    value.tensor.data, value.tensor.shape, value.tensor.rank = t.data_ptr(), shape, t.dim()
    value.tensor.dtype, value.tensor.device, value.tensor.device_id = DTYPES[str(t.dtype)], CUDA, t.device.index or 0


class DeviceModel:
    """`path` on the GPU, its work on `stream` (a torch stream)."""

    def __init__(self, path: str, stream: Any, cuda_graphs: bool = False):
        self.model = Model(path, device="cuda", stream=stream.cuda_stream, cuda_graphs=cuda_graphs)

    def outputs(self, first: Sequence[Any]) -> list[Any]:
        """Tensors for all outputs of a model of static shapes; `first` are used for the first ones."""
        import torch

        types = {"f32": torch.float32, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32}
        rest = self.model.describe()["outputs"][len(first):]
        return [*first, *(torch.empty(o["shape"], dtype=types[o["dtype"]], device="cuda") for o in rest)]

    def call(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """A function that enqueues one run from `inputs` into `outputs`."""
        keep: list[Any] = []
        ins, outs = (Value * max(len(inputs), 1))(), (Value * max(len(outputs), 1))()
        for slot, t in [*zip(ins, inputs), *zip(outs, outputs)]:
            fill(slot, t, keep)
        m = self.model
        run, context, n_in, n_out = m._api.run, m._context, len(inputs), len(outputs)

        def enqueue(_keep: list[Any] = keep) -> None:
            status = run(context, ins, n_in, outs, n_out)
            if status:
                raise RuntimeError(m.last_error())

        return enqueue
