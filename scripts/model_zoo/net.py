"""`Net` builds an ONNX graph in the style of PyTorch's exporter: scoped node names, shape constants as Constant
nodes, weights as initializers. Weights come from one seeded generator, so a network is the same everywhere.
"""
from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Dim = int | str | None


class ExternalWeights:
    """A file of raw tensors, each at a page-aligned offset, that several models may share."""

    def __init__(self, path: Path):
        self.path = path
        self._tensors: dict[str, TensorProto] = {}
        self._bytes = bytearray()

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        """The initializer `name` whose data lies in the file; the first array of a name is kept."""
        if name not in self._tensors:
            self._bytes.extend(b"\0" * (-len(self._bytes) % 4096))
            t = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
                            data_location=TensorProto.EXTERNAL)
            for key, value in (("location", self.path.name), ("offset", len(self._bytes)), ("length", array.nbytes)):
                t.external_data.add(key=key, value=str(value))
            self._bytes.extend(np.ascontiguousarray(array).tobytes())
            self._tensors[name] = t
        return self._tensors[name]

    def write(self) -> None:
        self.path.write_bytes(self._bytes)


class Net:
    """A graph under construction; methods take and give value names."""

    def __init__(self, name: str, opset: int, seed: int, ir: int = 8, external: ExternalWeights | None = None):
        self.name, self.opset, self.ir, self.external = name, opset, ir, external
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._used: dict[str, int] = {}

    # -- names ---------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Nodes made inside are called /.../name/Op, parameters ....name.weight."""
        self._scope.append(name)
        yield
        self._scope.pop()

    def _unique(self, base: str) -> str:
        n = self._used.get(base, 0)
        self._used[base] = n + 1
        return base if n == 0 else f"{base}_{n}"

    # -- inputs, outputs, constants ------------------------------------------------------------------------
    def input(self, name: str, shape: Sequence[Dim], dtype: int = F32) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, shape: Sequence[Dim], dtype: int = F32) -> None:
        """Makes `value` a graph output called `name`: the node that makes it writes there."""
        for node in self.nodes:
            for names in (node.output, node.input):
                for i, n in enumerate(names):
                    if n == value:
                        names[i] = name
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def param(self, name: str, array: np.ndarray) -> str:
        """An initializer, named below the current scope."""
        full = ".".join([*self._scope, name])
        if full not in self.initializers:
            big = self.external is not None and array.nbytes >= 1024
            self.initializers[full] = (self.external.add(full, array) if big else numpy_helper.from_array(array, full))
        return full

    def const(self, value: Any, dtype: Any = np.int64) -> str:
        """A Constant node, as the exporter writes shape arithmetic and scalars."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype=dtype))
        return self.op("Constant", value=tensor)

    def normal(self, name: str, shape: Sequence[int], std: float, mean: float = 0.0) -> str:
        """A parameter drawn from N(mean, std^2), f32."""
        full = ".".join([*self._scope, name])
        if full in self.initializers:
            return full
        data = self.rng.standard_normal(tuple(shape), dtype=np.float32)
        data *= np.float32(std)
        data += np.float32(mean)
        return self.param(name, data)

    # -- nodes ---------------------------------------------------------------------------------------------
    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Appends a node; gives its output's name, or a list of them for several."""
        name = self._unique("/" + "/".join([*self._scope, op_type]))
        outs = [f"{name}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), outs, name=name, **attributes))
        return outs[0] if outputs == 1 else outs

    def axes_op(self, op_type: str, x: str, axes: Sequence[int]) -> str:
        """Unsqueeze or Squeeze, whose axes are an input from opset 13 on."""
        if self.opset < 13:
            return self.op(op_type, x, axes=list(axes))
        return self.op(op_type, x, self.const(list(axes)))

    def reduce_mean(self, x: str, axes: Sequence[int]) -> str:
        """ReduceMean that keeps dims; its axes are an input from opset 18 on."""
        if self.opset < 18:
            return self.op("ReduceMean", x, axes=list(axes), keepdims=1)
        return self.op("ReduceMean", x, self.const(list(axes)), keepdims=1)

    def dim(self, x: str, axis: int) -> str:
        """x.size(axis) as the exporter writes it: Shape, Gather; an i64 scalar."""
        return self.op("Gather", self.op("Shape", x), self.const(axis), axis=0)

    def shape_of(self, parts: Sequence[int | str]) -> str:
        """A shape vector by Unsqueeze and Concat out of scalars (value names) and numbers."""
        pieces = [self.const([p]) if isinstance(p, int) else self.axes_op("Unsqueeze", p, [0]) for p in parts]
        return self.op("Concat", *pieces, axis=0)

    def reshape(self, x: str, parts: Sequence[int | str]) -> str:
        dynamic = any(isinstance(p, str) for p in parts)
        return self.op("Reshape", x, self.shape_of(parts) if dynamic else self.const([int(p) for p in parts]))

    def slice(self, x: str, axis: int, start: int | str, end: int | str, step: int = 1) -> str:
        """x[start:end:step] on `axis`; start and end are numbers or i64[1] value names."""
        s = self.const([start]) if isinstance(start, int) else start
        e = self.const([end]) if isinstance(end, int) else end
        return self.op("Slice", x, s, e, self.const([axis]), self.const([step]))

    # -- layers --------------------------------------------------------------------------------------------
    def linear(self, x: str, n_in: int, n_out: int, std: float | None = None, bias: bool = True) -> str:
        """nn.Linear on the last axis: MatMul with the transposed weight f32[n_in, n_out], Add of the bias."""
        y = self.op("MatMul", x, self.normal("weight_t", [n_in, n_out], std or 1 / math.sqrt(n_in)))
        return self.op("Add", self.normal("bias", [n_out], 0.02), y) if bias else y

    def gemm(self, x: str, n_in: int, n_out: int) -> str:
        """nn.Linear on a matrix: Gemm with transB."""
        return self.op("Gemm", x, self.normal("weight", [n_out, n_in], 1 / math.sqrt(n_in)),
                       self.normal("bias", [n_out], 0.02), alpha=1.0, beta=1.0, transB=1)

    def conv(self, x: str, c_in: int, c_out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = True,
             gain: float = 2.0) -> str:
        """Conv2d with same padding; weight variance gain / fan-in."""
        fan_in = c_in // groups * k * k
        inputs = [x, self.normal("weight", [c_out, c_in // groups, k, k], math.sqrt(gain / fan_in))]
        if bias:
            inputs.append(self.normal("bias", [c_out], 0.05))
        p = (k - 1) // 2
        return self.op("Conv", *inputs, dilations=[1, 1], group=groups, kernel_shape=[k, k], pads=[p] * 4,
                       strides=[stride, stride])

    def batch_norm(self, x: str, c: int, gamma: float = 1.0) -> str:
        """BatchNorm2d at inference, its four parameters random and near the identity times gamma."""
        variance = self.rng.uniform(0.7, 1.3, c).astype(np.float32)
        return self.op("BatchNormalization", x, self.normal("weight", [c], 0.1 * gamma, gamma),
                       self.normal("bias", [c], 0.1), self.normal("running_mean", [c], 0.1),
                       self.param("running_var", variance), epsilon=1e-5, momentum=0.9)

    def layer_norm(self, x: str, n: int, eps: float = 1e-5, decomposed: bool = False) -> str:
        """LayerNorm over the last axis: one op (opset 17) or the nine that exporters wrote before."""
        gamma, beta = self.normal("weight", [n], 0.1, 1.0), self.normal("bias", [n], 0.05)
        if not decomposed:
            return self.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=eps)
        centred = self.op("Sub", x, self.reduce_mean(x, [-1]))
        square = self.op("Pow", centred, self.const(2.0, np.float32))
        variance = self.op("Add", self.reduce_mean(square, [-1]), self.const(eps, np.float32))
        scaled = self.op("Div", centred, self.op("Sqrt", variance))
        return self.op("Add", self.op("Mul", scaled, gamma), beta)

    def gelu(self, x: str) -> str:
        """nn.GELU() decomposed: x * (1 + erf(x / sqrt 2)) * 0.5."""
        e = self.op("Erf", self.op("Div", x, self.const(math.sqrt(2), np.float32)))
        y = self.op("Mul", x, self.op("Add", e, self.const(1.0, np.float32)))
        return self.op("Mul", y, self.const(0.5, np.float32))

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def build(self, initializers_as_inputs: bool = False) -> onnx.ModelProto:
        """The model; with `initializers_as_inputs` every weight is also a graph input, as up to IR 3."""
        inputs = list(self.inputs)
        if initializers_as_inputs:
            inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in self.initializers.values()]
        graph = helper.make_graph(self.nodes, self.name, inputs, self.outputs, list(self.initializers.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version, model.producer_name = self.ir, "tripod make_models"
        return model
