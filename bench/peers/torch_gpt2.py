#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of the CUDA backend: one training step of GPT-2 124M in PyTorch on one GPU, in bf16.

Prints one JSON line for eager PyTorch and two for torch.compile, with PyTorch's own flash attention and with cuDNN's: tokens per
second by the median step, between CUDA events, after warm-up steps that compile. The model is scenarios/gpt2-124m-gpu.toml's:
untied head, exact GELU (with --gelu tanh that of model.gelu = "tanh"), AdamW on every parameter; weights are fp32 and autocast to
bf16, as is usual in PyTorch. A way that fails says why, and the next one is tried. Exit code: 0 at least one was measured, 1 none,
5 no GPU.

    python3 bench/peers/torch_gpt2.py [--batch 32] [--micro-batches 1] [--steps 20] [--gelu tanh] [--only WAY]
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


WAYS = (("eager, flash attention", "FLASH_ATTENTION", False),
        ("torch.compile, flash attention", "FLASH_ATTENTION", True),
        ("torch.compile, cuDNN attention", "CUDNN_ATTENTION", True))


class Block(nn.Module):
    def __init__(self, d, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.token = nn.Embedding(args.vocab, args.d_model)
        self.position = nn.Embedding(args.context, args.d_model)
        self.blocks = nn.Sequential(*[Block(args.d_model, args.heads, args.gelu) for _ in range(args.layers)])
        self.norm = nn.LayerNorm(args.d_model)
        self.head = nn.Linear(args.d_model, args.vocab, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def train_step(model, optimizer, tokens, micro_batches):
    optimizer.zero_grad(set_to_none=True)
    for samples in tokens.chunk(micro_batches):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            loss = model(samples[:, :-1], samples[:, 1:]) / micro_batches
        loss.backward()
    optimizer.step()
    return loss * micro_batches


def only(backend):
    """Attention by this backend alone: an error where it cannot, instead of a slower one in silence."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, backend))


def measure(args, name, attention, compile_it):
    torch.manual_seed(1)
    model = GPT(args).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(0, args.vocab, (args.batch, args.context + 1), device="cuda")
    runnable = torch.compile(model) if compile_it else model
    times = []
    with attention:
        for _ in range(args.warm_up + args.steps):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            loss = train_step(runnable, optimizer, tokens, args.micro_batches)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
    times = times[args.warm_up:]
    step = statistics.median(times)
    print(json.dumps({"peer": name, "micro_batches": args.micro_batches, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                      "tokens_per_second": round(1e3 * args.batch * args.context / step), "step_ms": round(step, 3),
                      "fastest_ms": round(min(times), 3), "slowest_ms": round(max(times), 3),
                      "loss": round(loss.item(), 5)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro-batches", type=int, default=1, help="whose gradients are summed before the update")
    parser.add_argument("--gelu", choices=["none", "tanh"], default="none", help="its approximation")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--only", choices=[name for name, *_ in WAYS], help="instead of all of them")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"no GPU that torch {torch.__version__} can use", file=sys.stderr)
        return 5
    measured = 0
    for name, backend, compile_it in WAYS:
        if args.only not in (None, name):
            continue
        try:
            measure(args, name, only(backend), compile_it)
            measured += 1
        except Exception as error:  # whatever a library throws: the next way may work
            print(json.dumps({"peer": name, "failed": (str(error).strip() or repr(error)).splitlines()[0][:200]}), flush=True)
        torch.compiler.reset()
        torch.cuda.empty_cache()
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
