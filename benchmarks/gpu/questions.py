"""Questions about nvCOMP, copies, files and launches that only a GPU can answer; the answers go to a JSON file.

    python benchmarks/gpu questions --seconds 60 --json questions.json
    python benchmarks/gpu questions --question "damaged frames" --question launches

The most important questions come first, and those that may harm the GPU's state last. Questions that do not fit into
the time are left out and listed. The answer to a question that fails is its error. Each damaged frame is decoded in a
separate process, since it may end the CUDA context.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import programs

import gpu.router
import gpu.samples
import gpu.steps
import gpu.transfers
from gpu.batch import FrameBatch, time_runs
from gpu.steps import Steps, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gzarr.engines.cuda.device_protocol import Device

    #: Function of the device and the remaining seconds; returns the answer for the JSON file.
    Question = Callable[[Device, float], Any]

_KIB, _MIB = 1 << 10, 1 << 20
FRAME_NBYTES = (16 * _KIB, 64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
FRAME_COUNTS = (1, 16, 128, 1024, 8192)
#: Most decoded bytes of a batch.
MOST_BATCH_NBYTES = 512 * _MIB
#: Decoded size of damaged frames and of frames in unusual forms, in bytes.
DAMAGED_NBYTES = 64 * _KIB
#: Concurrent processes that decode damaged frames, and the time limit of one.
PROCESSES = 4
PATIENCE_S = 60.0


def forms(device: Device, seconds: float) -> dict[str, Any]:
    """Does zstd with a checksum, without content size, with several or with skippable frames decode correctly?"""
    data = gpu.samples.sample(200_000)
    answers = {}
    for name, frame in gpu.samples.zstd_forms(data).items():
        batch = FrameBatch.of(device, "zstd", [frame], [len(data)])
        batch.run()
        produced, statuses = batch.results()
        answers[name] = {
            "status": int(statuses[0]),
            "produced": int(produced[0]),
            "wanted": len(data),
            "equal": batch.decoded(0) == data,
        }
    return answers


def decode_damaged(device: Device, algorithm: str, damage: str) -> dict[str, Any]:
    """Decode a damaged frame between good ones, then good ones alone: nvCOMP's statuses, and the state of the context.

    Parameters
    ----------
    device
        Device, whose context may be unusable afterwards.
    algorithm, damage
        Names in :data:`gpu.samples.ALGORITHMS` and :func:`gpu.samples.damages`.
    """
    data = gpu.samples.sample(DAMAGED_NBYTES)
    good, wanted = gpu.samples.encode(algorithm, data), gpu.samples.decoded(algorithm, data)
    frames = [good, gpu.samples.damages(good)[damage], good]
    answer: dict[str, Any] = {"algorithm": algorithm, "damage": damage}
    try:
        batch = FrameBatch.of(device, algorithm, frames, [len(data)] * 3)
        batch.run()
        produced, statuses = batch.results()
        answer["statuses"], answer["produced"] = statuses.tolist(), produced.tolist()
        answer["noticed"] = bool(statuses[1] != 0 or produced[1] != len(data))
        answer["neighbours intact"] = batch.decoded(0) == wanted and batch.decoded(2) == wanted
    except Exception as error:  # any error is the answer
        answer["error"] = sentence(error)
    try:
        again = FrameBatch.of(device, algorithm, [good], [len(data)])
        again.run()
        answer["context"] = "alive" if again.succeeded() and again.decoded(0) == wanted else "wrong results"
    except Exception as error:
        answer["context"] = f"dead: {sentence(error)}"
    return answer


def damaged(device: Device, seconds: float) -> dict[str, Any]:
    """Does damage lead to a status, or a dead context? Every algorithm and kind of damage in a separate process."""
    cases = [(a, d) for d in gpu.samples.damages(bytes(64)) for a in gpu.samples.ALGORITHMS]
    deadline = time.monotonic() + seconds

    def ask(case: tuple[str, str]) -> dict[str, Any]:
        left = deadline - time.monotonic()
        if left < 5:
            return {"algorithm": case[0], "damage": case[1], "left out": "no time left"}
        return _in_a_process(*case, patience_s=min(PATIENCE_S, left))

    with ThreadPoolExecutor(PROCESSES) as threads:
        answers = list(threads.map(ask, cases))
    return {
        "cases": answers,
        "contexts lost": sum(not a.get("context", "alive").startswith("alive") for a in answers),
        "not noticed": [f"{a['algorithm']}, {a['damage']}" for a in answers if a.get("noticed") is False],
    }


def _in_a_process(algorithm: str, damage: str, patience_s: float) -> dict[str, Any]:
    command = [*programs.command("gpu", "questions"), "--damaged", algorithm, damage]
    answer: dict[str, Any] = {"algorithm": algorithm, "damage": damage}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
    except subprocess.TimeoutExpired:
        return {**answer, "context": f"hung for {patience_s:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {**answer, "context": f"process ended with {done.returncode}: {why[:200]}"}
    answer.update(json.loads(lines[-1]))
    return answer


def decode_rates(device: Device, seconds: float) -> list[dict[str, Any]]:
    """Decoded bytes per second of each algorithm against the size and number of frames; small totals first."""
    deadline = time.monotonic() + seconds
    grid = [(n, count) for n in FRAME_NBYTES for count in FRAME_COUNTS if n * count <= MOST_BATCH_NBYTES]
    data = gpu.samples.sample(max(FRAME_NBYTES))
    rates = []
    for nbytes, count in sorted(grid, key=lambda case: (case[0] * case[1], case[0])):
        for algorithm in gpu.samples.ALGORITHMS:
            if time.monotonic() > deadline:
                return [*rates, {"left out": f"from {count} frames of {nbytes} bytes on: no time left"}]
            rates.append(decode_rate(device, algorithm, data, nbytes, count))
    return rates


def decode_rate(device: Device, algorithm: str, data: bytes, nbytes: int, count: int) -> dict[str, Any]:
    """Return the rate of ``count`` frames of ``nbytes`` of ``data`` each, and whether they decoded."""
    encoded = [gpu.samples.encode(algorithm, part) for part in gpu.samples.parts(data, nbytes)]
    frames = [encoded[i % len(encoded)] for i in range(count)]
    answer: dict[str, Any] = {"algorithm": algorithm, "frame_nbytes": nbytes, "frames": count}
    try:
        batch = FrameBatch.of(device, algorithm, frames, [nbytes] * count)
    except MemoryError as error:
        return {**answer, "error": sentence(error)}
    timing = time_runs(batch.stream, batch.run, seconds=0.5)
    total = nbytes * count
    return {
        **answer,
        "ratio": round(total / sum(map(len, frames)), 3),
        "gb_per_s": total / timing.device_s / 1e9,
        "host_ms": 1e3 * timing.host_s,
        "device_ms": 1e3 * timing.device_s,
        "decoded": batch.succeeded(),
    }


#: The last question, because it may harm a GPU's state.
DAMAGED = "damaged frames"
#: Questions by name, the most important first, each with its fraction of the remaining time.
QUESTIONS: dict[str, tuple[Question, float]] = {
    "zstd forms": (forms, 0.2),
    "router rates": (gpu.router.router_rates, 0.15),
    "launches": (gpu.transfers.launches, 0.2),
    "assemble": (gpu.transfers.assemble_rates, 0.3),
    "pinned copies": (gpu.transfers.copies, 0.3),
    "files": (gpu.transfers.files, 0.5),
    "decode rates": (decode_rates, 0.9),
    DAMAGED: (damaged, 0.9),
}
#: Open questions that are not asked, and why.
NOT_ASKED = {"one warp a block against nvCOMP's lz4": "gzarr has no lz4 decoder of its own to compare"}


def ask(device: Device, names: Sequence[str], seconds: float, steps: Steps | None = None) -> dict[str, Any]:
    """Ask some questions within ``seconds``; return the answers by name."""
    steps = steps or Steps()
    deadline = time.monotonic() + seconds
    answers: dict[str, Any] = {}
    for name in names:
        question, share = QUESTIONS[name]
        left = deadline - time.monotonic()
        if left <= 0:
            answers[name] = {"left out": "no time left"}
            steps.left_out(name)
            continue
        print(name, file=sys.stderr, flush=True)
        start = time.monotonic()
        # Only the last question takes processes, which have a limit of their own.
        steps.begin(name, "", max(gpu.steps.LIMIT_S, 2 * left) if name == DAMAGED else gpu.steps.LIMIT_S + share * left)
        try:
            with device:
                answer = question(device, share * left)
        except Exception as error:  # the next question may have an answer
            answer = {"error": steps.error(error)}
        answers[name] = {"seconds": round(time.monotonic() - start, 2), "answer": answer}
        steps.found(name, answers[name])
        steps.end(name)
    return answers


def make_small() -> None:
    """Make batches, copies and files small, for a device in host memory."""
    global FRAME_NBYTES, FRAME_COUNTS
    from gzarr.engines.cuda import calibration

    FRAME_NBYTES, FRAME_COUNTS = (1000, 70_000), (1, 3)
    gpu.transfers.COPY_NBYTES, gpu.transfers.THREADS = (1024,), (1, 2)
    gpu.transfers.FILE_NBYTES, gpu.transfers.LAUNCHES = 150_000, 2
    gpu.transfers.ASSEMBLED = (("u2", 1, "C", "u2"), ("u4", 4, "C", "u4"), ("u4", 4, "F", "u4"), ("f8", 8, "C", "f4"))
    gpu.transfers.ASSEMBLED_NBYTES, gpu.transfers.CHUNK_NBYTES = 1 << 16, 1 << 13
    gpu.router.WAVES = 3
    calibration.SMALL_FRAMES = 4


def summary(answers: dict[str, Any]) -> str:
    """Return one line per question."""
    lines = []
    for name, found in answers.items():
        answer = found.get("answer", found)
        if isinstance(answer, dict) and "error" in answer:
            text = f"FAILED: {answer['error']}"
        elif "left out" in found:
            text = f"left out: {found['left out']}"
        elif name == "zstd forms":
            verdicts = {form: "right" if a["equal"] else f"status {a['status']}" for form, a in answer.items()}
            text = ", ".join(f"{form}: {verdict}" for form, verdict in verdicts.items())
        elif name == DAMAGED:
            text = f"{len(answer['cases'])} cases, {answer['contexts lost']} lost the context, "
            text += f"{len(answer['not noticed'])} not noticed"
        else:
            text = f"{len(answer)} figures in {found['seconds']:.1f} s"
        lines.append(f"{name}: {text}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--seconds", type=float, default=60.0, help="approximate time limit (default 60)")
    found.add_argument("--question", action="append", choices=list(QUESTIONS), help="only this one (repeatable)")
    found.add_argument("--without", action="append", choices=list(QUESTIONS), default=[], help="not this one")
    found.add_argument("--small", action="store_true", help="small batches: to see that everything runs to its end")
    found.add_argument("--json", type=Path, metavar="FILE")
    found.add_argument("--damaged", nargs=2, metavar=("ALGORITHM", "DAMAGE"), help=argparse.SUPPRESS)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the questions; return 1 if there is no device, or a question failed."""
    arguments = parser().parse_args(argv)
    if arguments.damaged:
        with gpu.steps.device() as device:
            print(json.dumps(decode_damaged(device, *arguments.damaged)), flush=True)
            # A lost context can be neither left nor cleaned up.
            os._exit(0)
    names = [name for name in arguments.question or QUESTIONS if name not in arguments.without]

    def measure(steps: Steps, left: list[str], seconds: float) -> None:
        device = gpu.steps.device()
        steps.about(device=gpu.transfers.device_facts())
        if arguments.small:
            make_small()
        ask(device, left, seconds, steps)

    found = gpu.steps.run(
        "questions", argv, names, arguments.seconds, measure,
        lambda found: {"questions": found.figures, "not asked": NOT_ASKED}, arguments.json,
    )  # fmt: skip
    if found is None:
        return 0
    print(summary(found.figures))
    failed = any("error" in one["answer"] for one in found.figures.values())
    return int(bool(found.refused or found.failed or failed))


if __name__ == "__main__":
    sys.exit(main())
