#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of an image model's first steps: the same initial weights, images, micro-batches and optimizer, in PyTorch.

    cmake --preset release && cmake --build --preset release --target first_steps
    /usr/bin/python3 bench/peers/torch_image_steps.py build/release/bench/first_steps [--long] [--only WORD]

Lets the program train each model in two stages for three steps, does the same with a model in plain PyTorch (torchvision's
for ResNets of large images; see image_models.py), undivided, and compares loss, every gradient, every running statistic
and every weight behind each step. A difference is relative to the largest number of its tensor; more than 1e-10 in fp64
or 1e-4 in fp32 ends with 1. Both sides normalise by micro-batch. Where running statistics are deferred, the expected ones
are found from the inputs of all norms in double; else they are PyTorch's own. "smooth": GELU stands in for ReLU, and means
of windows for their largest numbers; ResNet-101's blocks have 0.2 as their last gain at first (see in_precision).

--long adds what takes minutes, --only what has WORD in its name alone. --torchgpipe FOLDER compares with the modules of a
checkout of github.com/kakaobrain/torchgpipe (v0.0.7) as well, where it has the model. --keep FOLDER leaves what the
program has written there. Needs Debian's python3-torch and python3-torchvision; exits with 77 without them.
"""
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

if any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision", "numpy")):
    print("skipped: no Python with torch and torchvision was found (Debian: python3-torch, python3-torchvision)")
    sys.exit(77)

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from image_models import as_peer_has_it, make_smooth, peer_of, tensor_names
from step_comparison import Differences, command_line, read_numbers, run_cases, scenario_text
from torch_loss_curve import read_safetensors

TOLERANCE = {"fp64": 1e-10, "fp32": 1e-4}
STEPS = 3
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
SEEDS = 3


@dataclasses.dataclass
class Case:
    """A model, and how it is trained. `partition`: units of the two stages."""

    name: str
    model: dict
    image: tuple  # height, width, channels
    partition: list
    batch: int = 5  # in two micro-batches of unequal sizes
    micro_batches: int = 2
    schedule: str = "gpipe"
    precision: str = "fp64"
    deferred: bool = True
    smooth: bool = False
    small_residuals: bool = False
    learning_rate: float = 0.05
    is_long: bool = False

    def __str__(self):
        rest = ("" if self.deferred else ", not deferred") + (", smooth" if self.smooth else "")
        return f"{self.name}, {self.image[0]}x{self.image[1]}, {self.schedule}, {self.precision}{rest}"

    def scenario(self):
        model = {**self.model, "image": list(self.image)}
        training = {"batch": self.batch, "steps": STEPS, "precision": self.precision, "optimizer": "momentum",
                    "learning_rate": self.learning_rate, "momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY}
        pipeline = {"stages": 2, "micro_batches": self.micro_batches, "schedule": self.schedule, "partition": self.partition}
        return scenario_text({"model": model, "training": training, "pipeline": pipeline})


def resnet(depth, **others):
    return {"kind": "resnet", "depth": depth, "classes": 10, **others}


def amoebanet(cells, layers, variant):
    return {"kind": f"amoebanet-{cells}", "layers": layers, "filters": 64, "classes": 10, "variant": variant}


def unet(depth, convolutions, channels):
    return {"kind": "unet", "depth": depth, "convolutions": convolutions, "channels": channels}


def daily_models():
    """The cut of a ResNet and of a U-Net lies where skips cross it."""
    return [
        Case("ResNet-18", resnet(18), (48, 40, 3), [24, 47], batch=7),
        Case("ResNet-20", resnet(20), (24, 16, 3), [33, 45]),
        Case("ResNet-20 without projections", resnet(20, projections=False), (24, 16, 1), [33, 45]),
        Case("AmoebaNet-D (3, 64) torchgpipe", amoebanet("d", 3, "torchgpipe"), (64, 64, 3), [4, 5], batch=7),
        Case("AmoebaNet-D (3, 64) reference", amoebanet("d", 3, "reference"), (64, 56, 3), [4, 5], batch=7),
        Case("AmoebaNet-B (3, 64) reference", amoebanet("b", 3, "reference"), (64, 56, 3), [4, 5], batch=7),
        Case("U-Net depth 2 (1, 4)", unet(2, 1, 4), (20, 26, 1), [10, 19]),
        Case("U-Net depth 3 (2, 8)", unet(3, 2, 8), (27, 18, 3), [30, 39]),
    ]


def long_models():
    return [
        Case("ResNet-101", resnet(101), (36, 36, 3), [135, 235], batch=17),
        Case("AmoebaNet-D (6, 64) torchgpipe", amoebanet("d", 6, "torchgpipe"), (64, 64, 3), [5, 7], batch=25),
        Case("AmoebaNet-D (6, 64) reference", amoebanet("d", 6, "reference"), (64, 56, 3), [5, 7], batch=25),
        Case("AmoebaNet-B (6, 64) reference", amoebanet("b", 6, "reference"), (64, 56, 3), [5, 7], batch=25),
    ]


def in_precision(case, precision):
    """Deep models with batch norms multiply rounding differences from layer to layer and from step to step, the more the
    fewer numbers a norm reads and the longer the steps are. In fp32 they are made smooth as well: of a million inputs of a
    ReLU some are so near to 0 that rounding decides on which side they are, and each such input changes gradients by far
    more than 1e-4."""
    changes = {}
    if case.name.startswith(("AmoebaNet", "ResNet-18", "ResNet-101")):
        short, shorter = (1e-3, 1e-5) if case.is_long else (5e-3, 1e-3)
        changes = {"learning_rate": short if precision == "fp64" else shorter, "smooth": precision == "fp32",
                   "small_residuals": case.name == "ResNet-101"}
    return dataclasses.replace(case, precision=precision, **changes)


def cases():
    daily = [dataclasses.replace(case, schedule=("gpipe", "1f1b")[number % 2]) for number, case in enumerate(daily_models())]
    found = [in_precision(case, precision) for case in daily for precision in ("fp64", "fp32")]
    found += [in_precision(dataclasses.replace(case, schedule="1f1b" if case.schedule == "gpipe" else "gpipe", deferred=False,
                                               batch=case.batch + 3, micro_batches=3), "fp64")
              for case in daily if case.model["kind"] != "unet" and case.name != "ResNet-18"]
    found += [in_precision(dataclasses.replace(case, schedule=schedule, is_long=True), precision)
              for case in long_models() for schedule in ("gpipe", "1f1b") for precision in ("fp64", "fp32")]
    return found


class DeferredStatistics:
    """Moves the running values of all norms once a mini-batch, by the mean and the unbiased variance of what each has read
    in all micro-batches, in double."""

    def __init__(self, model):
        self.read = {module: [] for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
        for norm in self.read:
            norm.register_forward_pre_hook(lambda module, inputs: self.read[module].append(inputs[0].detach().double()))
        self.before = {}

    def begin(self):
        for norm, inputs in self.read.items():
            inputs.clear()
            self.before[norm] = [tensor.clone() for tensor in norm.buffers()]

    def commit(self):
        for norm, inputs in self.read.items():
            numbers = torch.cat(inputs).transpose(0, 1).flatten(1)
            values = (numbers.mean(1), numbers.var(1, unbiased=True))
            mean, variance, updates = self.before[norm]
            for tensor, before, value in zip((norm.running_mean, norm.running_var), (mean, variance), values, strict=True):
                tensor.copy_((1 - norm.momentum) * before.double() + norm.momentum * value)
            norm.num_batches_tracked.copy_(updates + 1)


def loss_of(model, outputs, targets):
    if model["kind"] == "unet":
        return F.binary_cross_entropy_with_logits(outputs.flatten(), targets.flatten().to(outputs.dtype))
    smoothing = 0.1 if model["kind"].startswith("amoebanet") and model.get("variant") != "torchgpipe" else 0.0
    return F.cross_entropy(outputs, targets, label_smoothing=smoothing)


def train(case, folder, peer, names):
    """Repeats the steps that the program has left in `folder`; the differences."""
    about = json.loads((folder / "steps.json").read_text())
    number = torch.float64 if case.precision == "fp64" else torch.float32
    peer = peer.to(number).train()
    names = list(names)
    stored = read_safetensors(folder / "before.safetensors")
    unknown = set(stored) ^ {name for _, _, name in names}
    if unknown:
        raise SystemExit(f"{case}: tensors that one of the two has not: {', '.join(sorted(unknown))}")
    with torch.no_grad():
        for part, own_name, name in names:
            tensor = getattr(part, own_name)
            tensor.copy_(as_peer_has_it(part, stored[name], tensor.shape))
    statistics = DeferredStatistics(peer)
    optimizer = torch.optim.SGD(peer.parameters(), lr=case.learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    height, width, channels = case.image
    differences = Differences("loss", "gradients", "running values", "weights")
    for step in range(1, STEPS + 1):
        values = read_numbers(folder / f"step-{step}.values", numpy.float32)
        images = values.view(case.batch, height, width, channels).permute(0, 3, 1, 2).to(number).contiguous()
        targets = read_numbers(folder / f"step-{step}.targets", numpy.int32).long()
        targets = targets.view(case.batch, -1) if case.model["kind"] == "unet" else targets
        optimizer.zero_grad()
        statistics.begin()
        loss = 0.0
        for part_images, part_targets in zip(images.split(about["micro_batches"]), targets.split(about["micro_batches"])):
            part = loss_of(case.model, peer(part_images), part_targets) * (len(part_images) / case.batch)
            part.backward()
            loss += part.detach().double()
        if case.deferred:
            statistics.commit()
        optimizer.step()
        ours = read_safetensors(folder / f"step-{step}.safetensors")
        differences.add("loss", f"step {step}", torch.tensor([about["losses"][step - 1]], dtype=torch.float64), loss[None])
        for part, own_name, name in names:
            tensor = getattr(part, own_name)
            place = f"{name}, step {step}"
            is_weight = isinstance(tensor, nn.Parameter)
            differences.add("weights" if is_weight else "running values", place,
                            as_peer_has_it(part, ours[name], tensor.shape), tensor)
            if is_weight:
                differences.add("gradients", place, as_peer_has_it(part, ours[name + ".gradient"], tensor.shape), tensor.grad)
    return differences


def peers_of(case, torchgpipe):
    """(what it is, module, names of its tensors) of everything that the case is compared with."""
    peer = peer_of(case.model, case.image[2])
    if case.smooth:
        make_smooth(peer)
    yield "PyTorch", peer, tensor_names(peer)
    if torchgpipe and not case.smooth:
        import torchgpipe_models
        peer = torchgpipe_models.peer_of(torchgpipe, case.model, case.image[2])
        if peer is not None:
            yield "torchgpipe", peer, torchgpipe_models.tensor_names(peer)


def compare(case, program, folder, torchgpipe):
    """Prints a line for each peer of the case; whether all differences are within the tolerance. In fp32 up to two
    more seeds are tried where they are not: whether rounding decides about an input of a ReLU is a matter of luck."""
    (folder / "scenario.toml").write_text(case.scenario())
    words = {"--not-deferred": not case.deferred, "--smooth": case.smooth,
             "--small-residuals": case.small_residuals, "--without-dropout": True}
    options = [word for word, is_set in words.items() if is_set]
    for seed in range(1, 2 if case.precision == "fp64" else SEEDS + 1):
        begin = time.monotonic()
        subprocess.run([program, folder, folder / "scenario.toml", *options, f"training.seed={seed}"], check=True)
        ours = time.monotonic() - begin
        if all([agrees(case, folder, peer, f"seed {seed}, {ours:.1f} s") for peer in peers_of(case, torchgpipe)]):
            return True
    return False


def agrees(case, folder, peer, remark):
    """Prints a line for a peer of the case; whether all differences are within the tolerance."""
    what, module, names = peer
    begin = time.monotonic()
    differences = train(case, folder, module, names)
    return differences.print(str(case), what, f"{remark}, {time.monotonic() - begin:.1f} s", TOLERANCE[case.precision])


def main():
    parser = command_line(__doc__)
    parser.add_argument("--torchgpipe", type=pathlib.Path, help="a checkout of torchgpipe, whose modules are peers, too")
    args = parser.parse_args()
    run_cases(args, cases(), lambda case, folder: compare(case, args.program, folder, args.torchgpipe))


if __name__ == "__main__":
    main()
