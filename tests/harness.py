"""What the Python suites share: compiling with the tripod binary, and running code in a child that may crash."""
from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
COMPILER = ROOT / "build" / "bin" / "tripod"

# What a clean refusal looks like: `FILE: error: node 41 Resize 'up3/resize': ...`, or what else in the model it names.
CLEAN = re.compile(r"error: (?:[^\n]*\b)?(?:node \d+ [\w.:]+|input|output|initializer|value|opset|IR version|function|model|graph)\b")


def first_error(text: str) -> str:
    """The first error of a compiler's messages, without paths, the file's name and the node's index and name."""
    text = text.replace(f"{ROOT}/", "")
    for line in text.splitlines():
        _, found, message = line.partition("error: ")
        if found:
            return re.sub(r"^node \d+ ([\w.:]*\w)(?: '[^']*')?", r"\1", message).strip()
    return text.strip().splitlines()[0][:160] if text.strip() else "no message"


def find_nvcc() -> str | None:
    """The toolkit's compiler, or that of the PyPI packages in scripts/requirements.txt, which then is put on PATH."""
    here = next((p for p in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc") if p and Path(p).exists()), None)
    for p in ROOT.glob("build/venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc") if not here else ():
        here = str(p)
        os.environ["PATH"] = f"{p.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return here


@dataclass
class Compiled:
    """How a compile went; status is one of pass, unsupported, error, crash, timeout."""

    status: str
    message: str = ""
    seconds: float = 0.0
    peak_mb: float = 0.0
    stderr: str = ""


def compile_model(compiler: str, model: Path, so: Path, args: Sequence[str] = (), timeout: float = 60.0) -> Compiled:
    """Runs `tripod compile model -o so`; peak_mb is the compiler's resident set at its largest."""
    command = [compiler, "compile", str(model), "-o", str(so), *args]
    start = time.monotonic()
    with tempfile.TemporaryFile() as messages:
        # What a runner preloads (guarded.py) is for the model's run.
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages, stdin=subprocess.DEVNULL, env=env)
        killed, p.returncode, peak = _wait(p, timeout)
        messages.seek(0)
        text = messages.read().decode(errors="replace")
    status, message = _judge(p.returncode, text, so, killed, timeout)
    return Compiled(status, message, time.monotonic() - start, peak / 1024, text)


def _wait(p: subprocess.Popen[bytes], timeout: float) -> tuple[bool, int, int]:
    """Waits for `p` and kills it after `timeout` seconds: (killed, exit code, largest resident set in KiB).

    The size is VmHWM as last seen, read more and more rarely: ru_maxrss would count this process before the exec.
    """
    fd, killed, peak, pause, deadline = os.pidfd_open(p.pid), False, 0, 0.005, time.monotonic() + timeout
    try:
        while not select.select([fd], [], [], pause)[0]:
            status = Path(f"/proc/{p.pid}/status").read_text()
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            peak = max(peak, int(found[1]) if found else 0)
            pause = min(0.05, pause * 1.3)
            if time.monotonic() > deadline and not killed:
                killed = True
                p.kill()
    finally:
        os.close(fd)
    _, status_word = os.waitpid(p.pid, 0)
    return killed, os.waitstatus_to_exitcode(status_word), peak


def _judge(code: int, text: str, so: Path, killed: bool, timeout: float) -> tuple[str, str]:
    """(status, message) of a compile that ended with `code`, as subprocess counts, and printed `text`."""
    if killed:
        return "timeout", f"compiling took over {timeout:g} s"
    if code == 0:
        return ("pass", "") if so.exists() else ("error", "exit code 0 and no file")
    if code < 0:
        return "crash", f"the compiler ended with {signal.Signals(-code).name}"
    if so.exists():
        return "error", f"exit code {code}, and a file was left behind"
    if code == 2:
        return ("unsupported" if CLEAN.search(text) else "error"), first_error(text)
    return "error", f"exit code {code}: {first_error(text)}"


def in_child(work: Callable[[], str], timeout: float) -> tuple[str, str]:
    """Runs `work() -> str` in a forked child. Gives (status, message): pass when it returned ""."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            message = work()
        except BaseException:  # the child must never come back from here
            message = "the harness failed: " + traceback.format_exc(limit=-2).replace("\n", " | ")
        os.write(write, json.dumps(message[:60000]).encode())
        os._exit(0)
    os.close(write)
    chunks, deadline = [], time.monotonic() + timeout
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            break
        chunk = os.read(read, 1 << 16)
        if not chunk:
            break
        chunks.append(chunk)
    os.close(read)
    _, status = os.waitpid(pid, 0)
    if chunks:
        message = json.loads(b"".join(chunks))
        return ("wrong", message) if message else ("pass", "")
    if time.monotonic() >= deadline:
        return "timeout", f"the run took over {timeout:g} s"
    if os.WIFSIGNALED(status):
        return "crash", f"the run ended with {signal.Signals(os.WTERMSIG(status)).name}"
    return "crash", f"the run ended the process with exit code {os.waitstatus_to_exitcode(status)}"
