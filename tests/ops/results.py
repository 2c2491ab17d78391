"""What the runners of the conformance cases share: results, the lists of known failures, comparing values.

Needs numpy only: it also runs on machines that have no onnx (packed.py).
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np

HEADER = """\
# Conformance cases that do not pass yet, with the reason; the suite holds the list to what is true.
# case  reason   or   case@mode  reason when the case fails in that mode only
"""
SEVERITY = {"pass": 0, "left out": 0, "unsupported": 1, "wrong": 2, "error": 2, "timeout": 3, "crash": 3}


@dataclass
class Result:
    case: str
    mode: str
    status: str
    message: str = ""
    compile_s: float = 0.0
    run_s: float = 0.0


@dataclass(frozen=True)
class Suite:
    """A way of running the cases: its modes, the list of what is known to fail, and what runs one case.

    `differs`, where there is one, lists what another target does otherwise than `list` says; a case that passes only
    there is listed in it as "pass".
    """

    name: str
    modes: tuple[str, ...]
    list: Path
    run_case: Callable[[Any, Any, str], Result] | None = None
    differs: Path | None = None


def _read(path: Path, modes: Sequence[str]) -> dict[tuple[str, str], str]:
    known: dict[tuple[str, str], str] = {}
    if not path.exists():
        return known
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            case, _, mode = name.partition("@")
            for m in [mode] if mode else modes:
                known[case, m] = reason.strip()
    return known


def read_list(suite: Suite) -> dict[tuple[str, str], str]:
    """(case, mode) -> reason."""
    known = _read(suite.list, suite.modes)
    if suite.differs:
        known |= _read(suite.differs, suite.modes)
    return {key: reason for key, reason in known.items() if reason != "pass"}


def write_list(suite: Suite, known: dict[tuple[str, str], str]) -> None:
    """Writes `known` into the suite's list: the whole of it, or what differs from the list of the other target."""
    path = suite.list
    if suite.differs:
        path, base = suite.differs, _read(suite.list, suite.modes)
        known = {key: known.get(key, "pass") for key in {**base, **known} if known.get(key) != base.get(key)}
    lines = []
    for case in sorted({c for c, _ in known}):
        reasons = [known.get((case, m)) for m in suite.modes]
        if reasons[0] is not None and reasons[1] is not None and (reasons[0] == reasons[1] or "pass" not in reasons):
            lines.append(f"{case}  {reasons[0]}")
        else:
            lines += [f"{case}@{m}  {r}" for m, r in zip(suite.modes, reasons) if r is not None]
    path.write_text(HEADER + "".join(line + "\n" for line in lines))


def reason_of(case: Any, result: Result) -> str:
    """What known_failures.txt says about `result`: its status, then why."""
    if result.status == "unsupported" and case.needs:
        return f"unsupported: needs {' and '.join(case.needs)}"
    return f"{result.status}: {' '.join(result.message.split())[:140]}"


def judge(result: Result, listed: str | None) -> str:
    """"" when `result` is what the list says, else what is unexpected about it."""
    if SEVERITY[result.status] == 0:
        return "" if listed is None else "passes: remove it from the list"
    if listed is None:
        return f"{result.status}: {result.message}"
    before = SEVERITY.get(listed.partition(":")[0], 3)
    if SEVERITY[result.status] > before:
        return f"listed as '{listed}', now {result.status}: {result.message}"
    return ""


def show(r: Result, problem: str) -> str:
    """One result as a line of text."""
    return f"{r.case} ({r.mode}): {problem or ': '.join(filter(None, (r.status, r.message)))}"


def as_float32(a: np.ndarray) -> np.ndarray:
    """The values of a type of ml_dtypes; without that package (tripod.capi) bfloat16's, and the bits of smaller types."""
    if a.dtype.names is None:
        return a.astype(np.float32)
    bits = a.view(np.dtype(f"u{a.dtype.itemsize}"))
    if "int4" in a.dtype.names[0]:  # the upper bits may be the sign's
        bits = bits & 15
    return (bits.astype(np.uint32) << 16).view(np.float32) if a.dtype.names == ("bfloat16",) else bits.astype(np.float32)


def compare(got: Any, want: Any, rtol: float, atol: float) -> str:
    """"" when `got` agrees with `want` as onnx's own runner demands, else what differs."""
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"a sequence of {len(want)} wanted"
        return next((m for g, w in zip(got, want) if (m := compare(g, w, rtol, atol))), "")
    if want is None:
        return "" if got is None else "an absent optional wanted"
    if got is None:
        return "an absent optional where there should be a value"
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, wanted {list(want.shape)}"
    if want.dtype.kind in "OUS":
        same = [str(g) == (w.decode() if isinstance(w, bytes) else str(w)) for g, w in zip(got.flat, want.flat)]
        return "" if all(same) else f"{same.count(False)} of {len(same)} strings differ"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, wanted {want.dtype}"
    if "bfloat16" in (want.dtype.name, *(want.dtype.names or ())):
        rtol = max(rtol, 2**-6)  # two ulps, as in onnx's runner
    if want.dtype.kind == "V" or want.dtype.name in ("int4", "uint4"):  # ml_dtypes
        got, want = as_float32(got), as_float32(want)
    with np.errstate(all="ignore"):
        close = np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return (f"{int((~close).sum())} of {close.size} differ, first at {list(at)}: {got[at]!s}, wanted {want[at]!s}")
