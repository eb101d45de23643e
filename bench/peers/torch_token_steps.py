#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of a language model's first steps: the same initial weights, tokens, micro-batches and optimizer, in PyTorch.

    cmake --preset release && cmake --build --preset release --target first_steps
    /usr/bin/python3 bench/peers/torch_token_steps.py build/release/bench/first_steps [--long] [--only WORD]

Lets the program train each model in two stages, does the same with a model in plain PyTorch (token_models.py) and PyTorch's
own optimizer, clipping and schedules of the rate, undivided, and compares. A difference is relative to the largest number of
its tensor.

fp64: loss, norm of the gradients, every gradient, every update of a weight and every weight behind each step; 1e-10.
Where devices or replicas divide the training, gradients are not compared: each has a part of them.
fp32: alike, but each step begins with the program's weights, and its gradients go into PyTorch's optimizer, so that nothing
adds up: AdamW divides by roots of squares, which makes a tiny gradient's rounding a large one of its weight. Updates are
compared as weights, which rounding them leaves; 1e-5.
bf16: 50 steps on the licence texts of Debian, in bf16 on both sides from weights in fp32. The mean of all losses, and the mean
of the last ten; 1 %.

--long adds what takes minutes, --only what has WORD in its name alone. --keep FOLDER leaves what the program has written there,
and with --again it is taken from there and the program not started: a PyTorch of another system can read it. Needs Debian's
python3-torch; exits with 77 without it.
"""
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import time
import warnings

if any(importlib.util.find_spec(name) is None for name in ("torch", "numpy")):
    print("skipped: no Python with torch was found (Debian: python3-torch)")
    sys.exit(77)

import numpy
import torch

from step_comparison import Differences, command_line, read_numbers, run_cases, scenario_text
from token_models import peer_of
from torch_loss_curve import read_safetensors

TOLERANCE = {"fp64": 1e-10, "fp32": 1e-5, "bf16": 1e-2}
NUMBER = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
TEXTS = "/usr/share/common-licenses"
RECIPE = {"optimizer": "adamw", "learning_rate": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.1, "weight_decay_of": "weights"}
# 1e-8, AdamW's own epsilon, would make the rounding of gradients of 1e-17 one of their updates of 1e-9: the bias of keys that
# a softmax is taken over has the gradient 0.
OF_TINY_GRADIENTS = {**RECIPE, "epsilon": 1e-6}


@dataclasses.dataclass
class Case:
    """A model, and how it is trained. `training`: keys of the scenario's table."""

    name: str
    model: dict
    training: dict = dataclasses.field(default_factory=lambda: dict(RECIPE))
    batch: int = 5  # in two micro-batches of unequal sizes
    micro_batches: int = 2
    steps: int = 3
    schedule: str = "gpipe"
    precision: str = "fp64"
    is_long: bool = False
    divided: dict = dataclasses.field(default_factory=dict)  # keys of the scenario's [pipeline]: no gradients are compared

    def __str__(self):
        return f"{self.name}, {self.schedule}, {self.precision}"

    def scenario(self):
        training = {"batch": self.batch, "steps": self.steps, "precision": self.precision, **self.training}
        data = {"kind": "text", "path": TEXTS} if self.precision == "bf16" else {"kind": "synthetic"}
        pipeline = {"stages": 2, "micro_batches": self.micro_batches, "schedule": self.schedule, **self.divided}
        return scenario_text({"model": self.model, "data": data, "training": training, "pipeline": pipeline})


def gpt(**others):
    return {"kind": "gpt", "layers": 2, "d_model": 24, "heads": 4, "context": 13, "vocabulary": 37, **others}


def llama(**others):
    sizes = {"layers": 2, "d_model": 24, "heads": 4, "context": 13, "vocabulary": 37, "feed_forward": 40}
    return {"kind": "llama", **sizes, **others}


def moe(**others):
    sizes = {"experts": 6, "experts_per_token": 2, "expert_feed_forward": 20, **others}
    model = {**llama(), "kind": "moe", **sizes}
    return model if "dense_layers" in sizes else {key: value for key, value in model.items() if key != "feed_forward"}


DEEPSEEK = {"router": "sigmoid", "router_groups": 3, "router_groups_per_token": 2, "router_scale": 2.5, "shared_feed_forward": 17,
            "dense_layers": 1}


def mixture():
    """Old and new layers in one model, with biases, and sizes that no vector divides."""
    return {"kind": "layers", "layer": [
        {"type": "embedding", "outputs": 27, "context": 19, "vocabulary": 53},
        {"type": "residual", "layer": [
            {"type": "layer_norm"}, {"type": "attention", "heads": 6, "key_value_heads": 3, "head_size": 10,
                                     "bias": True, "rotary_base": 1000}]},
        {"type": "residual", "layer": [
            {"type": "rms_norm", "epsilon": 1e-3}, {"type": "linear", "outputs": 62}, {"type": "swiglu"},
            {"type": "linear", "outputs": 27}]},
        {"type": "residual", "name": "plain", "layer": [
            {"type": "rms_norm"}, {"type": "attention", "name": "heads", "heads": 3, "key_value_heads": 1, "bias": False}]},
        {"type": "residual", "layer": [
            {"type": "layer_norm"}, {"type": "linear", "outputs": 31, "bias": False}, {"type": "gelu", "approximate": "tanh"},
            {"type": "linear", "outputs": 27}]},
        {"type": "rms_norm"},
        {"type": "linear", "outputs": 53},
        {"type": "cross_entropy"}]}


def translation(**others):
    sizes = {"layers": 2, "d_model": 24, "heads": 4, "feed_forward": 40, "vocabulary": 37, "source_context": 11,
             "target_context": 9}
    return {"kind": "translation", **sizes, **others}


def without_learned_positions(model):
    model["layer"][0]["learned_positions"] = False
    return model


LLAMA3_POSITIONS = {"rotary_base": 10000, "rotary_factor": 8, "rotary_context": 64}  # each of its three ranges has pairs


def models():
    return [
        Case("Llama", llama()),
        Case("Llama, 2 groups, tied", llama(key_value_heads=2, tied=True, epsilon=1e-6)),
        Case("Llama, 1 group, heads of 10, all frequencies scaled",
             llama(key_value_heads=1, head_size=10, rotary_base=500000, rotary_factor=4)),
        Case("Llama 3's positions, tied, odd sizes",
             llama(d_model=27, heads=6, key_value_heads=3, head_size=14, feed_forward=31, vocabulary=53, context=19, tied=True,
                   **LLAMA3_POSITIONS)),
        Case("Llama, 150 positions", llama(layers=1, d_model=80, heads=5, key_value_heads=1, head_size=32, context=150,
                                           feed_forward=200, vocabulary=211, **LLAMA3_POSITIONS)),
        Case("a mixture of layers", mixture()),
        Case("a mixture without learned positions", without_learned_positions(mixture())),
        Case("translation, one table", translation(), OF_TINY_GRADIENTS),
        Case("translation, two tables, labels smoothed as torch's", translation(tables="tied-target", label_smoothing=0.1),
             OF_TINY_GRADIENTS),
        Case("translation, three tables, labels smoothed as lingvo's, GELU by tanh, learned positions",
             translation(tables="separate", label_smoothing=0.1, smoothing="others", activation="gelu", gelu="tanh", learned_positions=True,
                         d_model=27, heads=3, source_context=6, target_context=13), OF_TINY_GRADIENTS),
        Case("a mixture of experts, as Mixtral", moe(key_value_heads=2)),
        Case("a mixture of experts, as DeepSeek-V3 but for attention", moe(layers=3, **DEEPSEEK)),
        Case("many experts, unequal loads cost, tied", moe(experts=23, experts_per_token=3, auxiliary_loss=0.1, tied=True,
                                                           router_normalised=False)),
        Case("sigmoids with biases that move", moe(bias_update=0.05, experts=8, **DEEPSEEK | {"router_groups": 4})),
        Case("sigmoids, unequal loads cost", moe(router="sigmoid", auxiliary_loss=0.1)),
        Case("GPT, tied", gpt(tied=True)),
        Case("GPT-2's GELU, by tanh", gpt(gelu="tanh")),
    ]


def recipes():
    """Optimizers with all that a recipe sets, and rates that rise and fall."""
    rising = {"warmup_steps": 2, "learning_rate_schedule": "cosine", "final_learning_rate": 1e-3}
    clipped = {**RECIPE, **rising, "clip_norm": 0.5}
    model = llama(key_value_heads=2)
    return [dataclasses.replace(case, steps=6, micro_batches=3) for case in [
        Case("clipped, warm-up and cosine", model, clipped),
        Case("decay of all, epsilon 1e-3, linear", model,
             {**RECIPE, **rising, "learning_rate_schedule": "linear", "weight_decay_of": "all", "epsilon": 1e-3}),
        Case("tied, clipped, warm-up and cosine", llama(tied=True), clipped),
        Case("a mixture, clipped, warm-up and cosine", mixture(), clipped),
        Case("adam, betas 0.8 and 0.9", model, {**RECIPE, "optimizer": "adam", "betas": [0.8, 0.9]}),
        Case("momentum", model, {"optimizer": "momentum", "learning_rate": 0.1, "momentum": 0.8, "weight_decay": 0.1,
                                 "weight_decay_of": "weights"}),
        Case("rmsprop", model, {"optimizer": "rmsprop", "learning_rate": 1e-3, "rmsprop_decay": 0.8, "epsilon": 1e-4,
                                "weight_decay": 0.1, "weight_decay_of": "weights"}),
    ]]


def divided():
    """Layers that several devices divide, and gradients and weights that replicas do."""
    devices = {"tensor_parallel": 2}
    shards = {"data_parallel": 2, "shard": "weights"}
    clipped = {**RECIPE, "clip_norm": 0.5}
    sizes = {"vocabulary": 38, "feed_forward": 40, "context": 14}
    return [dataclasses.replace(case, batch=6, schedule="1f1b") for case in [
        Case("GPT on 2 devices a stage", gpt(**sizes), clipped, divided=devices),
        Case("Llama, tied, on 2 devices a stage that divide rows", llama(tied=True, **sizes), clipped,
             divided={**devices, "sequence_parallel": True}),
        Case("a mixture of experts on 2 devices that divide rows",
             moe(auxiliary_loss=0.1, bias_update=0.05, **DEEPSEEK | {"shared_feed_forward": 18}, **sizes), clipped,
             divided={**devices, "sequence_parallel": True}),
        Case("a mixture of experts on 2 devices, 2 replicas that divide weights", moe(key_value_heads=2, **sizes), clipped,
             divided={**devices, **shards}),
        Case("GPT, 2 replicas that divide weights", gpt(tied=True, **sizes), clipped, divided=shards),
        Case("Llama, 2 replicas that divide gradients", llama(**sizes), clipped, divided={**shards, "shard": "gradients"}),
        Case("Llama on 2 x 2 x 2 devices, weights divided", llama(key_value_heads=2, **sizes), clipped,
             divided={**devices, **shards, "sequence_parallel": True}),
    ]]


def in_half_precision():
    training = {**RECIPE, "learning_rate": 2e-3, "warmup_steps": 5, "learning_rate_schedule": "cosine", "clip_norm": 1.0}
    texts = {"vocabulary": 256, "context": 64}
    common = {"training": training, "batch": 8, "micro_batches": 4, "steps": 50, "precision": "bf16"}
    return [
        Case("Llama, 2 groups", llama(d_model=64, key_value_heads=2, feed_forward=172, **texts), schedule="1f1b", **common),
        Case("Llama 3's positions, tied", llama(d_model=64, head_size=32, key_value_heads=1, feed_forward=172, tied=True,
                                                **LLAMA3_POSITIONS, **texts), **common),
    ]


def long_models():
    wide = llama(layers=4, d_model=256, heads=8, key_value_heads=2, context=300, vocabulary=1000, feed_forward=688,
                 **LLAMA3_POSITIONS)
    found = [Case("Llama, 4 blocks of 256", wide, OF_TINY_GRADIENTS, precision=precision, is_long=True) for precision in ("fp64", "fp32")]
    for case in in_half_precision():
        model = {**case.model, "layers": 4, "d_model": 192, "context": 128, "feed_forward": 512}
        found.append(dataclasses.replace(case, name=case.name + ", 4 blocks of 192", model=model, batch=32, is_long=True))
    return found


def cases():
    daily = [dataclasses.replace(case, schedule=("gpipe", "1f1b")[number % 2]) for number, case in enumerate(models() + recipes())]
    return [dataclasses.replace(case, precision=precision) for case in daily for precision in ("fp64", "fp32")] + \
        divided() + in_half_precision() + long_models()


def optimizer_of(training, weights):
    """PyTorch's, which decays matrices of products alone where the scenario says so."""
    is_decayed = [training.get("weight_decay_of") != "weights" or name.endswith(".weight") for name in weights]
    decay = training["weight_decay"]
    groups = [{"params": [w for w, decays in zip(weights.values(), is_decayed) if decays], "weight_decay": decay},
              {"params": [w for w, decays in zip(weights.values(), is_decayed) if not decays], "weight_decay": 0}]
    groups = [group for group in groups if group["params"]]
    rate, epsilon = training["learning_rate"], training.get("epsilon", 1e-8)
    if training["optimizer"] == "momentum":
        return torch.optim.SGD(groups, lr=rate, momentum=training["momentum"])
    if training["optimizer"] == "rmsprop":
        return torch.optim.RMSprop(groups, lr=rate, alpha=training["rmsprop_decay"], eps=epsilon)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[training["optimizer"]]
    return kind(groups, lr=rate, betas=training["betas"], eps=epsilon)


def rates_of(training, steps, optimizer):
    """PyTorch's schedules: a warm-up, and what follows it until the last step."""
    warmup = training.get("warmup_steps", 0)
    kind = training.get("learning_rate_schedule", "constant")
    rate, end, rest = training["learning_rate"], training.get("final_learning_rate", 0), steps - warmup
    schedules = torch.optim.lr_scheduler
    if kind == "constant":
        return schedules.ConstantLR(optimizer, factor=1, total_iters=0)
    rising = schedules.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    falling = schedules.CosineAnnealingLR(optimizer, T_max=rest, eta_min=end) if kind == "cosine" else \
        schedules.LinearLR(optimizer, start_factor=1, end_factor=end / rate, total_iters=rest)
    return schedules.SequentialLR(optimizer, [rising, falling], milestones=[warmup])


class Training:
    """PyTorch's, of a case, from the weights that the program has left in `folder`."""

    def __init__(self, case, folder):
        self.case, self.folder = case, folder
        self.about = json.loads((folder / "steps.json").read_text())
        stored = read_safetensors(folder / "before.safetensors")
        exact = {name: stored.get(name + ".master", tensor) for name, tensor in stored.items() if not name.endswith(".master")}
        self.weights = {name: tensor.requires_grad_() for name, tensor in exact.items() if not name.endswith("choice_bias")}
        self.biases = {name: tensor for name, tensor in exact.items() if name.endswith("choice_bias")}
        self.model = peer_of(case.model, {**self.weights, **self.biases}, NUMBER[case.precision])
        self.optimizer = optimizer_of(case.training, self.weights)
        self.rates = rates_of(case.training, case.steps, self.optimizer)

    def backward(self, step):
        """The loss of a mini-batch; weights get their gradients, micro-batch by micro-batch."""
        tokens, targets = (read_numbers(self.folder / f"step-{step}.{kind}", numpy.int32).long().view(self.case.batch, -1)
                           for kind in ("tokens", "targets"))
        stored = self.folder / f"step-{step}.lengths"
        lengths = read_numbers(stored, numpy.int32).long() if stored.exists() else torch.zeros(self.case.batch)
        self.optimizer.zero_grad()
        loss = 0.0
        sizes = self.about["micro_batches"]
        counted = (targets >= 0).sum()
        for part_tokens, part_targets, part_lengths in zip(tokens.split(sizes), targets.split(sizes), lengths.split(sizes)):
            share = (part_targets >= 0).sum().double() / counted
            part = self.model.loss(part_tokens, part_targets, part_lengths) * share
            (part + getattr(self.model, "auxiliary", 0.0) * share).backward()  # unequal loads are in no loss that is reported
            loss += part.detach().double()
        return loss

    def update(self):
        """Returns the norm of all gradients, as it was before they were clipped."""
        longest = self.case.training.get("clip_norm", float("inf"))
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), longest)
        self.optimizer.step()
        self.rates.step()
        if hasattr(self.model, "move_biases"):
            self.model.move_biases()
        return norm


def numbers(value):
    return torch.tensor([value], dtype=torch.float64)


def compare_steps(case, training):
    """Number by number; see above for fp32."""
    about, weights = training.about, training.weights
    is_exact = case.precision == "fp64"
    gradients = [] if case.divided else ["gradients"]
    differences = Differences("loss", "norm", *gradients, *(["updates"] if is_exact else []), "weights")
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    for step in range(1, case.steps + 1):
        ours = read_safetensors(training.folder / f"step-{step}.safetensors")
        loss = training.backward(step)
        differences.add("loss", f"step {step}", numbers(about["losses"][step - 1]), loss)
        for name, weight in weights.items() if gradients else ():
            differences.add("gradients", f"{name}, step {step}", ours[name + ".gradient"], weight.grad)
            if not is_exact:
                weight.grad.copy_(ours[name + ".gradient"])
        differences.add("norm", f"step {step}", numbers(about["grad_norms"][step - 1]), training.update())
        for name, bias in training.biases.items():
            differences.add("weights", f"{name}, step {step}", ours[name], bias)
        for name, weight in weights.items():
            differences.add("weights", f"{name}, step {step}", ours[name], weight)
            if is_exact:
                differences.add("updates", f"{name}, step {step}", ours[name] - before[name], weight - before[name])
            else:
                weight.data.copy_(ours[name])
            before[name].copy_(weight.detach() if is_exact else ours[name])
    return differences


def compare_losses(case, training):
    """Means over all steps, and over the last ten."""
    differences = Differences("mean loss", "last ten")
    ours, theirs = numbers(training.about["losses"]).flatten(), []
    for step in range(1, case.steps + 1):
        theirs.append(training.backward(step))
        training.update()
    theirs = torch.stack(theirs)
    differences.add("mean loss", f"{case.steps} steps", ours.mean(), theirs.mean())
    differences.add("last ten", f"steps {case.steps - 9} to {case.steps}", ours[-10:].mean(), theirs[-10:].mean())
    return differences


def compare(case, folder, args):
    """Prints a line; whether all differences are within the tolerance."""
    scenario = folder / "scenario.toml"
    if args.again:
        if scenario.read_text() != case.scenario():
            raise SystemExit(f"{scenario}: another case than {case}; expected what --keep left with the same other options")
    else:
        scenario.write_text(case.scenario())
        options = ["--losses-only"] if case.precision == "bf16" else []
        subprocess.run([args.program, folder, scenario, *options], check=True)
    begin = time.monotonic()
    kind = compare_losses if case.precision == "bf16" else compare_steps
    differences = kind(case, Training(case, folder))
    return differences.print(str(case), "PyTorch", f"{time.monotonic() - begin:.1f} s", TOLERANCE[case.precision])


def main():
    parser = command_line(__doc__)
    parser.add_argument("--again", action="store_true", help="take what --keep FOLDER has from an earlier call")
    args = parser.parse_args()
    if args.again and not args.keep:
        parser.error("--again needs --keep FOLDER, what an earlier call has left")
    print(f"PyTorch {torch.__version__}")
    warnings.filterwarnings("ignore", message="The epoch parameter")  # which PyTorch's own SequentialLR passes
    run_cases(args, cases(), lambda case, folder: compare(case, folder, args))


if __name__ == "__main__":
    main()
