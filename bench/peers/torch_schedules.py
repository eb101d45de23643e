#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Schedules that 'pipetwin export torch-csv' writes, trained by PyTorch's own pipeline runtime.

    MODERN_TORCH=FOLDER bench/peers/torch_schedules.py build/release/bin/pipetwin [--share S] [--seed N] [--keep FOLDER]

FOLDER is the root of an unpacked Linux system that has a current PyTorch (2.14: usr/bin/python3), or a virtual
environment; no privilege is needed. Exits with 77 where the variable is not set.

Exports every schedule on 2 and 4 ranks, with 2 to 9 micro-batches, as PyTorch loads it with format "compute_comms" and
with "compute_only". Then K processes, connected by gloo, load each file, and train one step of a model of two matrices
per stage in fp64. The mean loss must differ from that of the same model in one piece by at most 1e-12, every gradient
by at most 1e-10 of its tensor's largest number. What the program refuses must be on the list of what PyTorch cannot load,
or of shapes that the schedule does not have. Further, PyTorch's own files, with its own order of messages, must be
imported, exported and trained as they are; and the rows of schedules that PyTorch generates, too, must be PyTorch's.

--share takes that part of the cases, drawn with the seed (scripts/test takes 0.01, scripts/daily all).
"""
import argparse
import csv
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

RANKS = (2, 4)
MICRO_BATCHES = range(2, 10)
LOSS_TOLERANCE = 1e-12
GRADIENT_TOLERANCE = 1e-10
# Stages per rank that are tried.
CHUNKS = {
    "naive": (1,), "gpipe": (1,), "1f1b": (1,), "interleaved-1f1b": (2, 3), "looped-bfs": (2, 3), "zb-h1": (1,),
    "zb-h2": (1,), "zb-auto": (1,), "zb-v": (2,), "interleaved-zb": (2, 3), "dualpipe-v": (2,), "chimera": (1,),
    "hanayo": (2,), "forward-only": (1,), "pipedream": (1,), "pipedream-2bw": (1,),
}
UNLOADABLE = {"chimera": "share weights", "forward-only": "no backward"}
SCENARIO = """[model]
kind = "mlp"
sizes = [{sizes}]
[training]
batch = {micro_batches}
[data]
kind = "synthetic"
[pipeline]
stages = {ranks}
chunks = {chunks}
schedule = "{schedule}"
micro_batches = {micro_batches}
"""


def has_shape(schedule, ranks, chunks, micro_batches):
    """Whether the schedule has rows for so many ranks and micro-batches."""
    rounds = max(1, micro_batches // ranks)
    return {"naive": micro_batches == 1, "hanayo": micro_batches == ranks, "chimera": micro_batches == ranks,
            "dualpipe-v": micro_batches >= 2 * ranks,
            "interleaved-zb": micro_batches % rounds == 0}.get(schedule, True)


# --- In PyTorch. ---

def rows_of_torch(torch_class, ranks, chunks, micro_batches):
    """The compute rows that a class of PyTorch's makes, without processes; None where it refuses."""
    from torch.distributed.pipelining import schedules

    class Stages(list):
        pass

    class Stage:
        group_size, num_stages, group_rank, is_last, is_first = ranks, ranks * chunks, 0, False, False
        submod = None

    rows = {}
    kind = getattr(schedules, torch_class)
    before = kind._prepare_schedule_with_comms
    kind._prepare_schedule_with_comms = lambda self, order: rows.update(order)
    try:
        kind([Stage() for _ in range(chunks)], micro_batches)
    except ValueError:
        return None
    finally:
        kind._prepare_schedule_with_comms = before
    return [[str(action) for action in rows[rank] if action is not None] for rank in range(ranks)]


def read_rows(file):
    with open(file, newline="") as rows:
        return [row for row in csv.reader(rows)]


def stage_ranks(rows):
    """[stage]: its rank."""
    import re
    found = {}
    for rank, row in enumerate(rows):
        for cell in row:
            for stage in re.findall(r"(\d+)[FB](?=\d)", cell):
                found[int(stage)] = rank
    return [found[stage] for stage in range(len(found))]


def stages_of_model(count, width):
    import torch
    torch.manual_seed(7)
    return [torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.Tanh(), torch.nn.Linear(2 * width, width)
                                ).double() for _ in range(count)]


def train(rank, job):
    """One step of a job on one rank; the largest differences from the model in one piece."""
    import torch
    from torch.distributed.pipelining import PipelineStage, schedules
    width, per_micro_batch = 6, 3
    placement = stage_ranks(read_rows(job["file"]))
    modules = stages_of_model(len(placement), width)
    mine = [stage for stage, home in enumerate(placement) if home == rank]
    loss = torch.nn.MSELoss()
    runtime = schedules._PipelineScheduleRuntime(
        [PipelineStage(modules[stage], stage, len(placement), torch.device("cpu")) for stage in mine],
        job["micro_batches"], loss_fn=loss)
    runtime._load_csv(job["file"], format=job["format"])
    draw = torch.Generator().manual_seed(3)
    shape = (job["micro_batches"] * per_micro_batch, width)
    inputs, targets = (torch.randn(*shape, generator=draw, dtype=torch.float64) for _ in range(2))
    losses = []
    last = {"target": targets, "losses": losses} if placement[-1] == rank else {}
    runtime.step(*([inputs] if placement[0] == rank else []), **last)

    whole = stages_of_model(len(placement), width)
    expected = loss(torch.nn.Sequential(*whole)(inputs), targets)
    expected.backward()
    result = {"loss": 0.0, "gradient": 0.0}
    if last:
        result["loss"] = abs(float(torch.stack([one.detach() for one in losses]).mean() / expected.detach()) - 1)
    for stage in mine:
        for own, other in zip(modules[stage].parameters(), whole[stage].parameters()):
            off = float("inf") if own.grad is None else float(((own.grad - other.grad).abs().max()
                                                               / other.grad.abs().max()))
            result["gradient"] = max(result["gradient"], off)
    return result


def work(rank, ranks, jobs, rendezvous, results):
    import datetime
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{rendezvous}",
                            timeout=datetime.timedelta(seconds=60))
    for number, job in enumerate(jobs):
        try:
            result = train(rank, job)
        except Exception as error:  # the others hang in this job: nothing after it can be told
            results.put((number, {"error": f"{type(error).__name__}: {error}"[:400]}))
            return
        results.put((number, result))
    dist.barrier()


def inside(task_file):
    """Runs the task of `run_inside`, and prints what it finds as JSON, a line each."""
    import logging
    logging.disable(logging.WARNING)
    import multiprocessing
    task = json.loads(pathlib.Path(task_file).read_text())
    for asked in task.get("generated", []):
        print(json.dumps({"rows": rows_of_torch(*asked)}))
    if "dump" in task:
        dump(task["dump"])
    jobs = task.get("jobs", [])
    if not jobs:
        return
    import torch.distributed.pipelining  # noqa: F401 - once, before the processes fork
    ranks = task["ranks"]
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    rendezvous = task_file + ".rendezvous"
    workers = [fork.Process(target=work, args=(rank, ranks, jobs, rendezvous, results)) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    found = [[] for _ in jobs]
    try:
        for _ in range(ranks * len(jobs)):
            number, result = results.get(timeout=90)
            found[number].append(result)
            if "error" in result:
                break
            if len(found[number]) == ranks:
                print(json.dumps({"job": number, "loss": max(one["loss"] for one in found[number]),
                                  "gradient": max(one["gradient"] for one in found[number])}), flush=True)
    except Exception:
        pass  # a job that hangs has no result
    for number, of_job in enumerate(found):
        if len(of_job) < ranks:
            why = next((one["error"] for one in of_job if "error" in one), "no end after 90 s")
            print(json.dumps({"job": number, "error": why}))
            break
    for worker in workers:
        worker.join(5)
        if worker.is_alive():
            worker.terminate()


def dump(asked):
    """Writes files of PyTorch's own rows with PyTorch's own messages."""
    from torch.distributed.pipelining import schedules
    for torch_class, ranks, chunks, micro_batches, file in asked:
        rows = rows_of_torch(torch_class, ranks, chunks, micro_batches)
        actions = {rank: [schedules._Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)}
        placement = stage_ranks(rows)
        lowered = {rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(row), micro_batches)
                   for rank, row in actions.items()}
        lowered = schedules._add_send_recv(lowered, lambda stage: placement[stage], len(placement))
        with open(file, "w", newline="") as written:
            csv.writer(written).writerows(lowered[rank] for rank in range(ranks))


# --- Outside. ---

def python_of(folder):
    """The command and environment that start the Python of MODERN_TORCH."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "UCX_LOG_LEVEL": "fatal",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    if (folder / "pyvenv.cfg").exists():
        return [folder / "bin" / "python3"], environment
    loader = next(folder.glob("lib64/ld-linux-*.so.2"), None)
    if loader is None or not (folder / "usr/bin/python3").exists():
        raise SystemExit(f"MODERN_TORCH={folder}: expected a virtual environment, or the root of a Linux system")
    libraries = [folder / "usr/lib/x86_64-linux-gnu/openblas-pthread", folder / "usr/lib/x86_64-linux-gnu",
                 folder / "usr/lib"]
    environment["PYTHONHOME"] = str(folder / "usr")
    return [loader, "--library-path", ":".join(map(str, libraries)), folder / "usr/bin/python3"], environment


def run_inside(torch_folder, folder, task):
    """The lines that `inside` prints of a task."""
    file = folder / f"task-{len(list(folder.glob('task-*.json')))}.json"
    file.write_text(json.dumps(task))
    command, environment = python_of(torch_folder)
    done = subprocess.run([*map(str, command), str(pathlib.Path(__file__).resolve()), "--inside", str(file)],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[-1]} ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Check:
    """Counts what was right, and prints what was not."""

    def __init__(self):
        self.wrong = 0

    def fail(self, text):
        self.wrong += 1
        print("WRONG:", text, flush=True)


def convert(program, direction, source, file, options=()):
    """The result of 'pipetwin export torch-csv', or import."""
    return subprocess.run([program, direction, "torch-csv", source, "--out", file, "--force", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def exported_jobs(program, folder, cases, check):
    """Files of the cases that the program exports."""
    jobs, refused = [], 0
    for schedule, ranks, chunks, micro_batches, form in cases:
        name = f"{schedule}-k{ranks}-v{chunks}-m{micro_batches}"
        scenario = folder / f"{name}.toml"
        scenario.write_text(SCENARIO.format(sizes=", ".join(["4"] * (ranks * chunks + 1)), schedule=schedule,
                                            ranks=ranks, chunks=chunks, micro_batches=micro_batches))
        file = folder / f"{name}-{form}.csv"
        done = convert(program, "export", scenario, file, ["--compute-only"] if form == "compute_only" else [])
        expected = (UNLOADABLE.get(schedule) or "") if has_shape(schedule, ranks, chunks, micro_batches) else schedule
        if done.returncode != 0:
            refused += 1
            if not expected or expected not in done.stderr:
                check.fail(f"{name}, {form}: refused, {done.stderr}")
        elif expected:
            check.fail(f"{name}, {form}: expected a refusal that says '{expected}'")
        else:
            jobs.append({"name": f"{name}, {form}", "file": str(file), "format": form, "ranks": ranks,
                         "micro_batches": micro_batches})
    return jobs, refused


def foreign_jobs(program, torch_folder, folder, cases, check):
    """PyTorch's own files, through import and export."""
    files = [(*case, str(folder / ("torch-" + "-".join(map(str, case)) + ".csv"))) for case in cases]
    if not files:
        return []
    run_inside(torch_folder, folder, {"dump": files})
    jobs = []
    for torch_class, ranks, chunks, micro_batches, file in files:
        imported, exported = file + ".ours.csv", file + ".again.csv"
        done = convert(program, "import", file, imported)
        if done.returncode != 0 or convert(program, "export", imported, exported).returncode != 0:
            check.fail(f"{file}: refused, {done.stderr}")
        elif read_rows(exported) != read_rows(file):
            check.fail(f"{file}: comes back as other rows, {exported}")
        else:
            jobs.append({"name": f"PyTorch's {torch_class}, {ranks} ranks, {micro_batches} micro-batches",
                         "file": exported, "format": "compute_comms", "ranks": ranks, "micro_batches": micro_batches})
    return jobs


def train_all(torch_folder, folder, jobs, check):
    worst = {"loss": 0.0, "gradient": 0.0}
    trained = 0
    for ranks in RANKS:
        left = [job for job in jobs if job["ranks"] == ranks]
        while left:
            results = run_inside(torch_folder, folder, {"ranks": ranks, "jobs": left})
            for result in results:
                job = left[result["job"]]
                if "error" in result:
                    check.fail(f"{job['name']}: {result['error']}")
                    continue
                trained += 1
                worst = {key: max(worst[key], result[key]) for key in worst}
                if result["loss"] > LOSS_TOLERANCE or result["gradient"] > GRADIENT_TOLERANCE:
                    check.fail(f"{job['name']}: loss off by {result['loss']:.1e}, "
                               f"a gradient by {result['gradient']:.1e}")
            if not results:
                check.fail(f"{left[0]['name']}: PyTorch ended without a word")
            left = left[max((result["job"] for result in results), default=0) + 1:]  # behind one that failed
    return trained, worst


GENERATED = {"interleaved-1f1b": "ScheduleInterleaved1F1B", "interleaved-zb": "ScheduleInterleavedZeroBubble",
             "looped-bfs": "ScheduleLoopedBFS", "zb-v": "ScheduleZBVZeroBubble", "dualpipe-v": "ScheduleDualPipeV"}


def compare_generated(program, torch_folder, folder, cases, check):
    """Compares the rows of the program's generators with PyTorch's."""
    if not cases:
        return 0
    theirs = run_inside(torch_folder, folder,
                        {"generated": [(GENERATED[case[0]], *case[1:]) for case in cases]})
    equal = 0
    for case, found in zip(cases, theirs):
        schedule, ranks, chunks, micro_batches = case
        if found["rows"] is None:
            continue
        scenario, file = folder / "generated.toml", folder / "generated.csv"
        scenario.write_text(SCENARIO.format(sizes=", ".join(["4"] * (ranks * chunks + 1)), schedule=schedule,
                                            ranks=ranks, chunks=chunks, micro_batches=micro_batches))
        done = convert(program, "export", scenario, file, ["--compute-only"])
        if done.returncode != 0 or read_rows(file) != found["rows"]:
            check.fail(f"{schedule}, {ranks} ranks of {chunks} chunks, {micro_batches} micro-batches: other rows than "
                       f"PyTorch's {done.stderr}")
        else:
            equal += 1
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path)
    asked = parser.parse_args()
    if not os.environ.get("MODERN_TORCH"):
        print("skipped: MODERN_TORCH names no folder with a current PyTorch")
        sys.exit(77)
    torch_folder = pathlib.Path(os.environ["MODERN_TORCH"]).resolve()
    draw = random.Random(asked.seed)

    def drawn(cases):
        cases = list(cases)
        return sorted(draw.sample(cases, max(1, round(asked.share * len(cases)))), key=str)

    grid = drawn((schedule, ranks, chunks, micro_batches, form)
                 for schedule, counts in CHUNKS.items()
                 for ranks, chunks, micro_batches, form in itertools.product(
                     RANKS, counts, (*((1,) if schedule == "naive" else ()), *MICRO_BATCHES),
                     ("compute_comms", "compute_only")))
    generated = drawn((schedule, ranks, chunks, micro_batches)
                      for schedule in GENERATED
                      for ranks, chunks, micro_batches in itertools.product(range(2, 9), CHUNKS[schedule], range(1, 21))
                      if schedule != "looped-bfs" or chunks > 1)
    foreign = drawn((GENERATED[schedule], ranks, CHUNKS[schedule][0], micro_batches)
                    for schedule, ranks, micro_batches in itertools.product(GENERATED, RANKS, MICRO_BATCHES)
                    if has_shape(schedule, ranks, 2, micro_batches)
                    and (schedule != "interleaved-1f1b" or micro_batches % max(1, micro_batches // ranks) == 0))
    check = Check()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        program = asked.program.resolve()
        equal = compare_generated(program, torch_folder, folder, generated, check)
        print(f"{equal} orders as PyTorch generates them", flush=True)
        jobs, refused = exported_jobs(program, folder, grid, check)
        own = foreign_jobs(program, torch_folder, folder, foreign, check)
        print(f"{len(jobs)} files exported, {refused} refused; {len(own)} files by PyTorch imported", flush=True)
        trained, worst = train_all(torch_folder, folder, jobs + own, check)
    print(f"{trained} of {len(jobs) + len(own)} files trained in PyTorch: largest error of a loss {worst['loss']:.1e}, "
          f"of a gradient {worst['gradient']:.1e}; {check.wrong} wrong (seed {asked.seed}, share {asked.share:g})")
    sys.exit(1 if check.wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2])
    else:
        main()
