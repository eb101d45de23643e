#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of a GPT's loss curve: the same initial weights, the same batches, the same optimizer, in PyTorch.

    cmake --preset release && cmake --build --preset release --target loss_curve
    build/release/bench/loss_curve FOLDER scenarios/gpt-text.toml training.steps=50
    /usr/bin/python3 bench/peers/torch_loss_curve.py FOLDER [--precision fp32|bf16] [--tolerance 1e-4]

FOLDER is what bench/loss_curve left: weights in safetensors, tokens, its own losses. bf16 is PyTorch's autocast, with
weights in fp32. Prints both curves and the largest relative difference; ends with 1 where that is above the tolerance.
Needs Debian's python3-torch and libopenblas0-pthread, no other package.
"""
import argparse
import json
import math
import pathlib
import struct

import numpy
import torch
import torch.nn.functional as F


def read_safetensors(path):
    """The tensors of a file by their names."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        begin, end = (8 + length + offset for offset in about["data_offsets"])
        raw = bytearray(data[begin:end])
        dtype = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "I32": torch.int32}[about["dtype"]]
        tensors[name] = torch.frombuffer(raw, dtype=dtype).reshape(about["shape"]).clone()
    return tensors


def initial_weights(folder):
    """In fp32: the copies that half precision is rounded from, where there are any."""
    weights, masters = {}, {}
    for path in sorted((folder / "checkpoints" / "step-00000000").glob("*.safetensors")):
        for name, tensor in read_safetensors(path).items():
            if path.name.endswith(".weights.safetensors"):
                weights[name] = tensor
            elif name.endswith(".master"):
                masters[name[:-len(".master")]] = tensor
    return {name: masters.get(name, tensor).float().requires_grad_() for name, tensor in weights.items()}


class Gpt:
    """pipetwin's model on pipetwin's weights: norms before, exact GELU, a head of its own; matrices are (inputs, outputs)."""

    def __init__(self, weights, layers, heads):
        self.weights, self.layers, self.heads = weights, layers, heads

    def linear(self, name, x):
        bias = self.weights.get(name + ".bias")
        y = x @ self.weights[name + ".weight"]
        return y if bias is None else y + bias.to(y.dtype)

    def norm(self, name, x):
        gain, bias = self.weights[name + ".gain"], self.weights[name + ".bias"]
        return F.layer_norm(x, (x.shape[-1],), gain.reshape(-1), bias.reshape(-1), eps=1e-5)

    def attention(self, name, x):
        batch, positions, width = x.shape
        shape = (batch, positions, 3, self.heads, width // self.heads)
        q, k, v = self.linear(name + ".attention.qkv", x).view(shape).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        probabilities = F.softmax(scores.masked_fill(future, -math.inf), dim=-1)
        context = (probabilities @ v).transpose(1, 2).reshape(batch, positions, width)
        return self.linear(name + ".attention.out", context)

    def loss(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = F.embedding(inputs, self.weights["embedding.tokens"]) + self.weights["embedding.places"][:inputs.shape[1]]
        for block in range(self.layers):
            attention, feed_forward = f"block{block}.attention", f"block{block}.feed_forward"
            x = x + self.attention(attention, self.norm(attention + ".norm", x))
            up = F.gelu(self.linear(feed_forward + ".up", self.norm(feed_forward + ".norm", x)))
            x = x + self.linear(feed_forward + ".down", up)
        logits = self.linear("head.projection", self.norm("head.norm", x))
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1))


def curve_of(folder, about, precision):
    weights = initial_weights(folder)
    model = Gpt(weights, about["layers"], about["heads"])
    optimizer = torch.optim.AdamW(weights.values(), lr=about["learning_rate"])
    tokens = numpy.fromfile(folder / "tokens.bin", dtype=numpy.int32).astype(numpy.int64)
    batches = torch.from_numpy(tokens).view(-1, about["batch"], about["context"] + 1)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--precision", choices=["fp32", "bf16"], help="default: as pipetwin's")
    parser.add_argument("--tolerance", type=float, help="largest relative difference; default 1e-4 in fp32, 1e-2 in bf16")
    args = parser.parse_args()
    about = json.loads((args.folder / "curve.json").read_text())
    precision = args.precision or about["precision"]
    tolerance = args.tolerance or (1e-4 if about["precision"] == "fp32" else 1e-2)
    theirs = curve_of(args.folder, about, precision)
    differences = [abs(a - b) / b for a, b in zip(about["losses"], theirs, strict=True)]
    print(f"step  pipetwin {about['precision']}  PyTorch {precision}  relative difference")
    for step, (ours, other, difference) in enumerate(zip(about["losses"], theirs, differences)):
        if step % 10 == 0 or step + 1 == len(theirs):
            print(f"{step:4}  {ours:13.7f}  {other:12.7f}  {difference:.2e}")
    print(f"largest relative difference over {len(theirs)} steps: {max(differences):.2e} (tolerance {tolerance:g})")
    raise SystemExit(0 if max(differences) <= tolerance else 1)


if __name__ == "__main__":
    main()
