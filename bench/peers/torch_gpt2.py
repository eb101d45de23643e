#!/usr/bin/env python3
"""The peer of the CUDA backend: one training step of GPT-2 124M in PyTorch on one GPU, in bf16.

Prints one JSON line for eager PyTorch and one for torch.compile, both with PyTorch's own flash attention: tokens per second,
the median over the steps. The model is scenarios/gpt2-124m-gpu.toml's: untied head, exact GELU, AdamW on every parameter.

    python3 bench/peers/torch_gpt2.py [--batch 32] [--steps 20]
"""
import argparse
import json
import statistics

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--d-model", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--vocab", type=int, default=50304)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(args.vocab, args.d_model)
        self.position = nn.Embedding(args.context, args.d_model)
        self.blocks = nn.Sequential(*[Block(args.d_model, args.heads) for _ in range(args.layers)])
        self.norm = nn.LayerNorm(args.d_model)
        self.head = nn.Linear(args.d_model, args.vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, args.vocab), targets.reshape(-1))


def measure(name, compile_it):
    torch.manual_seed(1)
    model = GPT().cuda()
    step_model = torch.compile(model) if compile_it else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    tokens = torch.randint(0, args.vocab, (args.batch, args.context + 1), device="cuda")
    times, loss = [], None
    for _ in range(args.steps + 5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    step = statistics.median(times[5:])
    print(json.dumps({"peer": name, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                      "tokens_per_second": round(1e3 * args.batch * args.context / step), "step_ms": round(step, 3),
                      "loss": round(loss.item(), 5)}), flush=True)


torch.backends.cuda.matmul.allow_tf32 = False
measure("eager", False)
measure("torch.compile", True)
