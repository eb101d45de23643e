#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces that PyTorch's profiler writes of PyTorch's own schedules on CPUs, read by 'import torch-trace' and 'compare'.

    MODERN_TORCH=FOLDER torch_traces_test.py PROGRAM

A second clock runs inside of each rank: around every forward and backward of a stage, without the waits for messages. The medians of
the profile have to be those of that clock, whether the schedule names its ranges (GPipe, interleaved) or not (1F1B); a plan with
these costs and the same schedule has to have the same rows; and a trace that is cut in half has to say so. Exits with 77 where
MODERN_TORCH (bench/peers/torch_schedules.py) is not set."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
from torch_schedules import python_of  # noqa: E402

STEPS = 4
# Name in PyTorch, ranks, stages of each rank, micro-batches, name here.
SCHEDULES = [("Schedule1F1B", 3, 1, 6, "1f1b"), ("ScheduleGPipe", 2, 1, 4, "gpipe"),
             ("ScheduleInterleaved1F1B", 2, 2, 4, "interleaved-1f1b")]


# --- Inside of the Python of MODERN_TORCH. ---

def clocked(torch, stage, times):
    """Makes a stage note when its forwards and backwards run, in the order of its micro-batches."""
    import time
    for name, kind in (("forward_one_chunk", "F"), ("backward_one_chunk", "B")):
        inner = getattr(stage, name)

        def outer(*args, inner=inner, kind=kind, **kwargs):
            begin = time.perf_counter()
            result = inner(*args, **kwargs)
            times.setdefault(f"{stage.stage_index}{kind}", []).append(time.perf_counter() - begin)
            return result
        setattr(stage, name, outer)


def clocked_loss(loss, key, times):
    """A loss whose time is part of the forward before it."""
    import time

    def outer(*args):
        begin = time.perf_counter()
        result = loss(*args)
        if times.get(key):  # else PyTorch asks for shapes
            times[key][-1] += time.perf_counter() - begin
        return result
    return outer


def work(rank, ranks, schedule, chunks, micro_batches, folder):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, schedules
    from torch.profiler import ProfilerActivity, profile
    from torch.profiler import schedule as profiled_steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{folder}/rendezvous")
    width, times = 256, {}
    stages = []
    for chunk in range(chunks):
        number = rank + ranks * chunk
        layers = [torch.nn.Linear(width, width) for _ in range(6 + 6 * (number % 2))]
        stages.append(PipelineStage(torch.nn.Sequential(*layers), number, ranks * chunks, torch.device("cpu")))
        clocked(torch, stages[-1], times)
    optimizer = torch.optim.AdamW([p for stage in stages for p in stage.submod.parameters()])
    loss = clocked_loss(torch.nn.MSELoss(), f"{ranks * chunks - 1}F", times)
    made = getattr(schedules, schedule)(stages if chunks > 1 else stages[0], micro_batches, loss_fn=loss)
    batch = torch.randn(micro_batches * 256, width)

    def write(profiler):
        profiler.export_chrome_trace(f"{folder}/rank{rank}.json")

    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=write,
                 schedule=profiled_steps(wait=1, warmup=1, active=STEPS, repeat=1)) as profiler:
        for step in range(STEPS + 2):
            optimizer.zero_grad()
            if step == 2:
                times.clear()
            made.step(*([batch] if rank == 0 else []),
                      **({"target": batch, "losses": []} if rank == ranks - 1 else {}))
            optimizer.step()
            profiler.step()
    pathlib.Path(f"{folder}/times{rank}.json").write_text(json.dumps(times))
    dist.barrier()


def inside(task):
    import torch.multiprocessing as processes
    schedule, ranks, chunks, micro_batches, folder = json.loads(task)
    processes.start_processes(work, (ranks, schedule, chunks, micro_batches, folder), nprocs=ranks, start_method="fork")


# --- Outside. ---

def run(*command, code=0):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done


def check(program, schedule, ranks, chunks, micro_batches, name, folder):
    traces = [folder / f"rank{rank}.json" for rank in range(ranks)]
    out = folder / "stages.profile.json"
    said = run(program, "import", "torch-trace", *traces, "--micro-batch-size", 256, "--out", out).stderr
    if "without waits for messages" not in said:
        raise SystemExit(f"{schedule}: {said}")
    clock = {}
    for rank in range(ranks):
        clock.update(json.loads((folder / f"times{rank}.json").read_text()))
    layers = json.loads(out.read_text())["layers"]
    assert len(layers) == ranks * chunks, len(layers)
    for number, layer in enumerate(layers):
        sample = layer["samples"][0]
        for kind, found in (("F", sample["forward_ns"]), ("B", sample["backward_input_ns"] + sample["backward_weight_ns"])):
            clocked_ns = 1e9 * statistics.median(clock[f"{number}{kind}"])
            # The clock also holds what is around the operators, some tenths of a millisecond on an idle machine.
            if not 0.75 * clocked_ns - 2e6 < found < 1.1 * clocked_ns + 1e6:
                raise SystemExit(f"{schedule}, {number}{kind}: {found} ns, expected about {clocked_ns:.0f}")
    plan = folder / "plan"
    times = [max(layer["samples"][0]["forward_ns"] for layer in layers) / 1e6,
             max(layer["samples"][0]["backward_input_ns"] + layer["samples"][0]["backward_weight_ns"]
                 for layer in layers) / 1e6]
    run(program, "simulate", "--schedule", name, "--stages", ranks, "--chunks", chunks, "--micro-batches", micro_batches,
        "--forward-ms", times[0], "--backward-ms", times[1], "--out", plan)
    compared = json.loads(run(program, "compare", plan, *traces, "--json").stdout)
    longest = times[0] * micro_batches + times[1] * micro_batches
    assert compared["step_ms"]["measured"] > 0.5 * longest, compared["step_ms"]
    text = traces[0].read_text()
    traces[0].write_text(text[:len(text) * 3 // 4])
    cut = run(program, "import", "torch-trace", *traces, "--micro-batch-size", 256, "--out", out, "--force").stderr
    assert f"the file ends too early, at {traces[0]}:" in cut, cut
    print(f"{schedule}: F {times[0]:.2f} ms, B {times[1]:.2f} ms, step {compared['step_ms']['predicted']:.1f} ms "
          f"predicted, {compared['step_ms']['measured']:.1f} ms measured")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--inside":
        return inside(sys.argv[2])
    if "MODERN_TORCH" not in os.environ:
        print("skipped: MODERN_TORCH is not set")
        return 77
    command, environment = python_of(pathlib.Path(os.environ["MODERN_TORCH"]))
    for schedule, ranks, chunks, micro_batches, name in SCHEDULES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            task = json.dumps([schedule, ranks, chunks, micro_batches, temporary])
            done = subprocess.run([*map(str, command), __file__, "--inside", task], env=environment, text=True,
                                  capture_output=True, timeout=240, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{schedule}: {done.stderr[-2000:]}")
            check(sys.argv[1], schedule, ranks, chunks, micro_batches, name, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
