#!/usr/bin/env python3
"""Times compiled models beside ONNX Runtime and OpenVINO: the same inputs, interleaved in one run.

Each model runs in a process of its own, for 1 thread and for 2: the three take turns, in an order that rotates; before
a turn the machine rests until the others' threads have stopped spinning, and one call warms the caches. All write
into memory given beforehand. OpenVINO: LATENCY, INFERENCE_PRECISION_HINT=f32, one stream, reshaped to the static
sizes; ONNX Runtime: io binding, all optimisations. Tripod's artifact keeps its free dims unless --static.

Printed per model: best and median in ms, and better peer / Tripod (by medians), above 1 where Tripod leads; then the
geometric means, one for each number of threads.

usage: bench/peers.py [MODEL...] [--threads 1,2] [--seconds 6] [--results bench/RESULTS.md] [--json FILE]
"""
from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / d) for d in ("python", "scripts", "tests", "tests/models")]
import inputs as model_inputs  # noqa: E402
from harness import COMPILER, compile_model  # noqa: E402
from models import CACHE  # noqa: E402

WORK = ROOT / "build" / "bench"
Inputs = dict[str, np.ndarray]
ENGINES = ("tripod", "onnxruntime", "openvino")
BEGIN, END = "<!-- peers.py begins -->", "<!-- peers.py ends -->"

# label: (file in .cache/models, its inputs). The list of the speed targets.
MODELS: dict[str, tuple[str, Callable[[], Inputs]]] = {
    "resnet50 1x3x224x224": ("resnet50", lambda: model_inputs.images("input", [(1, 224, 224)], model_inputs.IMAGENET)[0].inputs),
    "bert_base s128": ("bert_base", lambda: model_inputs.tokens([(1, 128)], 30522)[0].inputs),
    "minilm b1s128": ("minilm", lambda: model_inputs.tokens([(1, 128)], 30522)[0].inputs),
    "minilm b8s128": ("minilm", lambda: model_inputs.tokens([(8, 128)], 30522)[0].inputs),
    "rxnmap s128": ("rxnmap", lambda: model_inputs.reactions()[3].inputs),
    "ocr det 640x640": ("ppocr_det", lambda: model_inputs.images("x", [(1, 640, 640)], model_inputs.IMAGENET)[0].inputs),
    "ocr rec 48x320": ("ppocr_rec", lambda: model_inputs.ocr_lines([(1, 320)])[0].inputs),
    "yolov8n 320": ("nudenet_320n", lambda: model_inputs.images("images", [(1, 320, 320)], model_inputs.UNIT)[0].inputs),
    "open_nsfw": ("open_nsfw", lambda: model_inputs.nsfw()[0].inputs),
    "magika": ("magika", lambda: model_inputs.magika()[0].inputs),
    "basic_pitch": ("basic_pitch", lambda: model_inputs.pitch()[0].inputs),
    "silero_vad op18 ifless": ("silero_vad_op18_ifless", lambda: model_inputs.vad([(1, 576, 16000)], True)[0].inputs),
}
# Not in the geometric means; taken when named.
MORE: dict[str, tuple[str, Callable[[], Inputs]]] = {
    "mobilenet_v3": ("mobilenet_v3", lambda: model_inputs.images("input", [(1, 224, 224)], model_inputs.IMAGENET)[0].inputs),
    "efficientnet_b0": ("efficientnet_b0", lambda: model_inputs.images("input", [(1, 224, 224)], model_inputs.IMAGENET)[0].inputs),
    "vit_b16": ("vit_b16", lambda: model_inputs.images("input", [(1, 224, 224)], model_inputs.HALF)[0].inputs),
    "gpt2 s128": ("gpt2", lambda: model_inputs.gpt2(decode=False)[0].inputs),
    "gpt2_decode past 64": ("gpt2_decode", lambda: model_inputs.gpt2(decode=True)[1].inputs),
    "llama_block s64": ("llama_block", lambda: model_inputs.llama()[0].inputs),
    "detector_nms 256": ("detector_nms", lambda: model_inputs.images("images", [(1, 256, 256)], model_inputs.UNIT)[0].inputs),
}


def order_of(path: Path) -> list[str]:
    """Names of the graph inputs that are not initializers, in order."""
    import onnx
    graph = onnx.load(path, load_external_data=False).graph
    initial = {t.name for t in graph.initializer}
    return [v.name for v in graph.input if v.name not in initial]


def tripod_engine(so: Path, feed: Inputs, order: list[str], threads: int) -> tuple[Callable[[], Any], list[np.ndarray]]:
    """(a call, the arrays that it writes)."""
    import tripod.capi
    model = tripod.Model(str(so), threads=threads)
    run, outputs = model.bind([tripod.capi.aligned(feed[n]) for n in order])

    def call(_model: Any = model) -> None:
        if run():
            raise RuntimeError(model.last_error())

    return call, outputs


def onnxruntime_engine(path: Path, feed: Inputs, threads: int) -> tuple[Callable[[], Any], list[np.ndarray]]:
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 3, threads, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    shapes = session.run(None, feed)
    binding, keep = session.io_binding(), []
    for i in session.get_inputs():
        value = ort.OrtValue.ortvalue_from_numpy(np.asarray(feed[i.name], order="C"))
        keep.append(value)
        binding.bind_ortvalue_input(i.name, value)
    outputs = [np.empty_like(np.asarray(s, order="C")) for s in shapes]
    for o, array in zip(session.get_outputs(), outputs):
        binding.bind_output(o.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return (lambda _keep=keep: session.run_with_iobinding(binding)), outputs


def openvino_engine(path: Path, feed: Inputs, threads: int) -> tuple[Callable[[], Any], list[np.ndarray]]:
    import openvino as ov
    core = ov.Core()
    model = core.read_model(str(path))
    model.reshape({i: list(feed[next(n for n in i.get_names() if n in feed)].shape) for i in model.inputs})
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1})
    request = compiled.create_infer_request()
    for i in compiled.inputs:
        name = next(n for n in i.get_names() if n in feed)
        request.set_tensor(i, ov.Tensor(np.asarray(feed[name], order="C"), shared_memory=True))
    request.infer(share_outputs=True)
    outputs = [request.get_output_tensor(k).data for k in range(len(compiled.outputs))]
    return (lambda _keep=(core, compiled): request.infer(share_outputs=True)), outputs


def measure(engines: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each timed call, the engines taking turns for `seconds` in all."""
    once: dict[str, float] = {}
    for name, call in engines.items():
        call()
        start = time.perf_counter()
        call()
        once[name] = time.perf_counter() - start
    names, times, turn = list(engines), {n: [] for n in engines}, 0
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or turn < 5:
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            call = engines[name]
            time.sleep(0.006)
            call()
            for _ in range(max(1, min(200, int(0.012 / max(once[name], 1e-6))))):
                start = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - start) * 1e3)
        turn += 1
    return times


def difference(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """Largest difference of two engines' outputs relative to an output's range; inf when shapes differ."""
    worst = 0.0
    for x, y in zip(a, b):
        if x.shape != y.shape:
            return math.inf
        if x.size:
            scale = float(np.ptp(y.astype(np.float64))) or float(np.abs(y).max()) or 1.0
            worst = max(worst, float(np.abs(x.astype(np.float64) - y).max()) / scale)
    return worst


def run_one(label: str, threads: int, so: str, seconds: float) -> dict[str, Any]:
    """One model in this process: engine -> [best, median] ms or an error text, and how the outputs compare."""
    name, make = (MODELS | MORE)[label]
    path, feed = CACHE / f"{name}.onnx", make()
    result: dict[str, Any] = {"model": label, "threads": threads, "errors": {}}
    engines: dict[str, Callable[[], Any]] = {}
    outputs: dict[str, list[np.ndarray]] = {}
    builders: dict[str, Callable[[], tuple[Callable[[], Any], list[np.ndarray]]]] = {
        "onnxruntime": lambda: onnxruntime_engine(path, feed, threads),
        "openvino": lambda: openvino_engine(path, feed, threads)}
    if so:
        builders = {"tripod": lambda: tripod_engine(Path(so), feed, order_of(path), threads), **builders}
    for engine, build in builders.items():
        try:
            engines[engine], outputs[engine] = build()
        except Exception as e:
            result["errors"][engine] = f"{type(e).__name__}: {e}".splitlines()[0][:160]
    for engine, times in measure(engines, seconds).items():
        result[engine] = [min(times), statistics.median(times)]
    for engine in ("tripod", "openvino"):
        if engine in outputs and "onnxruntime" in outputs:
            result[f"difference_{engine}"] = difference(outputs[engine], outputs["onnxruntime"])
    return result


def compile_all(labels: list[str], args: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """label -> (the .so, "") or ("", why there is none)."""
    WORK.mkdir(parents=True, exist_ok=True)
    done: dict[str, tuple[str, str]] = {}
    for label in labels:
        name, make = (MODELS | MORE)[label]
        so = WORK / f"{label.replace(' ', '_') if args.static else name}.so"
        if (args.reuse and so.exists()) or (not args.static and (str(so), "") in done.values()):
            done[label] = (str(so), "")
            continue
        extra = [a for n, v in make().items() for a in ("--shape", f"{n}={','.join(map(str, v.shape))}")] if args.static else []
        c = compile_model(args.compiler, CACHE / f"{name}.onnx", so, [*extra, *args.compile_arg], 180)
        done[label] = (str(so), "") if c.status == "pass" else ("", f"{c.status}: {c.message}")
        print(f"{name}: {c.status} in {c.seconds:.1f} s {c.message[:100]}", flush=True)
    return done


def cpu_name() -> str:
    """The processor, its vector extension, and how many cores this process may use."""
    info = Path("/proc/cpuinfo").read_text()
    field = lambda key: next((l.split(":", 1)[1].strip() for l in info.splitlines() if l.startswith(key)), "unknown")
    flags = field("flags").split()
    vector = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE"
    return f"{field('model name')} ({vector}), {len(os.sched_getaffinity(0))} cores used"


def ratio(r: dict[str, Any]) -> float | None:
    """Better peer's median / Tripod's median."""
    peers = [r[e][1] for e in ENGINES[1:] if e in r]
    return min(peers) / r["tripod"][1] if peers and "tripod" in r else None


def command_line() -> str:
    """The command as given, without options that name files."""
    kept, words = ["bench/peers.py"], iter(sys.argv[1:])
    for word in words:
        if word in ("--compiler", "--results", "--json"):
            next(words, None)
        else:
            kept.append(word)
    return " ".join(kept)


def report(results: list[dict[str, Any]], command: str, load: float) -> str:
    """The markdown section: a table and a geometric mean for each number of threads. `load` was the machine's
    before the start: above a half the figures are not worth keeping, and the text says so."""
    import onnxruntime
    import openvino
    lines = [f"`{command}`, {datetime.date.today().isoformat()}, {cpu_name()}.",
             f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__.split('-')[0]}; f32; "
             "best / median in ms; last column: better peer / Tripod by medians, above 1 where Tripod leads."]
    if load > 0.5:
        lines.append(f"**The machine was busy (load {load:.1f}): measure again.**")
    for threads in sorted({r["threads"] for r in results}):
        rows = [r for r in results if r["threads"] == threads]
        lines += ["", f"### {threads} thread{'s' if threads > 1 else ''}", "",
                  "| model | Tripod | ONNX Runtime | OpenVINO | peer / Tripod |", "|---|---|---|---|---|"]
        for r in rows:
            cells = [f"{r[e][0]:.3g} / {r[e][1]:.3g}" if e in r else r["errors"].get(e, "-").replace("|", "\\|")[:70] for e in ENGINES]
            q = ratio(r)
            lines.append(f"| {r['model']} | {' | '.join(cells)} | {f'{q:.2f}' if q else '-'} |")
        quotients = {r["model"]: q for r in rows if (q := ratio(r)) and r["model"] in MODELS}
        if quotients:
            mean = math.exp(statistics.fmean(math.log(q) for q in quotients.values()))
            worst = min(quotients, key=lambda m: quotients[m])
            missing = len([r for r in rows if r["model"] in MODELS]) - len(quotients)
            lines += ["", f"Geometric mean over {len(quotients)} models: **{mean:.2f}**; lowest {quotients[worst]:.2f} "
                      f"({worst})." + (f" {missing} without a figure." if missing else "")]
    different = [f"{r['model']} ({r['difference_tripod']:.1e})" for r in results if r.get("difference_tripod", 0) > 1e-3]
    if different:
        lines += ["", "Outputs differ from ONNX Runtime's by over 1e-3 of their range: " + ", ".join(sorted(set(different)))]
    return "\n".join(lines) + "\n"


def write_section(path: Path, text: str, title: str, begin: str, end: str) -> None:
    """Replaces what stands between the markers in `path`, or appends it."""
    old = path.read_text() if path.exists() else "# Results\n\n"
    section = f"{begin}\n## {title}\n\n{text}{end}\n"
    if begin in old and end in old:
        head, rest = old.split(begin, 1)
        path.write_text(head + section + rest.split(end, 1)[1].lstrip("\n"))
    else:
        path.write_text(old.rstrip("\n") + "\n\n" + section)


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", help="parts of labels: " + ", ".join([*MODELS, *MORE]))
    p.add_argument("--threads", default="1,2")
    p.add_argument("--seconds", type=float, default=6.0, help="measuring time a model and thread count (default 6)")
    p.add_argument("--compiler", default=str(COMPILER))
    p.add_argument("--compile-arg", action="append", default=[], metavar="ARG")
    p.add_argument("--static", action="store_true", help="compile for exactly the measured shapes")
    p.add_argument("--reuse", action="store_true", help="take build/bench/NAME.so where it exists")
    p.add_argument("--peers-only", action="store_true", help="without Tripod")
    p.add_argument("--results", type=Path, metavar="FILE", help="put the tables into this markdown file")
    p.add_argument("--json", type=Path, metavar="FILE")
    p.add_argument("--one", nargs=4, metavar=("LABEL", "THREADS", "SO", "OUT"), help=argparse.SUPPRESS)
    return p.parse_args()


def main() -> int:
    args = parse()
    if args.one:
        label, threads, so, out = args.one
        Path(out).write_text(json.dumps(run_one(label, int(threads), so, args.seconds)))
        return 0
    labels = [m for m in MODELS | MORE if any(t in m for t in args.models)] if args.models else list(MODELS)
    if not labels:
        print("peers: no model matches", file=sys.stderr)
        return 2
    import make_models
    import models
    names = {(MODELS | MORE)[m][0] for m in labels}
    models.fetch([s for s in models.SOURCES if s.name in names])
    make_models.make([n for n in make_models.NAMES if n in names])
    load = os.getloadavg()[1]
    compiled = {m: ("", "not measured") for m in labels} if args.peers_only else compile_all(labels, args)

    results: list[dict[str, Any]] = []
    for label in labels:
        for threads in map(int, args.threads.split(",")):
            so, why = compiled[label]
            with tempfile.NamedTemporaryFile(suffix=".json") as out:
                p = subprocess.run([sys.executable, __file__, "--seconds", str(args.seconds), "--one", label,
                                    str(threads), so, out.name], capture_output=True, text=True)
                r = json.loads(Path(out.name).read_text() or "{}")
            if not r:
                last = (p.stderr.strip().splitlines() or [""])[-1]
                r = {"model": label, "threads": threads, "errors": {"tripod": f"exit code {p.returncode} {last}"[:160]}}
            if why:
                r["errors"]["tripod"] = why
            results.append(r)
            q = ratio(r)
            print(f"{label}, {threads} thread{'s' * (threads > 1)}: " + ", ".join(f"{e} {r[e][1]:.3g} ms" for e in ENGINES if e in r)
                  + (f"; peer / tripod {q:.2f}" if q else "") + "".join(f"; {e}: {t}" for e, t in r["errors"].items()), flush=True)
    text = report(results, command_line(), load)
    print("\n" + text)
    if args.results:
        write_section(args.results, text, "Beside ONNX Runtime and OpenVINO", BEGIN, END)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
