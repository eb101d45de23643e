#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch keeps of a micro-batch between its forward and its backward, beside what pipetwin keeps.

    /usr/bin/python3 bench/peers/torch_saved_memory.py build/release/bin/pipetwin [--only WORD]

PyTorch's autograd says which tensors it saves (saved_tensors_hooks); each storage counts once, parameters and running
values do not count. pipetwin's bytes are what one more micro-batch in flight adds to the peak of a device: the difference
of the peaks of 3 and of 2 micro-batches of GPipe. Ours must not be above PyTorch's for any model. Both keep fp32.

Each model is written here in plain PyTorch, as its authors have it: with rectifiers that overwrite their input ("in
place"), too, where those save nothing of their own. Ends with 77 without torch and torchvision.
"""
import argparse
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

if any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision", "numpy")):
    print("skipped: no Python with torch and torchvision was found (Debian: python3-torch, python3-torchvision)")
    sys.exit(77)

import torch
import torch.nn.functional as F
from torch import nn

from image_models import UNet, convolution, peer_of
from step_comparison import scenario_text

SAMPLES = 2  # of a micro-batch


@dataclasses.dataclass
class Case:
    name: str
    model: dict
    image: tuple  # height, width, channels; none: the model reads tokens
    peer: object

    def scenario(self, micro_batches):
        tables = {"model": {**self.model, **({"image": list(self.image)} if self.image else {})},
                  "training": {"batch": SAMPLES * micro_batches, "optimizer": "sgd"},
                  "pipeline": {"stages": 1, "micro_batches": micro_batches, "schedule": "gpipe", "recompute": "none"},
                  "cluster": {"device": "p40"}}
        return scenario_text(tables)


class UNetWithDropout(UNet):
    """torchgpipe's, with its dropout of channels."""

    def __init__(self, *sizes, in_place):
        super().__init__(*sizes)
        self.in_place = in_place

    def run(self, name, x):
        for i in range(self.convolutions):
            x = F.dropout2d(getattr(self, f"{name}_{i}_conv")(x), 0.1)
            x = F.leaky_relu(F.instance_norm(x), 0.01, inplace=self.in_place)
        return x


def in_place(module):
    """Its rectifiers overwrite what they read."""
    for part in module.modules():
        if isinstance(part, nn.ReLU):
            part.inplace = True
    return module


def linear(outputs, name):
    return {"name": name, "type": "linear", "outputs": outputs}


def conv(outputs, name):
    return {"name": name, "type": "conv2d", "outputs": outputs, "kernel": [3, 3], "padding": [1, 1, 1, 1], "bias": False}


def plain(kind, name, **keys):
    return {"name": name, "type": kind, **keys}


class Block(nn.Module):
    """A block of GPT-2; dropout at the end of both halves."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        queries, keys, values = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                                 for part in self.qkv(self.norm1(x)).chunk(3, -1))
        positions = x.shape[1]
        future = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        scores = (queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5).masked_fill(future, float("-inf"))
        context = (scores.softmax(-1) @ values).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(context), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1)


class Gpt(nn.Module):
    def __init__(self, width, heads, blocks, context, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = F.dropout(self.tokens(tokens) + self.places.weight, 0.1)
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def units_of_three():
    """Convolution, norm and rectifier as one unit, three times: (ours, PyTorch's)."""
    ours = [{"name": f"u{i}", "type": "sequence",
             "layer": [conv(8, "conv"), plain("batch_norm", "norm"), plain("relu", "relu")]} for i in range(3)]
    ours += [conv(4, "last"), plain("global_avg_pool", "pool"),
             {"name": "head", "type": "sequence", "layer": [linear(10, "linear"), plain("cross_entropy", "loss")]}]
    theirs = [part for i in range(3) for part in (convolution(8 if i else 3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())]
    return ours, nn.Sequential(*theirs, convolution(8, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def chain_of_images():
    """Layers as units of their own: (ours, PyTorch's)."""
    ours = [conv(8, "c1"), plain("batch_norm", "n1"), plain("relu", "r1"), plain("max_pool", "p1", kernel=[2, 2]),
            conv(16, "c2"), plain("relu", "r2"), plain("channel_dropout", "d2", probability=0.2),
            plain("avg_pool", "p2", kernel=[2, 2]), plain("flatten", "flat"), linear(32, "l1"), plain("relu", "r3"),
            plain("dropout", "d3", probability=0.5), linear(10, "l2"), plain("cross_entropy", "loss")]
    theirs = nn.Sequential(convolution(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), convolution(8, 16, 3), nn.ReLU(),
                           nn.Dropout2d(0.2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 25, 32), nn.ReLU(),
                           nn.Dropout(0.5), nn.Linear(32, 10))
    return ours, theirs


def sequences_of_images():
    """The same layers in sequences, each a unit: (ours, PyTorch's)."""
    ours, theirs = chain_of_images()
    parts = [ours[:4], ours[4:8], ours[8:]]
    return [{"name": f"u{i}", "type": "sequence", "layer": part} for i, part in enumerate(parts)], theirs


def cases():
    chain, chain_peer = chain_of_images()
    sequences, sequences_peer = sequences_of_images()
    resnet = {"kind": "resnet", "classes": 10}
    amoebanet = {"layers": 3, "filters": 64, "classes": 10}
    for name, make in (("as it is", lambda x: x), ("in place", in_place)):
        yield Case(f"ResNet-18, {name}", {**resnet, "depth": 18}, (64, 64, 3), make(peer_of({**resnet, "depth": 18}, 3)))
        yield Case(f"ResNet-50, {name}", {**resnet, "depth": 50}, (64, 64, 3), make(peer_of({**resnet, "depth": 50}, 3)))
    yield Case("ResNet-20", {**resnet, "depth": 20}, (24, 16, 3), peer_of({**resnet, "depth": 20}, 3))
    for words, inside in (("as it is", False), ("in place", True)):
        yield Case(f"U-Net, {words}", {"kind": "unet", "depth": 3, "convolutions": 2, "channels": 8}, (32, 32, 3),
                   UNetWithDropout(3, 2, 8, 3, in_place=inside))
    for kind, variant in (("d", "torchgpipe"), ("d", "reference"), ("b", "reference")):
        keys = {"kind": f"amoebanet-{kind}", "variant": variant, **amoebanet}
        yield Case(f"AmoebaNet-{kind.upper()}, {variant}", keys, (64, 64, 3), peer_of(keys, 3))
    units, units_peer = units_of_three()
    yield Case("units of three layers", {"kind": "layers", "layer": units}, (20, 20, 3), units_peer)
    gpt = {"kind": "gpt", "layers": 2, "d_model": 32, "heads": 4, "context": 16, "vocabulary": 256, "dropout": 0.1}
    yield Case("GPT", gpt, (), Gpt(32, 4, 2, 16, 256))
    yield Case("a chain of units", {"kind": "layers", "layer": chain}, (20, 20, 3), chain_peer)
    yield Case("a chain of sequences", {"kind": "layers", "layer": sequences}, (20, 20, 3), sequences_peer)


def loss_of(case, outputs):
    if case.model["kind"] == "unet":
        return F.binary_cross_entropy_with_logits(outputs, torch.zeros_like(outputs))
    return F.cross_entropy(outputs, torch.zeros(len(outputs), dtype=torch.long))


def torch_keeps(case):
    """Bytes that autograd saves of one micro-batch."""
    peer = case.peer.train()
    own = {tensor.storage().data_ptr() for tensor in [*peer.parameters(), *peer.buffers()]}
    kept = {}

    def pack(tensor):
        storage = tensor.storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    inputs = torch.randint(case.model.get("vocabulary", 1), (SAMPLES, case.model.get("context", 1)))
    if case.image:
        height, width, channels = case.image
        inputs = torch.rand(SAMPLES, channels, height, width)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(case, peer(inputs))
    total = sum(storage.nbytes() for storage in kept.values())
    loss.backward()
    return total


def pipetwin_keeps(case, program, folder):
    """Bytes that one more micro-batch takes."""
    peaks = []
    for micro_batches in (2, 3):
        scenario, costs = folder / "scenario.toml", folder / "costs.profile.json"
        scenario.write_text(case.scenario(micro_batches))
        subprocess.run([program, "model", scenario, "--device", "p40", "--costs-out", costs, "--force"], check=True,
                       capture_output=True)
        said = subprocess.run([program, "simulate", scenario, "--profile", costs, "--json"], check=True, capture_output=True)
        peaks.append(json.loads(said.stdout)["devices"][0]["peak_bytes"]["total"])
    return peaks[1] - peaks[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="pipetwin")
    parser.add_argument("--only", default="", help="cases with this word in their name alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [case for case in cases() if args.only in case.name]
    worse = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            ours, theirs = pipetwin_keeps(case, args.program, pathlib.Path(folder)), torch_keeps(case)
            worse += ours > theirs
            print(f"{case.name:28} pipetwin {ours:12,}   PyTorch {theirs:12,}   {ours / theirs:.3f}",
                  "FAILED" if ours > theirs else "", flush=True)
    print(f"{len(chosen) - worse} of {len(chosen)} keep no more than PyTorch")
    raise SystemExit(1 if worse or not chosen else 0)


if __name__ == "__main__":
    main()
