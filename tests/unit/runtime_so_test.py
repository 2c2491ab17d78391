"""Run by runtime_so_test.cc: the fake model through tvm_ffi with numpy arrays."""
import gc
import json
import sys
import threading
import time

import numpy as np
import tvm_ffi

module = tvm_ffi.load_module(sys.argv[1])
main = module["main"]


def arguments(n=5, m=6, mode=1):
    x = np.arange(1, n * 4 + 1, dtype=np.float32).reshape(n, 4)
    return x, np.arange(n * m, dtype=np.float32).reshape(n, m), np.array(mode, np.int64)


def check(x, y, results):
    sum_, cols, where = (np.from_dlpack(r) for r in results)
    np.testing.assert_array_equal(sum_, 6 * x)
    np.testing.assert_array_equal(cols, 3 * y)
    np.testing.assert_array_equal(where, np.nonzero(x[:, 0] > 0)[0])


def error_of(f, *args):
    try:
        f(*args)
    except Exception as e:
        return type(e).__name__, str(e).split("\n")[0]
    return "no error", ""


x, y, mode = arguments()
check(x, y, main(x, y, mode))
check(x, y, main(tvm_ffi.from_dlpack(x), y, mode))  # a Tensor object beside DLTensors
check(x[::2], y[::2], main(x[::2], y[::2], mode))
assert main(x[:0], y[:0], mode)[2].shape == (0,)

sum_, cols, where = np.zeros_like(x), np.zeros_like(y), np.zeros(5, np.int64)
assert module["main_into"](x, y, mode, sum_, cols, where) is None
check(x, y, (sum_, cols, where))
wide = np.zeros((5, 12), np.float32)
module["main_into"](x, y, mode, sum_, wide[:, ::2], where)
np.testing.assert_array_equal(wide[:, ::2], cols)

assert error_of(main, x, y) == ("ValueError", "main: got 2 arguments, wanted 3 (3 inputs)")
assert error_of(main, x, y, 1) == ("ValueError", "input 2 'mode': got an argument of TVM-FFI type 1, wanted a tensor")
assert error_of(main, x.astype(np.float64), y, mode) == ("ValueError", "input 0 'x': dtype is f64, wanted f32")
assert error_of(main, x, y[:4], mode) == (
    "ValueError", "input 1 'y' axis 0 ('N'): got 4, wanted 5 as in input 0 'x' axis 0")
assert error_of(main, x, y, np.array(2, np.int64)) == (
    "IndexError", "node 7 Gather 'emb': index 12 is not in [0, 10)")
assert error_of(module["main_into"], x, y, mode, sum_, cols, where[:3]) == (
    "ValueError", "output 2 'where' axis 0: got 3, wanted 5")
assert error_of(module["set_num_threads"], -3) == ("ValueError", "set_num_threads: got -1, wanted 0..256")

assert json.loads(module["describe"]()) == {"name": "fake"}
schema = json.loads(module.get_function_metadata("main")["type_schema"])
assert schema["named_args"]["return"][0]["type"] == "ffi.Array" and len(schema["named_args"]["params"]) == 3, schema
assert module.get_function_doc("main").startswith("main(x: f32[N, 4], y: f32[N, M], mode: i64[]) -> (sum: f32"), \
    module.get_function_doc("main")


def hammer():
    for i in range(300):
        a = arguments(1 + i % 50, 2 + 2 * (i % 8), i % 2)
        check(a[0], a[1], main(*a))


module["set_num_threads"](3)
threads = [threading.Thread(target=hammer) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()

sum_ = np.zeros_like(x)
start = time.perf_counter()
for _ in range(20000):
    module_into = main(x, y, mode)
print(f"{(time.perf_counter() - start) / 20000 * 1e6:.2f} us a call with three new outputs")

# Outputs outlive the module.
unloaded = tvm_ffi.load_module(sys.argv[1], keep_module_alive=False)
results = unloaded["main"](x, y, mode)
del unloaded, main, module
gc.collect()
check(x, y, results)
del results
gc.collect()
print("all good")
