"""Loop functions that apply every operation to every dtype, as text for kernel_cases (see tests/cuda/kernel_cases.cc)."""
from __future__ import annotations

FLOATS = ["f32", "f64"]
SMALL = ["f16", "bf16"]
SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTS = SIGNED + UNSIGNED
NIBBLES = ["i4", "u4"]

FLOAT_OPS = {
    "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "div": "{a} / {b}", "rem": "rem({a}, {b})",
    "min": "min({a}, {b})", "max": "max({a}, {b})", "fma": "fma({a}, {b}, {c})", "neg": "neg({a})", "abs": "abs({a})",
    "sqrt": "sqrt({a})", "floor": "floor({a})", "ceil": "ceil({a})", "trunc": "trunc({a})", "rint": "rint({a})",
    "chain": "({a} - ({b} - {c})) * {a} / ({b} * {c})", "less": "select({a} < {b}, {c}, {a})",
    "equal": "select({a} == {b} | {a} <= {c}, {b}, {c})", "constant": "max({a} * -2.5:{t}, -0.0:{t}) + 1e30:{t}",
    "infinite": "select({a} < inf:{t}, {a}, -inf:{t})", "negneg": "neg(neg({a} * {b}))", "twice": "({a} + {b}) * ({a} + {b}) - {c}",
}
INT_OPS = {
    "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "div": "{a} / {b}", "rem": "rem({a}, {b})",
    "min": "min({a}, {b})", "max": "max({a}, {b})", "fma": "fma({a}, {b}, {c})", "neg": "neg({a})", "abs": "abs({a})",
    "and": "{a} & {b}", "or": "{a} | {b}", "xor": "{a} ^ {b}", "not": "not({a})", "shl": "{a} << {b}", "shr": "{a} >> {b}",
    "by_constant": "({a} / 3:{t} + rem({a}, 7:{t})) ^ ({a} << 3:{t}) ^ ({a} >> 2:{t})",
    "mixed": "({a} + {b} & {c} | {a}) - ({b} << 1:{t})", "less": "select({a} < {b} & {b} <= {c}, {a}, {b})",
    "equal": "select({a} == {b} | not({a} != {c}), {a} + {b}, {c})", "constant": "max({a}, 100:{t}) - min({b}, 5:{t})",
}


def elementwise(name: str, inputs: list[tuple[str, str]], outputs: list[tuple[str, str, str]], values: str,
                dims: str = "N=333; N=1") -> str:
    """inputs: (name, dtype); outputs: (name, dtype, value, in which {name} stands for the element of an input)."""
    params = ", ".join(f"{n}: {t}[N]" for n, t in inputs)
    results = ", ".join(f"{n}: {t}[N]" for n, t, _ in outputs)
    at = "block*64 + t"
    lines = [f"{n}[{at}] = " + value.format(**{i: f"{i}[{at}]" for i, _ in inputs}) for n, _, value in outputs]
    body = "\n        ".join(lines)
    return f"""// case dims {dims} values {values}
func @{name}[N: 1..]({params}) -> ({results}) {{
  for block in 0..ceildiv(N, 64) grid_x {{
    for t in 0..64 block_x {{
      if block*64 + t < N {{
        {body}
      }}
    }}
  }}
}}
"""


def paired(name: str, inputs: list[tuple[str, str]], outputs: list[tuple[str, str, str]], values: str) -> str:
    """Of 4-bit elements two share a byte: a thread has both."""
    params = ", ".join(f"{n}: {t}[N]" for n, t in inputs)
    results = ", ".join(f"{n}: {t}[N]" for n, t, _ in outputs)
    at = "t*2 + e"
    lines = [f"{n}[{at}] = " + value.format(**{i: f"{i}[{at}]" for i, _ in inputs}) for n, _, value in outputs]
    body = "\n        ".join(lines)
    return f"""// case dims N=64; N=17 values {values}
func @{name}[N: 1..64]({params}) -> ({results}) {{
  for t in 0..32 block_x {{
    for e in 0..2 unrolled {{
      if t*2 + e < N {{
        {body}
      }}
    }}
  }}
}}
"""


def cases() -> list[str]:
    """The text of each case."""
    found = []
    for types, ops in ((FLOATS, FLOAT_OPS), (INTS, INT_OPS)):
        for t in types:
            for op, text in ops.items():
                value = text.replace("{t}", t)
                inputs = [(n, t) for n in "abc" if "{" + n + "}" in value]
                found.append(elementwise(f"{op}_{t}", inputs, [("y", t, value)], "special"))
    for a, b in [(f, g) for f in FLOATS + INTS for g in ["b1"]]:
        found.append(elementwise(f"compare_{a}", [("a", a), ("b", a)], [
            ("lt", b, "{a} < {b}"), ("le", b, "{a} <= {b}"), ("eq", b, "{a} == {b}"), ("ne", b, "{a} != {b}")], "special"))
    found.append(elementwise("logic", [("a", "b1"), ("b", "b1"), ("c", "b1")], [
        ("y0", "b1", "{a} & {b} | {c}"), ("y1", "b1", "{a} ^ {b}"), ("y2", "b1", "not({a} | {b}) & {c}"),
        ("y3", "b1", "({a} | {b}) & ({b} | {c})"), ("y4", "b1", "{a} == {b}"), ("y5", "b1", "{a} != {b}"),
        ("y6", "f32", "select(not({a}), f32({b}), 2)"), ("y7", "b1", "select({a}, {b}, not({c}))")], "special"))
    # Every cast that expand_math leaves.
    every = FLOATS + SMALL + INTS + ["b1"]
    for a in every:
        outputs = [(f"y_{b}", b, f"{b}({{x}})") for b in every if b != a]
        found.append(elementwise(f"cast_{a}", [("x", a)], outputs, "special"))
    for a, b in [("f32", "i32"), ("f32", "u32"), ("f64", "i64"), ("f64", "u64"), ("f16", "u16"), ("f16", "i16"), ("bf16", "u16"),
                 ("i8", "u8"), ("i16", "u16"), ("i32", "u32")]:
        found.append(elementwise(f"bits_{a}_{b}", [("x", a), ("z", b)], [
            ("y", b, f"bitcast<{b}>({{x}})"), ("w", a, f"bitcast<{a}>({{z}})")], "special"))
    for t in SMALL + ["f8e4m3fn", "f8e5m2"]:
        found.append(elementwise(f"move_{t}", [("x", t), ("m", "b1")], [
            ("y", t, f"select({{m}}, {{x}}, {'1:' + t})"), ("z", "f32", "f32({x}) * 2")], "unit"))
    for t in NIBBLES:
        found.append(paired(f"move_{t}", [("x", t)], [("y", t, "{x}"), ("z", "i32", "i32({x}) * 3:i32")], "special"))
        found.append(paired(f"cast_to_{t}", [("x", "i32"), ("f", "f32")], [("y", t, f"{t}({{x}})"), ("z", t, f"{t}({{f}})")], "small"))
    for op in ["exp", "log", "sin", "cos", "tanh", "erf", "sigmoid", "asinh", "log1p"]:
        for t in FLOATS:
            found.append(elementwise(f"{op}_{t}", [("x", t)], [("y", t, f"{op}({{x}})")], "special"))
    found.append(elementwise("pow_f32", [("x", "f32"), ("z", "f32")], [("y", "f32", "pow({x}, {z})")], "special"))
    for t in FLOATS + INTS + SMALL + ["b1"]:
        found.append(elementwise(f"index_{t}", [("x", "u8")], [("y", t, f"index<{t}>(block*64 + t*3 - 70)" if t != "b1" else "index<b1>(block < t)"),
                                                              ("z", "u8", "{x}")], "special"))
    found += [vector(t, lanes) for t in FLOATS + SMALL + INTS + ["b1"] for lanes in (2, 4, 8)]
    return found


def vector(t: str, lanes: int) -> str:
    """Loads and stores as a whole, and the rest one by one."""
    value = {"b1": "x[{at}] ^ z[{at}]", "f16": "f16(f32(x[{at}]) + f32(z[{at}]))", "bf16": "bf16(f32(x[{at}]) + f32(z[{at}]))"}.get(
        t, "x[{at}] + z[{at}]")
    at = f"block*{32 * lanes} + t*{lanes} + v"
    return f"""// case dims N=1000; N={32 * lanes}; N=1 values {'special' if t not in ('f16', 'bf16') else 'unit'}
func @vector{lanes}_{t}[N: 1..](x: {t}[N], z: {t}[N]) -> (y: {t}[N]) {{
  for block in 0..ceildiv(N, {32 * lanes}) grid_x {{
    for t in 0..32 block_x {{
      if block*{32 * lanes} + t*{lanes} + {lanes} <= N {{
        for v in 0..{lanes} vector {{ y[{at}] = {value.format(at=at)} }}
      }} else {{
        for v in 0..{lanes} {{ y[{at}] = {value.format(at=at)} if {at} < N }}
      }}
    }}
  }}
}}
"""
