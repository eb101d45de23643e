# SPDX-License-Identifier: Apache-2.0
"""The questions of the command line as functions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _inputs
from ._errors import FileError, UsageError
from ._inputs import Cluster, CommandLine, Model, PathLike, Scenario, Schedule
from ._library import Answer, Progress, ask, library, library_path
from ._results import Check, Comparison, Imported, Picture, Plan, Prediction, Result


def _asked(line: CommandLine, **how: Any) -> Answer:
    words = line.words()
    return ask(words, files=line.files, outputs=line.outputs, **how)


def version() -> str:
    """The version of the library.

    >>> version().count(".")
    2
    """
    return library().pipetwin_version().decode()


def devices() -> dict[str, Any]:
    """What ships: dicts of "profiles" (devices) and "links", names of "clusters", "models" and "stacks"; and this
    machine.

    >>> "8x-h100-sxm" in devices()["clusters"]
    True
    """
    return json.loads(ask(["devices", "--json"]).result)


def models() -> list[str]:
    """Names of models that `plan` knows.

    >>> "llama-3-70b" in models()
    True
    """
    return devices()["models"]


def clusters() -> list[str]:
    """Names of clusters that `plan` knows.

    >>> "8x-h100-sxm" in clusters()
    True
    """
    return devices()["clusters"]


def plan(model: Model | Scenario | PathLike | Mapping[str, Any], cluster: Cluster | PathLike | None = None, *,
         nodes: int | None = None, sequence: int | str | None = None, batch_tokens: float | str | None = None,
         precision: str | None = None, stack: str | None = None, schedule: str | list[str] | None = None,
         profile: PathLike | Mapping[str, Any] | None = None, set: Mapping[str, Any] | None = None,
         progress: Progress | None = None, files: bool = True, **options: Any) -> Plan:
    """Finds the fastest plan for a model on a cluster, or for what a scenario leaves open.

    model:         a Model, or with no cluster a Scenario; or what makes one of them
    cluster:       a Cluster, or what makes one
    nodes:         of the cluster
    sequence:      tokens per sample
    batch_tokens:  tokens per step
    schedule:      search these only
    profile:       costs of a scenario's layers
    set:           keys of the scenario, as in {"pipeline.stages": 4}
    progress:      called with a share from 0 to 1 and a text; True from it ends the search with the best so far
    files:         keep the files of the fastest plan (`Plan.file`), which take a few megabytes
    options:       all others of `pipetwin plan`, as in whole_blocks=True, tokens="15T"

    Ctrl-C gives the search up. Raises InfeasibleError where nothing fits, and says what would.

    >>> costs = {"schema_version": 1, "source": "measured", "device": "x", "precision": "fp32", "layers": [
    ...     {"name": f"layer{i}", "parameter_bytes": 1024, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
    ...      "backward_ns": 2000000, "output_bytes": 64, "saved_bytes": 256}]} for i in range(4)]}
    >>> found = plan(Scenario({"model": {"kind": "profile", "file": "costs.profile.json"}, "training": {"batch": 8},
    ...                        "cluster": {"count": 2}, "pipeline": {"micro_batches": 8, "data_parallel": 1}},
    ...                       {"costs.profile.json": costs}))
    >>> found.ranked[0]["stages"], found.schedule.ranks
    (2, 2)
    """
    line = CommandLine("plan")
    if cluster is not None:
        line.give((model if isinstance(model, Model) else Model(model)).given())  # type: ignore[arg-type]
        place = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        line.add("--cluster")
        line.give(place.given())
        nodes = nodes if nodes is not None else place.nodes
    else:
        line.give(model.given() if isinstance(model, Model) else _inputs.given(model))
    line.add("--json")
    if profile is not None:
        line.add("--profile")
        line.give(_inputs.named(profile, "costs.profile.json"))
    line.add(*_inputs.option_words({"nodes": nodes, "sequence": sequence, "batch_tokens": batch_tokens,
                                    "precision": precision, "stack": stack, "schedule": schedule, "set": set, **options}))
    whole = not {"largest", "sweep"} & options.keys()
    if files and whole and "out" not in options:
        line.add("--out")
        line.output("plan")
    return Plan(_asked(line, progress=progress))


def simulate(scenario: Any = None, *, schedule: Schedule | str | list[str] | None = None,
             stages: int | None = None, micro_batches: int | None = None, chunks: int | None = None,
             forward_ms: float | list[float] | None = None, backward_ms: float | list[float] | None = None,
             profile: PathLike | Mapping[str, Any] | None = None, set: Mapping[str, Any] | None = None,
             **options: Any) -> Prediction:
    """Predicts a step of a scenario or a Plan, or of costs that are given as plain numbers.

    scenario:      a Scenario, a Plan, a path, TOML or a dict; or None, with the numbers below
    schedule:      a name, or a Schedule of your own
    forward_ms:    milliseconds of a stage: one number, or one for each stage
    backward_ms:   the same of its backward
    profile:       costs of the scenario's layers
    set:           keys of the scenario, as in {"pipeline.stages": 4}
    options:       all others of `pipetwin simulate`, as in latency_ms=0.1, jitter=0.05

    >>> simulate(stages=4, micro_batches=8, schedule="1f1b", forward_ms=1, backward_ms=2).step_ms
    33.0
    """
    line = CommandLine("simulate")
    if scenario is not None:
        line.give(_inputs.given(scenario))
    line.add("--json")
    if isinstance(schedule, Schedule):
        line.add("--schedule-file")
        line.give(_inputs.named(schedule.to_csv(), "own.csv"))
        schedule = None
    if profile is not None:
        line.add("--profile")
        line.give(_inputs.named(profile, "costs.profile.json"))
    line.add(*_inputs.option_words({"schedule": schedule, "stages": stages, "micro_batches": micro_batches,
                                    "chunks": chunks, "forward_ms": forward_ms, "backward_ms": backward_ms, "set": set,
                                    **options}))
    return Prediction(_asked(line))


def sweep(*scenarios: Any, set: Mapping[str, Any] | None = None, **options: Any) -> Result:
    """Compares scenarios, or values of keys: sweep("gpt.toml", sweep="pipeline.stages=2,4").

    options: those of `pipetwin sweep`, as in schedule=["gpipe", "1f1b"]

    >>> table = sweep(stages=4, micro_batches=8, forward_ms=1, backward_ms=2, schedule=["gpipe", "1f1b"])
    >>> len(table.json["plans"])
    2
    """
    line = CommandLine("sweep")
    for source in scenarios:
        line.give(_inputs.given(source))
    line.add("--json", *_inputs.option_words({"set": set, **options}))
    return Result(_asked(line))


def check(schedule: Any, *, capacity: int | None = None, set: Mapping[str, Any] | None = None,
          **options: Any) -> Check:
    """Proves that a schedule is complete and free of deadlock, or lists what is wrong.

    schedule:  a Schedule, lists of actions, a path, a Scenario or a Plan
    capacity:  messages that a channel holds before its sender waits; None: any number
    options:   all others of `pipetwin check`, as in preposted_receives=True

    A schedule that is not valid is an answer: `Check.valid` is False, and `violations` lists what is broken.

    >>> bool(check([["0F0", "0B0"], ["1F0", "1B0"]]))
    True
    >>> check([["0F0", "0B0"], ["1B0", "1F0"]]).valid
    False
    """
    line = CommandLine("check")
    line.give(_inputs.given(schedule))
    line.add("--json", *_inputs.option_words({"capacity": capacity, "set": set, **options}))
    answer = _asked(line, check=False)
    error = answer.error()
    if error is not None and not answer.result:
        raise error
    return Check(answer)


def compare(predicted: Any, *measured: PathLike, **options: Any) -> Comparison:
    """Compares a predicted timeline with a measured one.

    predicted:  a Plan, a Scenario, a run folder, or the path of a trace
    measured:   the path of a trace of pipetwin or of a profiler, one for each rank; none for a run folder
    options:    those of `pipetwin compare`

    >>> import tempfile
    >>> costs = dict(stages=2, micro_batches=2, schedule="1f1b", forward_ms=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     predicted = simulate(backward_ms=2, out=f"{folder}/a", **costs)
    ...     slower = simulate(backward_ms=3, out=f"{folder}/b", **costs)
    ...     round(compare(f"{folder}/a/predicted.trace.json", f"{folder}/b/predicted.trace.json").step_error_percent)
    -25
    """
    line = CommandLine("compare")
    if isinstance(predicted, Plan) and len(measured) == 1:
        line.give(_inputs.named(predicted.file("predicted.trace.json").encode(), "predicted.trace.json"))
    else:
        line.give(_inputs.given(predicted))
    line.add(*(os.fspath(path) for path in measured), "--json", *_inputs.option_words(options))
    return Comparison(_asked(line))


def export(format: str, source: Any, *, profile: PathLike | Mapping[str, Any] | None = None,
           set: Mapping[str, Any] | None = None, name: str | None = None, **options: Any) -> str:
    """A plan as the file of another program: "torch-csv", "megatron-flags", "torchtitan-toml", "deepspeed", "svg", ...

    source:   a Scenario, a Plan, a Schedule, a run folder or a schedule file
    name:     of the file, where its ending matters

    >>> export("torch-csv", Schedule([["0F0", "0B0"]])).split(",")[0]
    '0F0'
    """
    if format in ("pdf", "png"):
        raise UsageError(f"a picture in {format} is no text", kind="usage", place="format",
                         hint=f"write 'svg', or run 'pipetwin export {format} SOURCE --out FILE'", code=2)
    out = name or ("exported.svg" if format == "svg" else "exported")
    line = CommandLine("export")
    line.add(format)
    line.give(_inputs.given(source))
    line.add("--out")
    line.output(out)
    line.add("--json")
    if profile is not None:
        line.add("--profile")
        line.give(_inputs.named(profile, "costs.profile.json"))
    line.add(*_inputs.option_words({"set": set, **options}))
    return (_asked(line).file(out) or b"").decode()


def draw(source: Any, **options: Any) -> Picture:
    """A picture (SVG) of a Scenario's, Plan's or Schedule's timeline, or of a trace.

    >>> draw(Schedule([["0F0", "0B0"]])).startswith("<svg")
    True
    """
    return Picture(export("svg", source, **options))


def shipped(name: str) -> Path:
    """The path of a file or folder that ships with the package: what lies in "scenarios" and "profiles".

    >>> simulate(shipped("scenarios/papers/gpipe-transformer-48.toml"), set={"pipeline.stages": 4}).json["stages"]
    4
    """
    path = library_path().parents[1] / "share" / "pipetwin" / name
    if not path.exists():
        raise FileError(f"nothing of the name {name!r} ships", kind="io", place=str(path),
                        hint="list the folder pipetwin.shipped(\"scenarios\")", code=6)
    return path


def import_file(file: PathLike | Mapping[str, Any], format: str = "auto", *more: PathLike, out: str = "imported",
                **options: Any) -> Imported:
    """Converts a file of another program into a scenario, a profile or a schedule (`Imported.content`).

    file:     a path, a text of several lines, or a config.json as a dict
    format:   "hf", "megatron", "torch-csv", "torch-trace", ...; "auto" looks at the content
    options:  those of `pipetwin import`, as in device="h100-sxm", sequence=4096, micro_batch_size=1

    >>> import_file("0F0,0B0\\n1F0,1B0\\n", "torch-csv", out="s.csv").content.splitlines()[1]
    '1F0,1B0'
    """
    line = CommandLine("import")
    line.add(format)
    line.give(_inputs.named(file, "config.json" if isinstance(file, Mapping) else "file"))
    line.add(*(os.fspath(path) for path in more), "--out")
    line.output(out)
    line.add("--json", *_inputs.option_words(options))
    return Imported(_asked(line), out)


def profile(model: PathLike | Mapping[str, Any] | Model, device: str, *, sequence: int, micro_batch_size: int = 1,
            **options: Any) -> dict[str, Any]:
    """Costs of a model's layers on a device, estimated from its config.json: the content of a *.profile.json.

    options: those of `pipetwin import hf`, as in precision="bf16", stack="none"

    >>> costs = profile("llama-3-8b", "h100-sxm", sequence=4096)
    >>> costs["device"], costs["layers"][0]["name"]
    ('h100-sxm', 'embedding')
    """
    source = model.source if isinstance(model, Model) else model
    return json.loads(import_file(source, "hf", out="imported.profile.json", device=device, sequence=sequence,
                                  micro_batch_size=micro_batch_size, **options).content)


__all__ = ["Answer", "ask", "check", "clusters", "compare", "devices", "draw", "export", "import_file", "models", "plan",
           "profile", "shipped", "simulate", "sweep", "version"]
