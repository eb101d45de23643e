# SPDX-License-Identifier: Apache-2.0
"""What the comparisons of our first steps with PyTorch's have in common: the scenario of a case, its folder, differences."""
import argparse
import contextlib
import json
import pathlib
import tempfile

import numpy
import torch


def toml_value(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(inner) for inner in value) + "]"
    return json.dumps(value)


def scenario_text(tables):
    """`tables`: the keys of each table of a scenario, by its name."""
    return "".join(f"[{table}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in keys.items())
                   for table, keys in tables.items())


def read_numbers(path, dtype):
    return torch.from_numpy(numpy.fromfile(path, dtype=dtype))


class Differences:
    """The largest difference of each kind of tensor, and where it is."""

    def __init__(self, *kinds):
        self.largest = {kind: (0.0, "") for kind in kinds}

    def add(self, kind, name, ours, theirs):
        ours, theirs = ours.detach().double(), theirs.detach().double()
        size = theirs.abs().max().item()
        difference = (ours - theirs).abs().max().item() / (size or 1.0)
        if not difference <= self.largest[kind][0]:  # a difference that is no number counts, too
            self.largest[kind] = (difference, name)

    def print(self, line, what, remark, tolerance):
        """Prints a line about a case; whether all differences are within the tolerance."""
        bad = {kind: found for kind, found in self.largest.items() if not found[0] <= tolerance}
        print(f"{line:68} {what:10}", *(f"{kind} {value:.1e}" for kind, (value, _) in self.largest.items()), f"({remark})",
              "FAILED" if bad else "", flush=True)
        for kind, (value, place) in bad.items():
            print(f"    {kind} of {place}: {value:.2e}, tolerance {tolerance:g}")
        return not bad


def command_line(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="first_steps")
    parser.add_argument("--long", action="store_true", help="the larger models, too: minutes")
    parser.add_argument("--only", default="", help="cases with this word in their line alone")
    parser.add_argument("--keep", type=pathlib.Path, help="an existing folder for what the program leaves")
    return parser


def run_cases(args, cases, compare):
    """Calls `compare` with each chosen case and a folder for it; ends with 1 where one returns false."""
    torch.set_num_threads(1)
    chosen = [case for case in cases if (args.long or not case.is_long) and args.only in str(case)]
    if not chosen:
        raise SystemExit(f"--only {args.only}: no case has it in its name; expected one of {', '.join(map(str, cases))}")
    results = []
    for number, case in enumerate(chosen):
        with contextlib.ExitStack() as stack:
            if args.keep:
                folder = args.keep / f"{number:02}"
                folder.mkdir(exist_ok=True)
            else:
                folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            results.append(compare(case, folder))
    print(f"{sum(results)} of {len(results)} within the tolerance")
    raise SystemExit(0 if all(results) else 1)
