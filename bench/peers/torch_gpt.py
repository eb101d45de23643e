#!/usr/bin/env python3
"""A GPT in plain PyTorch on the CPU, step by step beside ours: bench/cpu_training.cpp starts it.

First it prints the number of its parameters and its version. For every line on standard input it does one training step and
prints the wall seconds, the processor seconds of all its threads and the loss.

It runs in the form that is fastest on a CPU, where the version has it: scaled_dot_product_attention in fp32, the plain formula in
bf16, and the fused AdamW. Debian's PyTorch 1.13 (scripts/install-packages bench) has neither of them, and needs
libopenblas0-pthread: with the reference BLAS it is 28 times slower.
"""
import argparse
import ctypes
import math
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--d-model", type=int, default=512)
parser.add_argument("--heads", type=int, default=8)
parser.add_argument("--context", type=int, default=256)
parser.add_argument("--vocab", type=int, default=8192)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--micro-batches", type=int, default=1)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--attention", choices=["sdpa", "plain"], help="otherwise what is fastest")
parser.add_argument("--adamw", choices=["fused", "plain"], help="otherwise what is fastest")
args = parser.parse_args()

# Without this, a fifth of PyTorch's step is page faults: large buffers go back to the kernel after every use.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
libc = ctypes.CDLL("libc.so.6")
libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
os.environ.setdefault("OPENBLAS_NUM_THREADS", str(args.threads))

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(args.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)

has_sdpa = hasattr(F, "scaled_dot_product_attention")
sdpa = args.attention == "sdpa" or (args.attention is None and has_sdpa and not args.bf16)
fused = args.adamw == "fused" or (args.adamw is None and int(torch.__version__.split(".")[0]) >= 2)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        mask = torch.triu(torch.ones(args.context, args.context, dtype=torch.bool), 1)
        self.register_buffer("mask", mask)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if sdpa:
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.heads)
            context = F.softmax(scores.masked_fill(self.mask[:t, :t], float("-inf")), dim=-1) @ v
        x = x + self.out(context.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(args.vocab, args.d_model)
        self.position = nn.Embedding(args.context, args.d_model)
        self.blocks = nn.Sequential(*[Block(args.d_model, args.heads) for _ in range(args.layers)])
        self.norm = nn.LayerNorm(args.d_model)
        self.head = nn.Linear(args.d_model, args.vocab, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, **({"fused": True} if fused else {}))
tokens = torch.randint(0, args.vocab, (args.batch, args.context + 1))
print(sum(p.numel() for p in model.parameters()), torch.__version__, flush=True)
for _ in sys.stdin:
    begin, cpu_begin = time.perf_counter(), time.process_time()
    optimizer.zero_grad(set_to_none=False)
    total = 0.0
    for part in tokens.chunk(args.micro_batches):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            logits = model(part[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, args.vocab).float(), part[:, 1:].reshape(-1))
        (loss * (len(part) / len(tokens))).backward()
        total += loss.item() * len(part) / len(tokens)
    optimizer.step()
    print(time.perf_counter() - begin, time.process_time() - cpu_begin, total, flush=True)
