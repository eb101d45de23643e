# SPDX-License-Identifier: Apache-2.0
"""Steps of a training in PyTorch as a run folder: pipetwin.torch.record makes a Recorder."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _inputs
from ._errors import FileError, UnavailableError, UsageError
from ._inputs import CommandLine, Schedule
from ._library import ask
from ._questions import compare
from ._results import Comparison

_LANES = {"compute": 0, "send": 1, "receive": 2}
_COMPUTES = {"F", "B", "I", "W"}
Spans = list[tuple[str, int, int]]  # "2F0", begin and end in nanoseconds of the host's clock


def _refuse(place: str, reason: str, hint: str) -> UsageError:
    return UsageError(reason, kind="usage", place=place, hint=hint, code=2)


def predicted_run(plan: Any) -> dict[str, str]:
    """{name: text} of the run folder that `simulate --out` writes of a plan."""
    names = ("scenario.toml", "profile.json", "plan.json", "schedule.csv", "predicted.trace.json")
    line = CommandLine("simulate")
    line.give(_inputs.given(plan))
    line.add("--json", "--out")
    line.output("run")
    answer = ask(line.words(), files=line.files, outputs=line.outputs)
    found = {name: answer.file(f"run/{name}") for name in names}
    return {name: text.decode() for name, text in found.items() if text is not None}


def _lane(kind: str) -> str:
    return "send" if kind.startswith("SEND") else "receive" if kind.startswith("RECV") else "compute"


def cell_times(row: Sequence[Any], spans: Spans, begin: int, end: int, rank: int) -> list[tuple[int, int]]:
    """[cell]: begin and end of every cell of a row, from the computations that were recorded in one step.

    A message that a rank receives lasts from the end of what it did before to the computation that needs it: that is how
    long the rank waits. A send and a recompute take no time of their own (PyTorch recomputes inside of the backward), and
    the optimizer has what is left of the step.
    """
    computed = [place for place, cell in enumerate(row) if cell.kind in _COMPUTES]
    for place, (name, *_) in zip(computed, spans):
        if name != str(row[place]):
            raise _refuse(f"rank {rank}", f"the run computed {name} where the plan has {row[place]}",
                          "record the runtime that pipetwin.torch.schedule makes of the same plan")
    if len(computed) != len(spans):
        raise _refuse(f"rank {rank}", f"the run computed {len(spans)} actions in a step, the plan has {len(computed)}",
                      "record the runtime that pipetwin.torch.schedule makes of the same plan")
    at, times = begin, []
    following = dict(zip(computed, spans))
    coming = iter([*spans, ("", end, end)])
    upcoming = next(coming)
    for place, cell in enumerate(row):
        if place in following:
            _, start, stop = following[place]
            times.append((max(at, start), max(at, stop)))
            at, upcoming = times[-1][1], next(coming)
        elif cell.kind.startswith("RECV") or cell.kind == "OPT":
            times.append((at, max(at, upcoming[1] if cell.kind != "OPT" else end)))
            at = times[-1][1]
        else:
            times.append((at, at))
    return times


def measured_trace(predicted: str, steps: list[dict[str, Any]], peaks: list[int | None]) -> str:
    """measured.trace.json (docs/formats.md), with the rows of the predicted one.

    steps: [{"number", "ranks": [{"begin", "end", "spans"}]}], in nanoseconds of one clock
    peaks: [rank]: the most bytes at a time; None where unknown
    """
    about = json.loads(predicted)["pipetwin"]
    rows = Schedule.from_csv(about["rows"])
    begins = [min(rank["begin"] for rank in step["ranks"]) for step in steps]
    origin = begins[0]
    events: list[dict[str, Any]] = []
    for rank in range(rows.ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events += [{"ph": "M", "name": "thread_name", "pid": rank, "tid": lane, "args": {"name": name}}
                   for name, lane in _LANES.items()]
    for number, step in enumerate(steps):
        for rank, part in enumerate(step["ranks"]):
            times = cell_times(rows[rank], part["spans"], part["begin"], part["end"], rank)
            for place, (cell, (begin, end)) in enumerate(zip(rows[rank], times)):
                lane = _lane(cell.kind)
                args: dict[str, Any] = {"step": number, "cell": place}
                if lane != "compute":
                    args["wait_us"] = (end - begin) / 1e3 if lane == "receive" else 0.0
                events.append({"ph": "X", "name": f"PP:{cell}", "cat": lane, "pid": rank, "tid": _LANES[lane],
                               "ts": (begin - origin) / 1e3, "dur": (end - begin) / 1e3, "args": args})
    lengths = sorted(max(rank["end"] for rank in step["ranks"]) - begin for step, begin in zip(steps, begins))
    tenth = len(lengths) // 10
    about.update(origin="measured", breakdown_ns=None, replayed_step_ns=None,
                 peak_bytes=peaks if None not in peaks else [],
                 step_begins_ns=[begin - origin for begin in begins], step_numbers=[step["number"] for step in steps],
                 noise={"stolen_percent": 0.0, "p90_over_p10": lengths[-1 - tenth] / max(1, lengths[tenth]),
                        "dropped_steps": 0, "steps": len(steps)})
    return json.dumps({"displayTimeUnit": "ms", "pipetwin": about, "traceEvents": events})


class Recorder:
    """Records what the stages of this process compute, and writes a run folder when it is closed.

    with recorder:
        for batch in batches:
            with recorder.step():
                schedule.step(batch)
                optimizer.step()
            recorder.log(loss=loss)

    `lightning()` is a Callback of Lightning that does the same, `torchtitan(trainer)` takes the steps of torchtitan's
    Trainer. `comparison` is there on rank 0 behind `close`.
    """

    def __init__(self, plan: Any, folder: Path, stages: Sequence[Any], *, rank: int = 0, ranks: int = 1, skip: int = 1,
                 steps: int = 31, schedule: Any = None, gather: Callable[[Any], list[Any]] | None = None,
                 peak_bytes: Callable[[], int | None] = lambda: None, synchronize: Callable[[], None] | None = None):
        self.folder, self.comparison = folder, None  # type: Path, Comparison | None
        self._predicted = predicted_run(plan)
        self._rank, self._skip, self._kept = rank, skip, steps
        self._gather, self._peak_bytes, self._synchronize = gather or (lambda value: [value]), peak_bytes, synchronize
        self._offset = time.time_ns() - time.monotonic_ns()
        self._steps: list[dict[str, Any]] = []
        self._metrics: list[dict[str, Any]] = []
        self._spans: Spans | None = None
        self._began = 0
        self._number = 0
        self._closed = False
        self._logged_loss: float | None = None
        planned = Schedule.from_csv(json.loads(self._predicted["predicted.trace.json"])["pipetwin"]["rows"])
        replicas = json.loads(self._predicted["plan.json"]).get("replicas", 1)
        if replicas != 1:
            raise _refuse("plan", f"replicas are not recorded, and the plan has {replicas}",
                          "record a plan with pipeline.data_parallel = 1")
        if any(isinstance(cell, tuple) for row in planned for cell in row):
            raise _refuse("plan", "pairs of a forward and a backward are not recorded",
                          "record a schedule without pairs, as 1f1b, zb-h1 or interleaved-1f1b")
        if planned.ranks != ranks:
            raise _refuse("plan", f"the plan has {planned.ranks} ranks, the process group {ranks}",
                          f"start {planned.ranks} processes")
        self._row = planned[rank]
        if rank == 0:
            if (folder / "measured.trace.json").exists():
                raise FileError("there is a run in this folder", kind="io", place=str(folder), code=6,
                                hint="choose another folder, or remove this one")
            folder.mkdir(parents=True, exist_ok=True)
        for stage in stages:
            self._watch(stage)
        if schedule is not None and hasattr(schedule, "_maybe_compute_loss"):
            self._extend(schedule, "_maybe_compute_loss")

    # --- What is watched. ---

    def _now(self) -> int:
        if self._synchronize is not None:
            self._synchronize()
        return time.monotonic_ns() + self._offset

    def _watch(self, stage: Any) -> None:
        def kind_of_backward(*args: Any, **options: Any) -> str:
            full = options.get("full_backward", args[2] if len(args) > 2 else True)
            return "B" if full else "I"

        for name, kind in (("forward_one_chunk", lambda *_, **__: "F"), ("backward_one_chunk", kind_of_backward),
                           ("backward_weight_one_chunk", lambda *_, **__: "W")):
            inner = getattr(stage, name, None)
            if inner is not None:
                setattr(stage, name, self._noted(inner, stage.stage_index, kind))

    def _noted(self, inner: Callable[..., Any], stage: int, kind: Callable[..., str]) -> Callable[..., Any]:
        def outer(*args: Any, **options: Any) -> Any:
            if self._spans is None:
                return inner(*args, **options)
            begin = self._now()
            result = inner(*args, **options)
            micro_batch = args[0] if args else next(options[key] for key in ("fwd_chunk_id", "bwd_chunk_id") if key in options)
            self._spans.append((f"{stage}{kind(*args, **options)}{micro_batch}", begin, self._now()))
            return result
        return outer

    def _extend(self, schedule: Any, name: str) -> None:
        """The loss belongs to the forward before it."""
        inner = getattr(schedule, name)

        def outer(*args: Any, **options: Any) -> Any:
            result = inner(*args, **options)
            if self._spans and self._spans[-1][0].lstrip("0123456789").startswith("F"):
                label, begin, _ = self._spans[-1]
                self._spans[-1] = (label, begin, self._now())
            return result
        setattr(schedule, name, outer)

    # --- Steps. ---

    def begin_step(self) -> None:
        """A step begins; `step` calls it."""
        self._spans, self._began = [], self._now()

    def end_step(self) -> None:
        """The step has ended, with its optimizer."""
        if self._spans is None:
            raise _refuse("end_step", "no step has begun", "call begin_step first, or use 'with recorder.step():'")
        end, spans, self._spans = self._now(), self._spans, None
        if self._number >= self._skip:
            if not self._steps:  # a misfit shows before the training is over
                cell_times(self._row, spans, self._began, end, self._rank)
            self._steps.append({"number": self._number, "begin": self._began, "end": end, "spans": spans})
            del self._steps[:-self._kept]
        self._metrics.append({"step": self._number, "loss": None, "grad_norm": None, "learning_rate": None,
                              "validation_loss": None, "step_ms": (end - self._began) / 1e6})
        self._number += 1

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """One step of the training loop, with its optimizer. A step that raises is not recorded."""
        self.begin_step()
        try:
            yield
        except BaseException:
            self._spans = None
            raise
        self.end_step()

    def log(self, loss: Any = None, grad_norm: Any = None, learning_rate: Any = None) -> None:
        """Numbers of the step that has just ended, on any rank that knows them."""
        if not self._metrics:
            raise _refuse("log", "no step has ended", "call it behind 'with recorder.step():'")
        for key, value in (("loss", loss), ("grad_norm", grad_norm), ("learning_rate", learning_rate)):
            if value is not None:
                self._metrics[-1][key] = float(value)

    # --- The folder. ---

    def close(self) -> None:
        """Writes the folder, on rank 0, with the comparison as report.json. Every rank has to call it."""
        if self._closed:
            return
        self._closed = True
        everyone = self._gather({"rank": self._rank, "steps": self._steps, "metrics": self._metrics,
                                 "peak": self._peak_bytes()})
        if self._rank != 0:
            return
        everyone = sorted(everyone, key=lambda part: part["rank"])
        samples = json.loads(self._predicted["predicted.trace.json"])["pipetwin"]["samples"]
        self._write("metrics.jsonl", "".join(self._metric_lines(everyone, samples)))  # is there whatever fails below
        numbers = set.intersection(*({step["number"] for step in part["steps"]} for part in everyone))
        if not numbers:
            raise _refuse(str(self.folder), f"{self._number} steps were recorded, of which the first {self._skip} do not count",
                          "record more steps, or give skip=0")
        by_number = [{step["number"]: step for step in part["steps"]} for part in everyone]
        steps = [{"number": number, "ranks": [steps[number] for steps in by_number]} for number in sorted(numbers)]
        trace = measured_trace(self._predicted["predicted.trace.json"], steps, [part["peak"] for part in everyone])
        for name, text in {**self._predicted, "measured.trace.json": trace}.items():
            self._write(name, text)
        self.comparison = compare(os.fspath(self.folder))
        self._write("report.json", self.comparison.text)

    def _write(self, name: str, text: str) -> None:
        with open(self.folder / name, "w", encoding="utf-8", newline="") as file:
            file.write(text)

    def _metric_lines(self, everyone: list[dict[str, Any]], samples: int | None) -> Iterator[str]:
        peaks = [part["peak"] for part in everyone]
        for same in zip(*(part["metrics"] for part in everyone)):
            line = dict(same[0])
            for key in line:
                line[key] = next((part[key] for part in same if part[key] is not None), None)
                if line[key] is not None and not math.isfinite(line[key]):
                    line[key] = None  # JSON has no word for it
            line["step_ms"] = max(part["step_ms"] for part in same)
            line["samples_per_second"] = 1e3 * samples / line["step_ms"] if samples and line["step_ms"] else None
            line["peak_bytes"] = peaks if None not in peaks else []
            yield json.dumps(line, allow_nan=False) + "\n"

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    # --- Others' loops. ---

    def lightning(self) -> Any:
        """A Callback for Lightning's Trainer: a step is a batch; the run folder is written when training ends."""
        for name in ("lightning.pytorch", "pytorch_lightning"):
            try:
                module = __import__(name, fromlist=["Callback"])
                break
            except ImportError:
                continue
        else:
            raise UnavailableError("Lightning is not installed", kind="unavailable", place="lightning",
                                   hint="use 'with recorder.step():' in a loop of your own", code=5)
        recorder = self

        class Callback(module.Callback):  # type: ignore[misc, name-defined]
            def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
                recorder.begin_step()

            def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
                recorder.end_step()
                loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
                if loss is not None:
                    recorder.log(loss=loss)

            def on_train_end(self, trainer: Any, pl_module: Any) -> None:
                recorder.close()

        return Callback()

    def torchtitan(self, trainer: Any) -> Any:
        """Records the steps of torchtitan's Trainer: its `train_step`, the loss that its metrics processor logs, and its
        `close`. Returns the trainer."""
        for owner, name in ((trainer, "train_step"), (trainer, "close")):
            if not callable(getattr(owner, name, None)):
                raise TypeError(f"{type(trainer).__name__} has no {name}, expected a Trainer of torchtitan")
        train_step, close = trainer.train_step, trainer.close

        has_failed = False

        def recorded(*args: Any, **options: Any) -> Any:
            nonlocal has_failed
            try:
                with self.step():
                    result = train_step(*args, **options)
            except BaseException:
                has_failed = True
                raise
            if self._logged_loss is not None:  # within the step
                self.log(loss=self._logged_loss)
                self._logged_loss = None
            return result

        def closed(*args: Any, **options: Any) -> Any:
            try:
                if not has_failed:  # else its error is what counts, and other ranks may not come
                    self.close()
            finally:
                result = close(*args, **options)
            return result

        trainer.train_step, trainer.close = recorded, closed
        metrics = getattr(trainer, "metrics_processor", None)
        if metrics is not None:
            log = metrics.log

            def logged(step: int, global_avg_loss: float, *args: Any, **options: Any) -> Any:
                self._logged_loss = global_avg_loss
                return log(step, global_avg_loss, *args, **options)
            metrics.log = logged
        return trainer
