#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that several devices or replicas divide, beside PyTorch's own: tensor parallelism, and FSDP2 in a pipeline.

    MODERN_TORCH=FOLDER bench/peers/torch_divided.py build/release/bench/first_steps [--only WORD] [--speed]

FOLDER is the root of an unpacked Linux system that has a current PyTorch (2.14: usr/bin/python3), or a virtual
environment; no privilege is needed. Exits with 77 where the variable is not set.

The program trains a small GPT for three steps in fp64, divided as the case says, and leaves its first weights, what every
step has read, and its losses. Processes of PyTorch, connected by gloo, then do the same from the same weights: two that
divide each block's products (DTensor: ColwiseParallel and RowwiseParallel), or two stages (ScheduleGPipe) of two replicas
each, whose blocks fully_shard divides. Every loss must be the same within 1e-10 of it.

--speed: a larger model in fp32, and the median time of a step of each, of PyTorch and of `pipetwin train` in turn, each
worker with one thread. Losses must be the same within 1e-4. Ends with 1 where PyTorch is faster.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from torch_schedules import python_of

IS_SPEED = "--speed" in sys.argv
TOLERANCE = 1e-4 if IS_SPEED else 1e-10
PRECISION = "fp32" if IS_SPEED else "fp64"
SIZES = ({"layers": 4, "d_model": 256, "heads": 8, "context": 128, "vocabulary": 512} if IS_SPEED else
         {"layers": 2, "d_model": 24, "heads": 4, "context": 13, "vocabulary": 38})
BATCH, MICRO_BATCHES, STEPS, RATE = (16, 4, 24, 1e-3) if IS_SPEED else (8, 2, 3, 1e-2)
WARM_UP = 4  # steps that no time is taken of
ROUNDS = 3
CASES = {
    "tensor parallel 2": {"stages": 1, "tensor_parallel": 2},
    "2 stages of 2 replicas, weights divided": {"stages": 2, "data_parallel": 2, "shard": "weights"},
}
SCENARIO = """[model]
kind = "gpt"
{model}
[data]
kind = "synthetic"
[training]
batch = {batch}
steps = {steps}
precision = "{precision}"
optimizer = "adamw"
learning_rate = {rate}
weight_decay = 0.1
[pipeline]
schedule = "gpipe"
micro_batches = {micro_batches}
{pipeline}
"""


# --- In PyTorch. ---

def read_safetensors(path):
    import torch
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        numbers = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=dtype())
        tensors[name] = numbers.view(about["shape"])
    return tensors


def dtype():
    import torch
    return torch.float32 if IS_SPEED else torch.float64


def model_parts(weights):
    """Embedding, blocks and head of Radford et al. 2019, with the weights that the program began with."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    width, heads = SIZES["d_model"], SIZES["heads"]

    def norm(name):
        layer = nn.LayerNorm(width, dtype=dtype())
        layer.weight.data = weights[name + ".gain"].flatten().clone()
        layer.bias.data = weights[name + ".bias"].flatten().clone()
        return layer

    def linear(name, columns=slice(None)):
        matrix = weights[name + ".weight"][:, columns].t().contiguous()
        bias = weights.get(name + ".bias")
        layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=bias is not None, dtype=dtype())
        layer.weight.data = matrix.clone()
        if bias is not None:
            layer.bias.data = bias.flatten()[columns].clone()
        return layer

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Parameter(weights["embedding.tokens"].clone())
            self.places = nn.Parameter(weights["embedding.places"].clone())

        def forward(self, ids):
            return self.tokens[ids] + self.places

    class Block(nn.Module):
        def __init__(self, number):
            super().__init__()
            attention, forward = f"block{number}.attention", f"block{number}.feed_forward"
            self.norm1, self.norm2 = norm(attention + ".norm"), norm(forward + ".norm")
            # Columns of Q, K and V by themselves: each is divided by heads.
            self.q, self.k, self.v = (linear(attention + ".attention.qkv", slice(part * width, (part + 1) * width))
                                      for part in range(3))
            self.out = linear(attention + ".attention.out")
            self.up, self.down = linear(forward + ".up"), linear(forward + ".down")

        def forward(self, x):
            h = self.norm1(x)
            parts = [product(h) for product in (self.q, self.k, self.v)]
            samples, positions = h.shape[:2]
            q, k, v = (part.view(samples, positions, -1, width // heads).transpose(1, 2) for part in parts)
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(context.transpose(1, 2).reshape(samples, positions, -1))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.projection = norm("head.norm"), linear("head.projection")

        def forward(self, x):
            return self.projection(self.norm(x))

    return Embedding(), [Block(number) for number in range(SIZES["layers"])], Head()


def loss_of(logits, targets):
    from torch.nn import functional as F
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def numbers_of_step(folder, step, kind):
    import torch
    return torch.frombuffer(bytearray((folder / f"step-{step}.{kind}").read_bytes()), dtype=torch.int32).long().view(BATCH, -1)


def steps_of(folder, parameters, run):
    """Losses and seconds of all steps; `run(tokens, targets)` computes one, and leaves gradients."""
    import torch
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.1)
    losses, seconds = [], []
    for step in range(1, STEPS + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        losses.append(run(numbers_of_step(folder, step, "tokens"), numbers_of_step(folder, step, "targets")))
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def train_tensor_parallel(folder, rank):
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2,))
    embedding, blocks, head = model_parts(read_safetensors(folder / "before.safetensors"))
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    for block in blocks:
        parallelize_module(block, mesh, {**columns, "out": RowwiseParallel(), "down": RowwiseParallel()})
    model = nn.Sequential(embedding, *blocks, head)

    def run(tokens, targets):
        total = 0.0
        for part, wanted in zip(tokens.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES)):
            loss = loss_of(model(part), wanted) / MICRO_BATCHES
            loss.backward()
            total += loss.item()
        return total

    return steps_of(folder, model.parameters(), run)


def train_sharded_pipeline(folder, rank):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "stages"))
    stage, replica = mesh["stages"].get_local_rank(), mesh["replicas"].get_local_rank()
    embedding, blocks, head = model_parts(read_safetensors(folder / "before.safetensors"))
    half = len(blocks) // 2
    layers = [embedding, *blocks[:half]] if stage == 0 else [*blocks[half:], head]
    for layer in layers:
        fully_shard(layer, mesh=mesh["replicas"])
    module = nn.Sequential(*layers)
    fully_shard(module, mesh=mesh["replicas"])
    own = PipelineStage(module, stage, 2, torch.device("cpu"), group=mesh["stages"].get_group())
    schedule = ScheduleGPipe(own, MICRO_BATCHES, loss_fn=loss_of)

    def run(tokens, targets):
        losses = []
        if stage == 0:
            schedule.step(tokens.chunk(2)[replica])
        else:
            schedule.step(target=targets.chunk(2)[replica], losses=losses)
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros((), dtype=dtype())
        dist.all_reduce(mean)  # the last stages' means, of which there are two
        return mean.item() / 2

    return steps_of(folder, module.parameters(), run)


def train(folder, case, rank, ranks):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    torch.manual_seed(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    losses, seconds = (train_tensor_parallel if "tensor_parallel" in CASES[case] else train_sharded_pipeline)(folder, rank)
    if rank == 0:
        (folder / "losses.json").write_text(json.dumps({"torch": torch.__version__, "losses": losses, "seconds": seconds}))
    dist.barrier()
    dist.destroy_process_group()


# --- Beside it. ---

def losses_of_torch(root, folder, case, ranks):
    command, environment = python_of(root)
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    (folder / "store").unlink(missing_ok=True)
    script = [*map(str, command), str(pathlib.Path(__file__).resolve()), "--in-torch", str(folder), "--case", case,
              *(["--speed"] if IS_SPEED else [])]
    logs = [folder / f"torch-{rank}.log" for rank in range(ranks)]
    processes = [subprocess.Popen([*script, "--rank", str(rank), "--ranks", str(ranks)], env=environment, stderr=log.open("w"))
                 for rank, log in enumerate(logs)]
    failed = [log.read_text() for process, log in zip(processes, logs) if process.wait(timeout=300)]
    if failed:
        raise SystemExit(f"{failed[0]}\n{case}: PyTorch's processes failed")
    return json.loads((folder / "losses.json").read_text())


def seconds_of_train(program, scenario):
    """Seconds of the steps of `pipetwin train`, behind the warm-up."""
    train = pathlib.Path(program).resolve().parent.parent / "bin/pipetwin"
    run = subprocess.run([train, "train", scenario, "--out", scenario.parent / "run", "--force"], check=True, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = [float(ms) / 1e3 for ms in re.findall(r"^step .* ([0-9.]+) ms ", run.stdout, re.MULTILINE)]
    if len(found) != STEPS:
        raise SystemExit(f"pipetwin train printed {len(found)} steps of {STEPS}:\n{run.stdout}")
    return found[WARM_UP:]


def is_as_fast(program, root, folder, scenario, case, ranks):
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(statistics.median(seconds_of_train(program, scenario)))
        theirs.append(statistics.median(losses_of_torch(root, folder, case, ranks)["seconds"][WARM_UP:]))
    own, other = statistics.median(ours), statistics.median(theirs)
    print(f"{case}: a step takes {1e3 * own:.1f} ms, PyTorch's {1e3 * other:.1f} ms: {other / own:.2f} times as fast "
          f"({', '.join(f'{b / a:.2f}' for a, b in zip(ours, theirs))})", flush=True)
    return own <= other


def compare(program, root, case):
    pipeline = "\n".join(f"{key} = {json.dumps(value)}" for key, value in CASES[case].items())
    model = "\n".join(f"{key} = {value}" for key, value in SIZES.items())
    ranks = CASES[case]["stages"] * CASES[case].get("tensor_parallel", 1) * CASES[case].get("data_parallel", 1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scenario = folder / "scenario.toml"
        scenario.write_text(SCENARIO.format(model=model, pipeline=pipeline, batch=BATCH, steps=STEPS, rate=RATE,
                                            precision=PRECISION, micro_batches=MICRO_BATCHES))
        subprocess.run([program, folder, scenario, "--losses-only"], check=True)
        ours = json.loads((folder / "steps.json").read_text())["losses"]
        theirs = losses_of_torch(root, folder, case, ranks)
        is_fast = not IS_SPEED or is_as_fast(program, root, folder, scenario, case, ranks)
    largest = max(abs(own - other) / abs(other) for own, other in zip(ours, theirs["losses"]))
    is_good = len(theirs["losses"]) == STEPS and largest <= TOLERANCE
    print(f"PyTorch {theirs['torch']}, {case}: losses of {STEPS} steps at most {largest:.1e} apart{'' if is_good else '  FAILED'}",
          flush=True)
    return is_good and is_fast


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="first_steps")
    parser.add_argument("--only", default="", help="cases with this word in their name alone")
    parser.add_argument("--speed", action="store_true", help="times of a larger model")
    parser.add_argument("--in-torch", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_torch:
        return train(args.in_torch, args.case, args.rank, args.ranks)
    root = os.environ.get("MODERN_TORCH")
    if not root or not args.program:
        print("skipped: MODERN_TORCH names no system with a current PyTorch")
        sys.exit(77)
    results = [compare(args.program, pathlib.Path(root).resolve(), case) for case in CASES if args.only in case]
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
