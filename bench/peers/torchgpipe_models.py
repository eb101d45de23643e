# SPDX-License-Identifier: Apache-2.0
"""Models of a checkout of github.com/kakaobrain/torchgpipe (v0.0.7), its own modules as they are, as peers of ours.

Its classifier takes means of 7x7 pixels, so that it reads images of 224x224 alone; here it takes means of what there is.
Dropout is switched off.
"""
import re
import sys

from torch import nn

# pipetwin's names of the convolutions and norms inside an operation of a cell, in the order of torchgpipe's modules.
REDUCTION = ["even", "odd", "norm"]
POINTWISE = ["conv", "norm"]


def peer_of(folder, model, channels):
    """The module for the keys of a scenario's [model]; None where torchgpipe has none."""
    for path in (folder, folder / "benchmarks" / "models"):
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))
    if model["kind"] == "unet":
        from unet import unet
        peer = unet(model["depth"], model["convolutions"], model["channels"], channels)
        for part in peer.modules():
            if isinstance(part, nn.Dropout2d):
                part.p = 0.0
        return peer
    if model["kind"] == "amoebanet-d" and model.get("variant") == "torchgpipe":
        from amoebanet import amoebanetd
        peer = amoebanetd(model["classes"], model["layers"], model["filters"])
        peer.classify.pool = nn.AdaptiveAvgPool2d(1)
        return peer
    return None


def _names_of_operation(parts):
    """One for each convolution and norm: a pointwise convolution, a factorized reduction, or a chain of convolutions."""
    if [isinstance(part, nn.Conv2d) for part in parts] == [True, True, False]:
        return REDUCTION
    if len(parts) == len(POINTWISE):
        return POINTWISE
    return [f"{kind}{i}" for i in range(1, len(parts) // 2 + 1) for kind in ("conv", "norm")]


def _owner(path):
    """pipetwin's layer of a path in a cell: `cell.reduce1`, `cell.operations.3`, or a path without cells."""
    operation = re.match(r"(.*)\.operations\.(\d+)", path)
    if operation:
        number = int(operation[2])
        return f"{operation[1]}.state{2 + number // 2}_{'right' if number % 2 else 'left'}"
    reduced = re.match(r"(.*)\.reduce([12])", path)
    return f"{reduced[1]}.state{int(reduced[2]) - 1}" if reduced else None


def tensor_names(peer):
    """(module, name in it, pipetwin's name) of every parameter and every running value."""
    owned = {}
    for path, part in peer.named_modules():
        if not isinstance(part, (nn.Conv2d, nn.BatchNorm2d, nn.Linear)):
            continue
        owner = _owner(path)
        if owner:
            owned.setdefault(owner, []).append(part)
            continue
        plain = {"stem1.conv": "stem1.conv", "stem1.bn": "stem1.norm", "classify.fc": "classify.linear",
                 "segment": "segment.conv"}.get(path, path)
        yield from _tensors(part, plain)
    for owner, parts in owned.items():
        for part, name in zip(parts, _names_of_operation(parts), strict=True):
            yield from _tensors(part, f"{owner}.{name}")


def _tensors(part, path):
    is_norm = isinstance(part, nn.BatchNorm2d)
    for name, _ in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
        yield part, name, f"{path}.{'gain' if is_norm and name == 'weight' else name}"
