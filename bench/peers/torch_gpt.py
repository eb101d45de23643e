#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT in plain PyTorch on the CPU, step by step beside ours: bench/cpu_training.cpp starts it (step_by_step.py)."""
import math

import step_by_step

args = step_by_step.parser().parse_args()
torch = step_by_step.start(args)
nn, F = torch.nn, torch.nn.functional


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
        if args.sdpa:
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


step_by_step.run(torch, args, GPT())
