# SPDX-License-Identifier: Apache-2.0
"""Plans in PyTorch: run one, measure a model, and compare a trace with a plan.

Needs torch, which `import pipetwin` does not.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _questions
from ._errors import UnavailableError, UsageError
from ._inputs import PathLike, Schedule
from ._recorder import Recorder
from ._results import Comparison, Plan

__all__ = ["Recorder", "compare", "profile", "record", "schedule"]


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UnavailableError("this Python has no torch", kind="unavailable", place="torch",
                               hint="run it with the Python that your model trains with", code=5) from error
    return torch


def _runtime() -> Any:
    """torch's module of schedules, which can load a file of actions from 2.6 on."""
    torch = _torch()
    try:
        from torch.distributed.pipelining import schedules
        schedules._PipelineScheduleRuntime._load_csv  # noqa: B018 - whether it is there
    except (ImportError, AttributeError) as error:
        raise UnavailableError(f"torch {torch.__version__} has no pipeline runtime that loads a schedule",
                               kind="unavailable", place="torch", hint="use torch 2.6 or later", code=5) from error
    return schedules


def _refuse(reason: str, hint: str) -> UsageError:
    return UsageError(reason, kind="usage", place="stages", hint=hint, code=2)


def _own_stages(rows: Schedule, stages: Sequence[Any], rank: int, device: Any) -> list[Any]:
    """The PipelineStages of this rank, made of modules where those are given."""
    torch = _torch()
    from torch.distributed.pipelining import PipelineStage
    placement = rows.placement()
    if rank >= len(placement):
        raise _refuse(f"the plan has {len(placement)} ranks, but this process is rank {rank}",
                      f"start {len(placement)} processes")
    own = placement[rank]
    if all(isinstance(stage, PipelineStage) for stage in stages):
        found = sorted(stage.stage_index for stage in stages)
        if found != own:
            raise _refuse(f"rank {rank} has the stages {found}, but in the plan {own}",
                          "give the stages of this rank, or the modules of all stages")
        return list(stages)
    if not all(isinstance(stage, torch.nn.Module) for stage in stages):
        raise TypeError("stages are neither PipelineStages of this rank nor modules, one for each stage of the plan")
    if len(stages) != rows.stages:
        raise _refuse(f"{len(stages)} modules, but the plan has {rows.stages} stages", "give one for each stage")
    return [PipelineStage(stages[index].to(device), index, rows.stages, device) for index in own]


def _name_ranges(stage: Any) -> None:
    """Ranges of the profiler with the names of actions, "PP:2F0", which later versions of torch record themselves."""
    record_function = _torch().profiler.record_function

    def named(inner: Callable[..., Any], kind: Callable[[dict[str, Any]], str]) -> Callable[..., Any]:
        parameters = inspect.signature(inner)

        def outer(*args: Any, **options: Any) -> Any:
            given = parameters.bind(*args, **options).arguments
            micro_batch = next(iter(given.values()))
            with record_function(f"PP:{stage.stage_index}{kind(given)}{micro_batch}"):
                return inner(*args, **options)
        return outer

    stage.forward_one_chunk = named(stage.forward_one_chunk, lambda _: "F")
    stage.backward_one_chunk = named(stage.backward_one_chunk,
                                     lambda given: "B" if given.get("full_backward", True) else "I")
    stage.backward_weight_one_chunk = named(stage.backward_weight_one_chunk, lambda _: "W")


def schedule(plan: Plan | Schedule | PathLike, stages: Sequence[Any], *, loss_fn: Callable[..., Any] | None = None,
             device: Any = None, **options: Any) -> Any:
    """torch.distributed.pipelining's runtime with the order of a plan: call its `step` as that of any schedule there.

    plan:     a Plan, a Schedule, or a source of `pipetwin.export`
    stages:   this rank's PipelineStages, or the nn.Modules of all stages, of which this rank's are taken
    loss_fn:  of the last stage's output and the target
    device:   for stages that are made of modules; by default the CPU
    options:  those of torch's _PipelineScheduleRuntime, as in scale_grads=False

    Needs an initialized process group with as many ranks as the plan. The batch has to have the plan's number of
    micro-batches, or a multiple of it as samples.
    """
    schedules, torch = _runtime(), _torch()
    if not torch.distributed.is_initialized():
        raise UsageError("there is no process group", kind="usage", place="torch.distributed",
                         hint="call torch.distributed.init_process_group first", code=2)
    source = plan.schedule if isinstance(plan, Plan) else plan
    with_messages = hasattr(schedules._ComputationType, "REDUCE_GRAD")  # torch 2.6 adds messages of its own
    text = _questions.export("torch-csv", source, name="actions.csv", compute_only=not with_messages)
    rows = Schedule.from_csv(text)
    own = _own_stages(rows, stages, torch.distributed.get_rank(), device or torch.device("cpu"))
    if "stage_index_to_group_rank" in inspect.signature(schedules._PipelineScheduleRuntime).parameters:
        # torch 2.6 does not read from the file where stages are
        options.setdefault("stage_index_to_group_rank", {stage: rank for rank, stages_there in enumerate(rows.placement())
                                                         for stage in stages_there})
        for stage in own:
            _name_ranges(stage)
    runtime = schedules._PipelineScheduleRuntime(own, rows.micro_batches, loss_fn=loss_fn, **options)
    with tempfile.TemporaryDirectory(prefix="pipetwin-") as folder:
        file = Path(folder) / "actions.csv"
        with open(file, "w", encoding="utf-8", newline="") as written:
            written.write(text)
        runtime._load_csv(str(file), format="compute_comms" if with_messages else "compute_only")
    return runtime


def _profiler() -> ModuleType:
    """tools/profile_torch.py, which the package has as one of its modules."""
    beside = Path(__file__).parent / "_profile_torch.py"
    source = beside if beside.exists() else Path(__file__).parents[2] / "tools" / "profile_torch.py"
    name = "pipetwin._profile_torch"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, source)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def profile(module: Any, inputs: Any, micro_batch_sizes: Sequence[int] = (1,), **options: Any) -> dict[str, Any]:
    """Measures the blocks of a model in this process: the content of a *.profile.json, for `profile=` of other calls.

    module:             an nn.Sequential, or a list of blocks of which each takes what the one before returns
    inputs:             an example, whose first dimension counts samples
    micro_batch_sizes:  samples for which every block is measured
    options:            device, precision, device_name, repetitions, seconds, progress (tools/profile_torch.py)
    """
    _torch()
    return _profiler().profile(module, inputs, micro_batch_sizes=micro_batch_sizes, **options)


def compare(plan: Any, *traces: PathLike, **options: Any) -> Comparison:
    """Compares a plan with traces of torch.profiler, one file for each rank. Actions are compared without their waits.

    plan:  a Plan, a Scenario, a run folder or a predicted trace
    """
    if not traces:
        raise UsageError("no trace was given", kind="usage", place="traces",
                         hint="give the file of each rank, as torch.profiler's export_chrome_trace writes it", code=2)
    return _questions.compare(plan, *(os.fspath(trace) for trace in traces), **options)


def record(plan: Any, folder: PathLike, schedule: Any, *, skip: int = 1, steps: int = 31,
           synchronize: Callable[[], None] | None = None) -> Recorder:
    """Records the steps of a training as a run folder, which `pipetwin.compare`, `pipetwin view` and the window open.

    plan:         the plan that is trained: a Plan, a Scenario, or what makes one
    folder:       written by rank 0 when the Recorder is closed
    schedule:     the runtime of torch.distributed.pipelining, or a list of this rank's PipelineStages
    skip:         steps at the begin that do not count
    steps:        how many of the last steps are kept
    synchronize:  on a GPU torch.cuda.synchronize: called before each reading of the clock, so that an action is as long as
                  its kernels. Without it the times are those of the launches

    Every process of the group calls it, and closes it. The clocks of hosts have to agree.
    """
    torch = _torch()
    stages = schedule if isinstance(schedule, (list, tuple)) else getattr(schedule, "_stages", None) or [
        getattr(schedule, "_stage", None)]
    if not all(hasattr(stage, "forward_one_chunk") for stage in stages):
        raise TypeError("schedule is neither one of torch.distributed.pipelining nor a list of its PipelineStages")
    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    rank, ranks = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if group else (0, 1)

    def gather(value: Any) -> list[Any]:
        everyone = [None] * ranks
        torch.distributed.all_gather_object(everyone, value)
        return everyone

    def peak_bytes() -> int | None:
        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() and torch.cuda.is_initialized() else None

    return Recorder(plan, Path(folder), stages, rank=rank, ranks=ranks, skip=skip, steps=steps,
                    schedule=None if isinstance(schedule, (list, tuple)) else schedule,
                    gather=gather if group else None, peak_bytes=peak_bytes, synchronize=synchronize)
