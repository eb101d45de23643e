#!/usr/bin/env python3
"""The peer of an image model's first steps: the same initial weights, images, micro-batches and optimizer, in PyTorch.

    cmake --preset release && cmake --build --preset release --target image_steps
    /usr/bin/python3 bench/peers/torch_image_steps.py build/release/bench/image_steps [--long] [--only WORD]

Lets the program train each model in two stages for three steps, does the same with a model in plain PyTorch (torchvision's
for ResNets of large images; see image_models.py), undivided, and compares loss, every gradient, every running statistic
and every weight behind each step. A difference is relative to the largest number of its tensor; more than 1e-10 in fp64
or 1e-4 in fp32 ends with 1. Both normalise by micro-batch. Where running statistics are deferred, the expected ones are
found from the inputs of all norms in double; else they are PyTorch's own.

--long adds what takes minutes, --only what has WORD in its name alone. --torchgpipe FOLDER compares with the modules of a
checkout of github.com/kakaobrain/torchgpipe (v0.0.7) as well, where it has the model. --keep FOLDER leaves what the
program has written there. Needs Debian's python3-torch and python3-torchvision; exits with 77 without them.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time

if any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision", "numpy")):
    print("skipped: no Python with torch and torchvision was found (Debian: python3-torch, python3-torchvision)")
    sys.exit(77)

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from image_models import as_peer_has_it, peer_of, tensor_names
from torch_loss_curve import read_safetensors

TOLERANCE = {"fp64": 1e-10, "fp32": 1e-4}
STEPS = 3
OPTIMIZER = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}


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
    is_long: bool = False

    def __str__(self):
        rest = "" if self.deferred else ", not deferred"
        return f"{self.name}, {self.image[0]}x{self.image[1]}, {self.schedule}, {self.precision}{rest}"

    def scenario(self):
        model = {**self.model, "image": list(self.image)}
        training = {"batch": self.batch, "steps": STEPS, "precision": self.precision, "optimizer": "momentum",
                    "learning_rate": OPTIMIZER["lr"], "momentum": OPTIMIZER["momentum"],
                    "weight_decay": OPTIMIZER["weight_decay"]}
        pipeline = {"stages": 2, "micro_batches": self.micro_batches, "schedule": self.schedule, "partition": self.partition}
        tables = {"model": model, "training": training, "pipeline": pipeline}
        return "".join(f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
                       for table, keys in tables.items())


def cases():
    """The cut of a ResNet and of a U-Net lies where skips cross it."""
    base = [
        Case("ResNet-18", {"kind": "resnet", "depth": 18, "classes": 10}, (64, 48, 3), [24, 47]),
        Case("ResNet-20", {"kind": "resnet", "depth": 20, "classes": 10}, (24, 16, 3), [33, 45]),
        Case("ResNet-20 without projections", {"kind": "resnet", "depth": 20, "classes": 10, "projections": False},
             (24, 16, 1), [33, 45]),
        Case("AmoebaNet-D (3, 64) torchgpipe",
             {"kind": "amoebanet-d", "layers": 3, "filters": 64, "classes": 10, "variant": "torchgpipe"}, (64, 32, 3), [4, 5]),
        Case("AmoebaNet-D (3, 64) reference", {"kind": "amoebanet-d", "layers": 3, "filters": 64, "classes": 10},
             (64, 48, 3), [4, 5]),
        Case("AmoebaNet-B (3, 64) reference", {"kind": "amoebanet-b", "layers": 3, "filters": 64, "classes": 10},
             (64, 48, 3), [4, 5]),
        Case("U-Net depth 2 (1, 4)", {"kind": "unet", "depth": 2, "convolutions": 1, "channels": 4}, (20, 26, 1), [10, 19]),
        Case("U-Net depth 3 (2, 8)", {"kind": "unet", "depth": 3, "convolutions": 2, "channels": 8}, (27, 18, 3), [30, 39]),
    ]
    for number, case in enumerate(base):
        case.schedule = ("gpipe", "1f1b")[number % 2]
    all_cases = [dataclasses.replace(case, precision=precision) for case in base for precision in ("fp64", "fp32")]
    all_cases += [dataclasses.replace(case, schedule="1f1b" if case.schedule == "gpipe" else "gpipe", deferred=False,
                                      batch=8, micro_batches=3)
                  for case in base if case.model["kind"] != "unet" and case.name != "ResNet-18"]
    long_cases = [
        Case("ResNet-101", {"kind": "resnet", "depth": 101, "classes": 10}, (64, 64, 3), [135, 235]),
        Case("AmoebaNet-D (6, 64) torchgpipe",
             {"kind": "amoebanet-d", "layers": 6, "filters": 64, "classes": 10, "variant": "torchgpipe"}, (64, 64, 3), [5, 7]),
        Case("AmoebaNet-D (6, 64) reference", {"kind": "amoebanet-d", "layers": 6, "filters": 64, "classes": 10},
             (96, 80, 3), [5, 7]),
        Case("AmoebaNet-B (6, 64) reference", {"kind": "amoebanet-b", "layers": 6, "filters": 64, "classes": 10},
             (96, 80, 3), [5, 7]),
        dataclasses.replace(base[0], name="ResNet-18, 16 samples", batch=16, micro_batches=4, deferred=False),
    ]
    all_cases += [dataclasses.replace(case, schedule=schedule, precision=precision, is_long=True)
                  for case in long_cases for schedule in ("gpipe", "1f1b") for precision in ("fp64", "fp32")]
    return all_cases


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


class Differences:
    """The largest difference of each kind of tensor, and where it is."""

    def __init__(self):
        self.largest = {"loss": (0.0, ""), "gradients": (0.0, ""), "running values": (0.0, ""), "weights": (0.0, "")}

    def add(self, kind, name, ours, theirs):
        ours, theirs = ours.detach().double(), theirs.detach().double()
        size = theirs.abs().max().item()
        difference = (ours - theirs).abs().max().item() / (size or 1.0)
        if not difference <= self.largest[kind][0]:  # a difference that is no number counts, too
            self.largest[kind] = (difference, name)


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
    optimizer = torch.optim.SGD(peer.parameters(), **OPTIMIZER)
    height, width, channels = case.image
    differences = Differences()
    for step in range(1, STEPS + 1):
        values = torch.from_numpy(numpy.fromfile(folder / f"step-{step}.values", dtype=numpy.float32))
        images = values.view(case.batch, height, width, channels).permute(0, 3, 1, 2).to(number).contiguous()
        targets = torch.from_numpy(numpy.fromfile(folder / f"step-{step}.targets", dtype=numpy.int32)).long()
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
    yield "PyTorch", peer, tensor_names(peer)
    if torchgpipe:
        import torchgpipe_models
        peer = torchgpipe_models.peer_of(torchgpipe, case.model, case.image[2])
        if peer is not None:
            yield "torchgpipe", peer, torchgpipe_models.tensor_names(peer)


def compare(case, program, folder, torchgpipe):
    """Prints a line for each peer of the case; whether all differences are within the tolerance."""
    (folder / "scenario.toml").write_text(case.scenario())
    options = ["--without-dropout"] + ([] if case.deferred else ["--not-deferred"])
    begin = time.monotonic()
    subprocess.run([program, folder, folder / "scenario.toml", *options], check=True)
    ours = time.monotonic() - begin
    good = True
    for what, peer, names in peers_of(case, torchgpipe):
        begin = time.monotonic()
        differences = train(case, folder, peer, names).largest
        bad = {kind: found for kind, found in differences.items() if not found[0] <= TOLERANCE[case.precision]}
        print(f"{str(case):62} {what:10}", *(f"{kind} {value:.1e}" for kind, (value, _) in differences.items()),
              f"({ours:.1f} s, {time.monotonic() - begin:.1f} s)", "FAILED" if bad else "", flush=True)
        for kind, (value, place) in bad.items():
            print(f"    {kind} of {place}: {value:.2e}, tolerance {TOLERANCE[case.precision]:g}")
        good &= not bad
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="image_steps")
    parser.add_argument("--long", action="store_true", help="the larger models, too: minutes")
    parser.add_argument("--only", default="", help="cases with this word in their line alone")
    parser.add_argument("--torchgpipe", type=pathlib.Path, help="a checkout of torchgpipe, whose modules are peers, too")
    parser.add_argument("--keep", type=pathlib.Path, help="an existing folder for what the program leaves")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [case for case in cases() if (args.long or not case.is_long) and args.only in str(case)]
    if not chosen:
        raise SystemExit(f"--only {args.only}: no case has it in its name; expected one of {', '.join(map(str, cases()))}")
    results = []
    for number, case in enumerate(chosen):
        with contextlib.ExitStack() as stack:
            if args.keep:
                folder = args.keep / f"{number:02}"
                folder.mkdir(exist_ok=True)
            else:
                folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            results.append(compare(case, args.program, folder, args.torchgpipe))
    print(f"{sum(results)} of {len(results)} within the tolerance")
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
