#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama in plain PyTorch on the CPU, step by step beside ours: bench/cpu_training.cpp starts it (step_by_step.py).

RMSNorm, rotary positions as in Hugging Face's Llama, grouped queries, SwiGLU with gates and values in one product, no biases.
"""
import math

import step_by_step

parser = step_by_step.parser()
parser.add_argument("--key-value-heads", type=int, default=2)
parser.add_argument("--feed-forward", type=int, default=1408)
parser.add_argument("--norm", choices=["fused", "formula"], help="rms_norm of PyTorch 2.4, or its formula; otherwise what is there")
args = parser.parse_args()
torch = step_by_step.start(args)
nn, F = torch.nn, torch.nn.functional
has_rms_norm = args.norm == "fused" or (args.norm is None and hasattr(F, "rms_norm"))
size = args.d_model // args.heads
group = args.heads // args.key_value_heads


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        if has_rms_norm:
            return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def turned(x, cosines, sines):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), dim=-1)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(d), RmsNorm(d)
        self.qkv = nn.Linear(d, (args.heads + 2 * args.key_value_heads) * size, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * args.feed_forward, bias=False), nn.Linear(args.feed_forward, d, bias=False)
        self.register_buffer("mask", torch.triu(torch.ones(args.context, args.context, dtype=torch.bool), 1))
        angles = torch.outer(torch.arange(args.context).float(), 10000.0 ** (-torch.arange(size // 2) / (size // 2)))
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def attention(self, q, k, v):
        if args.sdpa:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1)
        t = q.shape[2]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(size)
        return F.softmax(scores.masked_fill(self.mask[:t, :t], float("-inf")), dim=-1) @ v

    def forward(self, x):
        b, t, d = x.shape
        heads = self.qkv(self.norm1(x)).view(b, t, -1, size).transpose(1, 2)
        q, k, v = heads.split([args.heads, args.key_value_heads, args.key_value_heads], dim=1)
        cosines, sines = self.cosines[:t].to(q.dtype), self.sines[:t].to(q.dtype)
        context = self.attention(turned(q, cosines, sines), turned(k, cosines, sines), v)
        x = x + self.out(context.transpose(1, 2).reshape(b, t, d))
        gate, value = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(args.vocab, args.d_model)
        self.blocks = nn.Sequential(*[Block(args.d_model) for _ in range(args.layers)])
        self.norm = RmsNorm(args.d_model)
        self.head = nn.Linear(args.d_model, args.vocab, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.token(tokens))))


step_by_step.run(torch, args, Llama())
