#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pipetwin.torch on a current PyTorch: plans that two and four processes train over gloo, beside PyTorch's own 1F1B.

    MODERN_TORCH=ROOT PACKAGE=FOLDER torch_test.py

FOLDER has the package as python/build.py puts it together; ROOT as for bench/peers/torch_schedules.py. Exits with 77 where
MODERN_TORCH is not set. Losses have to agree to 1e-12, gradients to 1e-10 of their largest number, in fp64."""

import inspect
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-12, 1e-10
WIDTH, MICRO_BATCHES, PER_MICRO_BATCH = 6, 4, 3
RANKS = (2, 4)
SECONDS = 240  # for the processes of one number of ranks, on a busy machine


def modules_of(count):
    import torch
    torch.manual_seed(7)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Tanh(), torch.nn.Linear(2 * WIDTH, WIDTH)
                                ).double() for _ in range(count)]


def train(runtime, rank, ranks, placement, profiled=None):
    """One step; (the mean loss where this rank has it, the gradients of its stages)."""
    import torch
    draw = torch.Generator().manual_seed(3)
    shape = (MICRO_BATCHES * PER_MICRO_BATCH, WIDTH)
    inputs, targets = (torch.randn(*shape, generator=draw, dtype=torch.float64) for _ in range(2))
    losses = []
    last = {"target": targets, "losses": losses} if placement[-1] == rank else {}
    runtime.step(*([inputs] if placement[0] == rank else []), **last)
    return float(torch.stack([loss.detach() for loss in losses]).mean()) if losses else None


def farthest(own, other, sums=1):
    """How far gradients are from others, which are multiplied by `sums`."""
    return max(float((a.grad - sums * b.grad).abs().max() / (sums * b.grad).abs().max())
               for a, b in zip(own.parameters(), other.parameters()))


def wait_for_all():
    """PyTorch 2.6 waits for the last message of a batch alone and lets go of the others, which gloo then never carries out:
    its own 1F1B waits forever. Here all are waited for."""
    import torch.distributed as dist
    from torch.distributed.pipelining import schedules
    if hasattr(schedules._ComputationType, "REDUCE_GRAD"):  # later versions wait for all
        return
    inner = dist.batch_isend_irecv

    class Works:
        def __init__(self, works):
            self.works = works

        def wait(self):
            for one in self.works:
                one.wait()

    dist.batch_isend_irecv = lambda operations: [Works(inner(operations))]


def work(rank, ranks, rendezvous, folder, results):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    import pipetwin
    import pipetwin.torch
    torch.set_num_threads(1)
    wait_for_all()
    # PyTorch 2.6 sums the gradients of micro-batches, and later versions take their mean.
    sums = 1 if "scale_grads" in inspect.signature(Schedule1F1B).parameters else MICRO_BATCHES
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{rendezvous}")
    loss = torch.nn.functional.mse_loss
    found = {}

    theirs = modules_of(ranks)
    stage = PipelineStage(theirs[rank], rank, ranks, torch.device("cpu"))
    their_loss = train(Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss), rank, ranks, list(range(ranks)))

    def plan_of(schedule, chunks):
        return {"model": {"kind": "mlp", "sizes": [WIDTH] * (ranks * chunks + 1)}, "training": {"batch": MICRO_BATCHES},
                "data": {"kind": "synthetic"}, "pipeline": {"stages": ranks, "chunks": chunks, "schedule": schedule,
                                                             "micro_batches": MICRO_BATCHES}}

    schedules = [("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("interleaved-1f1b", 2)]
    if ranks == 2 or sums == 1:  # over gloo PyTorch 2.6 takes a message for the shapes of another, and ends its process
        schedules.append(("zb-v", 2))
    for schedule, chunks in schedules:
        ours = modules_of(ranks * chunks)
        runtime = pipetwin.torch.schedule(plan_of(schedule, chunks), ours, loss_fn=loss)
        mine = [stage.stage_index for stage in runtime._stages]
        homes = {}
        everyone = [None] * ranks
        dist.all_gather_object(everyone, mine)
        for home, stages in enumerate(everyone):
            homes.update(dict.fromkeys(stages, home))
        our_loss = train(runtime, rank, ranks, [homes[index] for index in range(ranks * chunks)])
        whole = modules_of(ranks * chunks)
        draw = torch.Generator().manual_seed(3)
        shape = (MICRO_BATCHES * PER_MICRO_BATCH, WIDTH)
        inputs, targets = (torch.randn(*shape, generator=draw, dtype=torch.float64) for _ in range(2))
        expected = loss(torch.nn.Sequential(*whole)(inputs), targets)
        expected.backward()
        off = {"loss": 0.0 if our_loss is None else abs(our_loss / float(expected.detach()) - 1),
               "gradient": max(farthest(ours[index], whole[index], sums) for index in mine)}
        if chunks == 1:  # the same stages as in PyTorch's 1F1B
            off["gradient"] = max(off["gradient"], farthest(ours[rank], theirs[rank]))
            if our_loss is not None:
                off["loss"] = max(off["loss"], abs(our_loss / their_loss - 1))
        found[schedule] = off

    # A trace of PyTorch's profiler beside the plan.
    from torch.profiler import ProfilerActivity, profile
    modules = modules_of(ranks * 2)
    runtime = pipetwin.torch.schedule(plan_of("interleaved-1f1b", 2), modules, loss_fn=loss)
    placement = list(range(ranks)) * 2
    train(runtime, rank, ranks, placement)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        train(runtime, rank, ranks, placement)
    recorded.export_chrome_trace(f"{folder}/rank{rank}.json")
    dist.barrier()
    costs = pipetwin.torch.profile(torch.nn.Sequential(*modules_of(ranks * 2)),
                                   torch.zeros(PER_MICRO_BATCH, WIDTH, dtype=torch.float64), (PER_MICRO_BATCH,),
                                   repetitions=3, seconds=0.01)
    assert len(costs["layers"]) == ranks * 2 and all(
        layer["samples"][0]["forward_ns"] > 0 for layer in costs["layers"]), costs
    scenario = pipetwin.Scenario(
        {**plan_of("interleaved-1f1b", 2), "model": {"kind": "profile", "file": "costs.profile.json"},
         "training": {"batch": MICRO_BATCHES * PER_MICRO_BATCH}}, {"costs.profile.json": costs})

    # The steps of a training as a run folder.
    runtime = pipetwin.torch.schedule(scenario, modules_of(ranks * 2), loss_fn=loss)
    with pipetwin.torch.record(scenario, f"{folder}/run", runtime) as recorder:
        for _ in range(3):
            with recorder.step():
                mean = train(runtime, rank, ranks, placement)
            recorder.log(loss=mean)
    if rank == 0:
        metrics = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
        assert len(metrics) == 3 and all(line["loss"] > 0 for line in metrics), metrics
        recorded = pipetwin.compare(f"{folder}/run")
        assert 0 < recorded["step_ms"]["measured"] < 2 * max(line["step_ms"] for line in metrics), recorded.text
        compared = pipetwin.torch.compare(scenario, *[f"{folder}/rank{number}.json" for number in range(ranks)])
        assert compared["step_ms"]["measured"] > 0, compared.text
        found["compared"] = compared["step_ms"]

        # Bad input.
        for call, kind in ((lambda: pipetwin.torch.schedule(plan_of("1f1b", 1), modules_of(3)), pipetwin.UsageError),
                           (lambda: pipetwin.torch.schedule(plan_of("1f1b", 1), [1, 2]), TypeError),
                           (lambda: pipetwin.torch.compare(scenario), pipetwin.UsageError)):
            try:
                call()
            except kind:
                continue
            raise AssertionError(f"expected {kind.__name__}")
    dist.barrier()
    results.put(found)
    dist.destroy_process_group()


def inside(folder, ranks):
    import logging
    import multiprocessing
    logging.disable(logging.WARNING)
    import torch.distributed.pipelining  # noqa: F401 - once, before the processes fork
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    workers = [fork.Process(target=work, args=(rank, ranks, f"{folder}/rendezvous", folder, results))
               for rank in range(ranks)]
    for worker in workers:
        worker.start()
    found, ends = [], time.monotonic() + SECONDS
    while len(found) < ranks:
        try:
            found.append(results.get(timeout=1))
        except queue.Empty:
            if any(worker.exitcode for worker in workers) or time.monotonic() > ends:
                for worker in workers:
                    worker.terminate()
                raise SystemExit("a rank failed") from None
    print(json.dumps(found))
    for worker in workers:
        worker.join()


def main():
    if "MODERN_TORCH" not in os.environ:
        print("skipped: MODERN_TORCH is not set")
        return 77
    sys.path.insert(0, str(ROOT / "bench" / "peers"))
    from torch_schedules import python_of
    command, environment = python_of(pathlib.Path(os.environ["MODERN_TORCH"]).resolve())
    for ranks in RANKS:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*map(str, command), str(pathlib.Path(__file__).resolve()), "--inside", folder, str(ranks)],
                                  env={**environment, "PYTHONPATH": os.environ["PACKAGE"], "USE_LIBUV": "0"},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=SECONDS)
        lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
        if done.returncode != 0 or not lines:
            raise SystemExit(f"{ranks} ranks: no result, {done.returncode}:\n{done.stdout}{done.stderr[-4000:]}")
        worst = {"loss": 0.0, "gradient": 0.0}
        trained = len(json.loads(lines[0])[0].keys() - {"compared"})
        for of_rank in json.loads(lines[0]):
            for schedule, off in of_rank.items():
                if schedule != "compared":
                    worst = {key: max(worst[key], off[key]) for key in worst}
                    if off["loss"] > LOSS_TOLERANCE or off["gradient"] > GRADIENT_TOLERANCE:
                        raise SystemExit(f"{ranks} ranks, {schedule}: {off}")
        print(f"{ranks} ranks: {trained} schedules trained as PyTorch's: a loss off by {worst['loss']:.1e}, a gradient by "
              f"{worst['gradient']:.1e}", flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
