# SPDX-License-Identifier: Apache-2.0
"""What the language models beside ours have in common: arguments, and steps that the benchmark asks for.

`run` prints the number of parameters and PyTorch's version. For every line on standard input it does one training step and
prints the wall seconds, the processor seconds of all its threads and the loss.

PyTorch runs in the form that is fastest on a CPU, where the version has it: scaled_dot_product_attention in fp32, the plain
formula in bf16, and the fused AdamW. Debian's PyTorch 1.13 (scripts/install-packages bench) has neither of them, and needs
libopenblas0-pthread: with the reference BLAS it is 28 times slower.
"""
import argparse
import ctypes
import os
import sys
import time


def parser():
    made = argparse.ArgumentParser()
    made.add_argument("--layers", type=int, default=4)
    made.add_argument("--d-model", type=int, default=512)
    made.add_argument("--heads", type=int, default=8)
    made.add_argument("--context", type=int, default=256)
    made.add_argument("--vocab", type=int, default=8192)
    made.add_argument("--batch", type=int, default=8)
    made.add_argument("--micro-batches", type=int, default=1)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--bf16", action="store_true")
    made.add_argument("--attention", choices=["sdpa", "plain"], help="otherwise what is fastest")
    made.add_argument("--adamw", choices=["fused", "plain"], help="otherwise what is fastest")
    return made


def start(args):
    """Imports PyTorch, set up for these arguments; adds `args.sdpa` and `args.fused`."""
    # Without this, a fifth of PyTorch's step is page faults: large buffers go back to the kernel after every use.
    trim_threshold, mmap_threshold = -1, -3
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, 2**31 - 1)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(args.threads))
    import torch

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    current = int(torch.__version__.split(".")[0]) >= 2
    args.sdpa = args.attention == "sdpa" or (args.attention is None and current and not args.bf16)
    args.fused = args.adamw == "fused" or (args.adamw is None and current)
    return torch


def run(torch, args, model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, **({"fused": True} if args.fused else {}))
    tokens = torch.randint(0, args.vocab, (args.batch, args.context + 1))
    print(sum(p.numel() for p in model.parameters()), torch.__version__, flush=True)
    for _ in sys.stdin:
        begin, cpu_begin = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=False)
        total = 0.0
        for part in tokens.chunk(args.micro_batches):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
                logits = model(part[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.reshape(-1, args.vocab).float(), part[:, 1:].reshape(-1))
            (loss * (len(part) / len(tokens))).backward()
            total += loss.item() * len(part) / len(tokens)
        optimizer.step()
        print(time.perf_counter() - begin, time.process_time() - cpu_begin, total, flush=True)
