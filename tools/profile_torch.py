#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the blocks of a PyTorch model cost, and writes a profile that pipetwin reads.

As a program (my_model.py has a function build() that returns an nn.Sequential or a list of blocks):

    python3 profile_torch.py my_model.py:build --input 4,128 --micro-batch-sizes 1,2,4 --out my_model.profile.json

or from a program of your own:

    from profile_torch import profile
    profile(blocks, example_input, file="my_model.profile.json", micro_batch_sizes=[1, 2, 4])

It is one file that needs torch 1.13 or later and nothing else. Each block takes one tensor and returns one; what one
returns, the next one takes. The first dimension of the input counts samples, so it is replaced by each micro-batch size.

What the numbers mean:
- forward_ns, backward_input_ns, backward_weight_ns: medians. The backward is measured twice, as a whole and for the
  gradient of the input alone; the weights' part is the difference, since that is what remains to be done once the
  gradient of the input is on its way. Nothing asks for the gradient of the model's own input, so it costs nothing.
- saved_bytes: what autograd keeps from forward to backward (torch.autograd.graph.saved_tensors_hooks) and the block's
  input; each storage once, without parameters and buffers. The block's output is left out: it is the next block's input
  and counted there. Only that of the last block counts, where autograd keeps it.
- split_bytes is left out: what a block of several layers keeps inside between the two parts of a split backward is not
  known.
- workspace_bytes: on CUDA the highest memory in use beyond what is handed on or kept; 0 on the CPU, where it is not known.
- spread: (p90 - p10) / median of forward plus backward.
"""

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import sys
import time

try:
    import torch
except ImportError:
    if __name__ != "__main__":
        raise
    sys.exit("error: this Python has no torch\n"
             "hint: run it with the Python that your model runs with, or on Debian: apt-get install python3-torch, "
             "then /usr/bin/python3")

__all__ = ["profile", "ProfileError"]

PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
SMALLEST_PERCENTILE_SET = 5


class ProfileError(Exception):
    """What cannot be measured: where, what, and one suggestion."""

    def __init__(self, where, what, hint=""):
        super().__init__(f"{where}: {what}" + (f"\nhint: {hint}" if hint else ""))


# --- What there is to measure. ---


def named_blocks(blocks):
    """Pairs of a name and a module, of an nn.Sequential, a list, a dict, or a list of such pairs."""
    if isinstance(blocks, torch.nn.Module):
        if not isinstance(blocks, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)):
            raise ProfileError(
                type(blocks).__name__, "one module that does not say in which order its parts are called",
                "give an nn.Sequential, or a list of blocks of which each takes what the one before returns")
        pairs = list(blocks.named_children())
    elif isinstance(blocks, dict):
        pairs = list(blocks.items())
    else:
        pairs = [block if isinstance(block, tuple) else (str(index), block) for index, block in enumerate(blocks)]
    pairs = [(f"layer{name}" if str(name).isdigit() else str(name), block) for name, block in pairs]
    if not pairs:
        raise ProfileError("model", "no blocks", "give an nn.Sequential or a list of at least one block")
    for name, block in pairs:
        if not isinstance(block, torch.nn.Module):
            raise ProfileError(f"block '{name}'", f"of type {type(block).__name__}, expected an nn.Module",
                               "wrap a plain function in a module whose forward() calls it")
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ProfileError(f"block '{name}'", "two blocks of this name", "give each a name of its own")
    return pairs


def text_of(tensor):
    return f"{tuple(tensor.shape)} {str(tensor.dtype).replace('torch.', '')}"


# --- Memory. ---


def storage_of(tensor):
    """Address and size of the memory behind a tensor; views of one tensor share it."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


class SavedTensors:
    """Collects what autograd keeps. The tensors are held on to, so that no address is used twice."""

    def __init__(self):
        self.tensors = []

    def __enter__(self):
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *problem):
        return self._hooks.__exit__(*problem)

    def _pack(self, tensor):
        self.tensors.append(tensor)
        return tensor


def saved_bytes(saved, block_input, output, block, is_last):
    """Of the block's input and what autograd keeps; each storage once, see the top of this file."""
    storages = dict(storage_of(tensor) for tensor in saved if tensor.layout == torch.strided)
    keeps_output = storage_of(output)[0] in storages
    address, size = storage_of(block_input)
    storages[address] = size
    for tensor in list(block.parameters()) + list(block.buffers()):
        storages.pop(storage_of(tensor)[0], None)
    output_address = storage_of(output)[0]
    if output_address != address and not (is_last and keeps_output):
        storages.pop(output_address, None)
    return sum(storages.values())


# --- Time. ---


class Clock:
    """Nanoseconds between two calls: the wall clock, or events on the GPU's stream."""

    def __init__(self, device):
        self._cuda = device.type == "cuda"

    def measure(self, work):
        if not self._cuda:
            begin = time.perf_counter_ns()
            result = work()
            return time.perf_counter_ns() - begin, result
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = work()
        end.record()
        end.synchronize()
        return round(begin.elapsed_time(end) * 1e6), result


def percentile(values, share):
    """Between the two nearest of the sorted values."""
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def median(values):
    return round(percentile(values, 0.5))


# --- One block at one micro-batch size. ---


class BlockRun:
    """Forward and backward of one block, as a pipeline would call them."""

    def __init__(self, pairs, index, block_input, needs_input_gradient):
        name, block = pairs[index]
        self.where = f"block {index} '{name}' ({type(block).__name__})"
        self.block = block
        self.is_first = index == 0
        self.is_last = index + 1 == len(pairs)
        self.leaf = block_input.detach().requires_grad_(needs_input_gradient)
        self.parameters = [p for p in block.parameters() if p.requires_grad]

    def fresh_input(self):
        # A copy, so that blocks that work in place find the same input each time.
        return self.leaf.clone()

    def forward(self, block_input):
        try:
            output = self.block(block_input)
        except (RuntimeError, TypeError, ValueError, IndexError) as problem:
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            if "out of memory" in reason:
                raise ProfileError(self.where, f"out of memory: {reason}",
                                   "choose smaller micro-batch sizes") from problem
            raise ProfileError(self.where, f"cannot take {text_of(self.leaf)}: {reason}", self.hint_for_input()) from problem
        if not isinstance(output, torch.Tensor):
            what = f"{type(output).__name__} of {len(output)}" if isinstance(output, (tuple, list)) else (
                type(output).__name__)
            raise ProfileError(self.where, f"returns a {what}, expected one tensor",
                               "wrap it in a module that returns the tensor that the next block takes")
        return output

    def hint_for_input(self):
        if self.is_first:
            return ("check the example input: its first dimension counts samples, and a model that reads tokens takes whole "
                    "numbers (--vocabulary N)")
        return "each block takes the one tensor that the block before returns; check both, or put a reshape in between"

    def backward(self, output, gradient):
        """The whole backward; gradients add up in the parameters, as over micro-batches."""
        if output.requires_grad:
            self.leaf.grad = None
            torch.autograd.backward(output, gradient)

    def backward_input(self, output, gradient):
        torch.autograd.grad(output, self.leaf, gradient)

    def can_split(self, output):
        return output.requires_grad and self.leaf.requires_grad and bool(self.parameters)

    def check(self):
        """Runs it once with everything looked at. Returns output and saved bytes."""
        block_input = self.fresh_input()
        with SavedTensors() as saved:
            output = self.forward(block_input)
        self.expect_finite(output, "its output")
        size = saved_bytes(saved.tensors, block_input, output, self.block, self.is_last)
        del saved
        self.backward(output, torch.ones_like(output))
        for what, tensor in [("the gradient of its input", self.leaf.grad)] + [
                (f"the gradient of its '{name}'", p.grad) for name, p in self.block.named_parameters()]:
            if tensor is not None:
                self.expect_finite(tensor, what)
        return output.detach(), output.requires_grad, size

    def expect_finite(self, tensor, what):
        if tensor.is_sparse:
            tensor = tensor.coalesce().values()
        finite = torch.isfinite(tensor)
        if not bool(finite.all()):
            raise ProfileError(
                self.where,
                f"{what} holds {int((~finite).sum())} of {tensor.numel()} values that are not finite",
                "check the example input and how the weights are initialised; a precision of less range may overflow")


def measure_times(run, clock, repetitions, seconds):
    """Medians and spread over `repetitions` at least, and more until `seconds` have gone by."""
    forward, backward, backward_input = [], [], []
    warm_up = 3
    begin = time.monotonic()
    count = 0
    while count < warm_up + repetitions or (time.monotonic() - begin < seconds and count < 1000):
        block_input = run.fresh_input()
        forward_time, output = clock.measure(lambda: run.forward(block_input))
        gradient = torch.ones_like(output)
        backward_time, _ = clock.measure(lambda: run.backward(output, gradient))
        input_time = 0
        if run.can_split(output):
            output = run.forward(run.fresh_input())
            input_time, _ = clock.measure(lambda: run.backward_input(output, gradient))
        if count >= warm_up:
            forward.append(forward_time)
            backward.append(backward_time if output.requires_grad else 0)
            backward_input.append(input_time)
        count += 1
    whole = median(backward)
    if run.can_split(output):
        input_part = min(median(backward_input), whole)
    else:
        input_part = 0 if run.parameters else whole
    both = [f + b for f, b in zip(forward, backward)]
    spread = (percentile(both, 0.9) - percentile(both, 0.1)) / max(percentile(both, 0.5), 1)
    return {
        "forward_ns": median(forward),
        "backward_input_ns": input_part,
        "backward_weight_ns": whole - input_part,
        "spread": round(spread, 4)
    }


def measure_workspace(run, device):
    """The highest use of GPU memory inside forward or backward, beyond what stays after it."""
    if device.type != "cuda":
        return 0
    workspace = 0
    block_input = run.fresh_input()
    torch.cuda.reset_peak_memory_stats(device)
    output = run.forward(block_input)
    workspace = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    if output.requires_grad:
        gradient = torch.ones_like(output)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run.backward(output, gradient)
        kept = before + (bytes_of(run.leaf) if run.leaf.requires_grad else 0)
        workspace = max(workspace, torch.cuda.max_memory_allocated(device) - kept)
    return max(workspace, 0)


# --- The whole. ---


def resized(example_input, size):
    """`size` samples, taken from the example again and again."""
    rows = torch.arange(size, device=example_input.device) % example_input.shape[0]
    return example_input[rows]


@contextlib.contextmanager
def training_mode(pairs):
    """As in training (dropout draws, statistics are taken); afterwards modes and gradients are as they were."""
    modules = [module for _, block in pairs for module in block.modules()]
    modes = [module.training for module in modules]
    gradients = [(p, p.grad) for _, block in pairs for p in block.parameters()]
    for p, _ in gradients:
        p.grad = None
    for _, block in pairs:
        block.train()
    try:
        yield
    finally:
        for module, mode in zip(modules, modes):
            module.training = mode
        for p, gradient in gradients:
            p.grad = gradient


def check_arguments(example_input, micro_batch_sizes):
    if not isinstance(example_input, torch.Tensor):
        raise ProfileError("example_input", f"a {type(example_input).__name__}, expected one tensor",
                           "the first block takes one tensor whose first dimension counts samples")
    if example_input.dim() == 0 or example_input.shape[0] == 0:
        raise ProfileError("example_input", f"{text_of(example_input)}, expected at least one sample",
                           "its first dimension counts samples")
    sizes = sorted(set(micro_batch_sizes))
    if not sizes or sizes[0] < 1:
        raise ProfileError("micro_batch_sizes", f"{list(micro_batch_sizes)}, expected numbers of at least 1")
    return sizes


def profile(blocks, example_input, file=None, micro_batch_sizes=(1,), *, device=None, precision=None,
            device_name="this-machine", repetitions=20, seconds=0.2, progress=None):
    """Measures every block at every micro-batch size; returns the profile, and writes it to `file` if that is given.

    `device`: "cpu" or "cuda"; left out, that of the example input. `precision`: fp32, fp64, bf16 or fp16, into which blocks
    and input are brought; left out, they stay as they are. `progress(text)` is called before each block.
    Raises ProfileError for what cannot be measured.
    """
    pairs = named_blocks(blocks)
    sizes = check_arguments(example_input, micro_batch_sizes)
    device = torch.device(device) if device else example_input.device
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ProfileError("device", "torch finds no CUDA device", "measure with --device cpu")
    to = {"device": device}
    if precision:
        to["dtype"] = PRECISIONS[precision]
    pairs = [(name, block.to(**to)) for name, block in pairs]
    example_input = example_input.detach().to(device)
    if precision and example_input.is_floating_point():
        example_input = example_input.to(PRECISIONS[precision])
    layers = [{
        "name": name,
        "kind": type(block).__name__.lower(),
        "parameter_count": sum(p.numel() for p in block.parameters()),
        "parameter_bytes": sum(bytes_of(p) for p in block.parameters()),
        "samples": []
    } for name, block in pairs]
    clock = Clock(device)
    with training_mode(pairs):
        for size in sizes:
            block_input, needs_gradient = resized(example_input, size), False
            for index, (name, _) in enumerate(pairs):
                if progress:
                    progress(f"micro-batch size {size}: block {index + 1} of {len(pairs)}, '{name}'")
                run = BlockRun(pairs, index, block_input, needs_gradient)
                sample, block_input, needs_gradient = measure_block(run, clock, device, size, repetitions, seconds)
                if index > 0:
                    del sample["input_bytes"]
                layers[index]["samples"].append(sample)
    result = {
        "schema_version": 1,
        "source": "measured",
        "device": device_name,
        "precision": precision or precision_of(pairs, example_input),
        "tool_version": f"profile_torch.py 1, torch {torch.__version__}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "layers": layers
    }
    if file:
        write(file, result)
    return result


def measure_block(run, clock, device, size, repetitions, seconds):
    """The sample, the output and whether that needs a gradient."""
    output, requires_grad, saved = run.check()
    times = measure_times(run, clock, repetitions, seconds)
    spread = times.pop("spread")
    is_loss = run.is_last and output.dim() == 0
    sample = {
        "micro_batch_size": size,
        **times, "input_bytes": bytes_of(run.leaf),
        "output_bytes": 0 if is_loss else bytes_of(output),
        "saved_bytes": saved,
        "workspace_bytes": measure_workspace(run, device),
        "spread": spread
    }
    return sample, output, requires_grad


def precision_of(pairs, example_input):
    """The word for what most parameters are stored in."""
    counts = {}
    for _, block in pairs:
        for p in block.parameters():
            counts[p.dtype] = counts.get(p.dtype, 0) + p.numel()
    dtype = max(counts, key=counts.get) if counts else example_input.dtype
    return next((word for word, known in PRECISIONS.items() if known == dtype), "fp32")


def write(file, result):
    """Beside its place and renamed, so that a reader sees the whole file or none."""
    temporary = f"{file}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
        out.write("\n")
    os.replace(temporary, file)


# --- The program. ---


def numbers(text):
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"'{text}', expected whole numbers of at least 1 with commas, as in 4,128")
    return values


def load_blocks(source):
    """What FILE.py:FUNCTION returns."""
    path, _, name = source.rpartition(":")
    if not path or not name:
        raise ProfileError(source, "expected FILE.py:FUNCTION", "as in my_model.py:build")
    if not os.path.isfile(path):
        raise ProfileError(path, "no such file", "name the Python file that builds the model")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("profiled_model", path)
    if spec is None:
        raise ProfileError(path, "no Python file", "its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise ProfileError(path, f"{type(problem).__name__}: {problem}", "it has to be importable by itself") from problem
    build = getattr(module, name, None)
    if build is None:
        known = ", ".join(word for word in vars(module) if callable(vars(module)[word]) and not word.startswith("_"))
        raise ProfileError(path, f"holds no '{name}'", f"it holds {known}" if known else "define a function that returns "
                           "the blocks")
    if callable(build) and not isinstance(build, torch.nn.Module):
        return build()
    return build


def example_of(options):
    if options.vocabulary:
        return torch.randint(options.vocabulary, options.input)
    return torch.randn(options.input)


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Measures the blocks of a PyTorch model and writes a profile for pipetwin.",
        epilog="Use it in a scenario with model.kind = \"profile\" and model.file = \"x.profile.json\".")
    parser.add_argument("model", metavar="FILE.py:NAME",
                        help="a function that returns an nn.Sequential, a list of blocks, or a list of (name, block)")
    parser.add_argument("--input", type=numbers, required=True, metavar="N,...",
                        help="shape of an example input; the first number counts samples")
    parser.add_argument("--vocabulary", type=int, default=0, metavar="N",
                        help="the input holds whole numbers below N (tokens) instead of normal random numbers")
    parser.add_argument("--micro-batch-sizes", type=numbers, default=[1], metavar="N,...", help="default 1")
    parser.add_argument("--out", required=True, metavar="FILE", help="the profile, *.profile.json")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--device-name", default="this-machine", metavar="NAME",
                        help="what the profile calls the device, as a name of 'pipetwin devices' (default this-machine)")
    parser.add_argument("--precision", choices=sorted(PRECISIONS), help="bring blocks and input into it first")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="of the CPU (default: as torch likes)")
    parser.add_argument("--repetitions", type=int, default=20, metavar="N", help="at least; default 20")
    parser.add_argument("--seed", type=int, default=1, help="of weights and input; default 1")
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    if os.path.exists(options.out) and not options.force:
        print(f"error: {options.out}: the file is there already\nhint: name another with --out FILE, or overwrite it with "
              "--force", file=sys.stderr)
        return 6
    torch.manual_seed(options.seed)
    if options.threads > 0:
        torch.set_num_threads(options.threads)
    try:
        result = profile(load_blocks(options.model), example_of(options), options.out, options.micro_batch_sizes,
                         device=options.device, precision=options.precision, device_name=options.device_name,
                         repetitions=max(options.repetitions, SMALLEST_PERCENTILE_SET),
                         progress=lambda text: print(text, file=sys.stderr))
    except ProfileError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 3
    except OSError as problem:
        print(f"error: {options.out}: {problem.strerror}", file=sys.stderr)
        return 6
    sizes = ", ".join(str(size) for size in sorted(set(options.micro_batch_sizes)))
    print(f"{options.out}: {len(result['layers'])} layers at micro-batch sizes {sizes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
