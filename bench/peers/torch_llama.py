#!/usr/bin/env python3
"""A Llama in plain PyTorch on the CPU, step by step beside ours: bench/cpu_training.cpp starts it with --llama.

It answers as torch_gpt.py does: first the number of its parameters and its version, then for every line on standard input the
wall seconds, the processor seconds of all its threads and the loss of one training step.

RMSNorm, rotary positions from a table, grouped queries, SwiGLU with one product for gates and values; in the form that is
fastest on a CPU, where the version has it: scaled_dot_product_attention in fp32, the plain formula in bf16, the fused AdamW.
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
parser.add_argument("--key-value-heads", type=int, default=4)
parser.add_argument("--feed-forward", type=int, default=1408)
parser.add_argument("--context", type=int, default=256)
parser.add_argument("--vocab", type=int, default=8192)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--micro-batches", type=int, default=1)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--attention", choices=["sdpa", "plain"], help="otherwise what is fastest")
parser.add_argument("--adamw", choices=["fused", "plain"], help="otherwise what is fastest")
parser.add_argument("--norm", choices=["function", "formula"], help="otherwise what is fastest")
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
norm_function = args.norm == "function" or (args.norm is None and hasattr(F, "rms_norm"))
size = args.d_model // args.heads
group = args.heads // args.key_value_heads


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        if norm_function:
            return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(d), RmsNorm(d)
        self.qkv = nn.Linear(d, (args.heads + 2 * args.key_value_heads) * size, bias=False)
        self.out = nn.Linear(args.heads * size, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * args.feed_forward, bias=False)
        self.down = nn.Linear(args.feed_forward, d, bias=False)
        mask = torch.triu(torch.ones(args.context, args.context, dtype=torch.bool), 1)
        self.register_buffer("mask", mask)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        heads = self.qkv(self.norm1(x)).view(b, t, args.heads + 2 * args.key_value_heads, size).transpose(1, 2)
        q, k, v = heads.split([args.heads, args.key_value_heads, args.key_value_heads], dim=1)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        if sdpa:
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1)
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(size)
            context = F.softmax(scores.masked_fill(self.mask[:t, :t], float("-inf")), dim=-1) @ v
        x = x + self.out(context.transpose(1, 2).reshape(b, t, args.heads * size))
        gate, value = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(args.vocab, args.d_model)
        self.blocks = nn.ModuleList([Block(args.d_model) for _ in range(args.layers)])
        self.norm = RmsNorm(args.d_model)
        self.head = nn.Linear(args.d_model, args.vocab, bias=False)
        angles = torch.arange(args.context).outer(10000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        number = torch.bfloat16 if args.bf16 else torch.float32
        self.register_buffer("cos", angles.cos().to(number))
        self.register_buffer("sin", angles.sin().to(number))

    def forward(self, tokens):
        x = self.token(tokens)
        t = tokens.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        return self.head(self.norm(x))


model = Llama()
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
