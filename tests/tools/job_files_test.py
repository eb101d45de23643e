#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that 'pipetwin export' writes for other systems: each parses as what it is (bash, Python, TOML, YAML, JSON), and each of
its keys is one that the system has. tests/tools/job_keys.json lists those, with the repository and commit that they are of.

    job_files_test.py PROGRAM [--random N] [--seed N]

Plans are drawn; what a system cannot say has to be refused (exit code 3) with a hint. Needs PyYAML for the files in YAML."""

import argparse
import ast
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import tomllib

try:
    import yaml
except ImportError:
    yaml = None

KEYS = json.loads((pathlib.Path(__file__).resolve().parent / "job_keys.json").read_text())
FORMATS = ["torchtitan-toml", "torchtitan-python", "bridge", "automodel", "deepspeed", "sbatch", "kubernetes"]

MODEL = {
    "llama3 8B": 'kind = "llama"\nlayers = 32\nd_model = 4096\nheads = 32\nkey_value_heads = 8\nfeed_forward = 14336\n'
                 "context = 8192\nvocabulary = 128256\n",
    "a small one": 'kind = "llama"\nlayers = 32\nd_model = 64\nheads = 8\nfeed_forward = 128\ncontext = 64\n'
                   "vocabulary = 256\n",
}


def drawn(numbers):
    """A scenario: 32 blocks in a pipeline or without one, with what systems say in different ways."""
    stages = numbers.choice([1, 2, 4, 8])
    chunks = numbers.choice([1, 2]) if stages > 1 else 1
    schedule = numbers.choice(["interleaved-1f1b", "zb-v"]) if chunks == 2 else numbers.choice(["1f1b", "1f1b", "gpipe"])
    replicas, tensor, context = numbers.choice([1, 2, 4]), numbers.choice([1, 2]), numbers.choice([1, 1, 2])
    micro_batches = stages * numbers.choice([1, 2])
    sizes = [32 // (stages * chunks)] * (stages * chunks)
    if numbers.random() < 0.3 and len(sizes) > 1:
        sizes[0] -= 1
        sizes[-1] += 1
    narrow = numbers.choice(["fp32", "bf16", "bf16", "same"])
    lines = ["[model]", MODEL[numbers.choice(list(MODEL))], "[training]",
             f"batch = {micro_batches * replicas * numbers.choice([1, 2])}", "steps = 500",
             f'learning_rate_schedule = "{numbers.choice(["constant", "linear", "cosine"])}"',
             f"warmup_steps = {numbers.choice([0, 20])}", f"clip_norm = {numbers.choice([0, 1.0])}",
             f'optimizer = "{numbers.choice(["adamw", "adamw", "adam", "momentum"])}"',
             'precision = "fp32"' if narrow == "fp32" else 'precision = "bf16"']
    if narrow != "fp32":
        lines += ['gradients = "same"', "optimizer_state_bytes = 4"] if narrow == "same" else ['gradients = "fp32"']
    lines += ["[pipeline]", f"stages = {stages}", f"chunks = {chunks}", f'schedule = "{schedule}"',
              f"micro_batches = {micro_batches}", f"data_parallel = {replicas}", f"partition = {sizes}",
              f'recompute = "{numbers.choice(["none", "block", "selective"])}"']
    if replicas > 1:
        lines.append(f'shard = "{numbers.choice(["optimizer", "weights", "gradients", "none"])}"')
        if replicas == 4 and numbers.random() < 0.3:
            lines.append("shard_group = 2")
    if tensor > 1:
        lines += ["tensor_parallel = 2", "sequence_parallel = true",
                  f"tensor_overlap = {numbers.choice(['true', 'false'])}"]
    if context > 1:
        method = numbers.choice(["ring", "all-gather", "all-to-all"])
        lines += ["context_parallel = 2", f'context_method = "{method}"']
    return "\n".join(lines) + "\n"


def expect_known(names, known, where):
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"{where}: {unknown}: no such key in the system")


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def check_toml(text):
    expect_known(flat(tomllib.loads(text)), KEYS["torchtitan-toml"]["keys"], "torchtitan-toml")


def check_python(text):
    known = KEYS["torchtitan-python"]
    module = compile(text, "planned.py", "exec", ast.PyCF_ONLY_AST)
    compile(text, "planned.py", "exec")
    model = None
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            if node.module.startswith("torchtitan.models.") and node.names[0].name == "model_registry":
                model = node.module.rsplit(".", 1)[1]
            if node.module != "torchtitan.models.my_model":
                expect_known([name.name for name in node.names], known["names"][node.module], node.module)
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "model_registry":
                called = f"model_registry of {'llama3' if model == 'my_model' else model}"
            if called not in ("float", "decoder_vocab_size"):
                expect_known([keyword.arg for keyword in node.keywords], known["keys"][called], called)


def check_bridge(text):
    known, container = KEYS["bridge"], yaml.safe_load(text)
    expect_known(container, known["keys"], "ConfigContainer")
    for name, table in container.items():
        if isinstance(table, dict):
            expect_known(table, known["keys"][name], name)
    recipe = container["mixed_precision"]
    if isinstance(recipe, str):
        expect_known([recipe], known["mixed_precision"], "mixed_precision")


def check_automodel(text):
    recipe = yaml.safe_load(text)
    for path, known in KEYS["automodel"]["keys"].items():
        table = recipe
        for part in path.split("."):
            table = table.get(part, {})
        expect_known(table, known, path)
    if not all(isinstance(rate, float) for rate in (recipe["optimizer"]["lr"], recipe["lr_scheduler"]["min_lr"])):
        raise SystemExit("automodel: a learning rate that YAML takes for a text")


def check_deepspeed(text):
    config = json.loads(text)
    for path, known in KEYS["deepspeed"]["keys"].items():
        expect_known(config.get(path, {}) if path else config, known, path or "the file")


def check_bash(text):
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    if done.returncode or done.stderr:
        raise SystemExit(f"bash -n: {done.stderr}")


def check_kubernetes(text):
    job = yaml.safe_load(text)
    known = KEYS["kubernetes"]["keys"] + ["apiVersion", "kind", "metadata"]
    expect_known(job, known, "TrainJob")
    expect_known(job["spec"], known, "spec")
    expect_known(job["spec"]["trainer"], known, "trainer")
    check_bash(job["spec"]["trainer"]["args"][0])


CHECKS = {"torchtitan-toml": check_toml, "torchtitan-python": check_python, "bridge": check_bridge,
          "automodel": check_automodel, "deepspeed": check_deepspeed, "sbatch": check_bash,
          "kubernetes": check_kubernetes}
IN_YAML = {"bridge", "automodel", "kubernetes"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    numbers = random.Random(arguments.seed)
    written, refused = dict.fromkeys(FORMATS, 0), dict.fromkeys(FORMATS, 0)
    with tempfile.TemporaryDirectory() as folder:
        scenario, out = pathlib.Path(folder) / "plan.toml", pathlib.Path(folder) / "job"
        for _ in range(arguments.random):
            scenario.write_text(drawn(numbers))
            for name in FORMATS:
                if name in IN_YAML and yaml is None:
                    continue
                done = subprocess.run([arguments.program, "export", name, str(scenario), "--force", "--out", str(out)],
                                      text=True, capture_output=True, check=False)
                if done.returncode == 0:
                    CHECKS[name](out.read_text())
                    written[name] += 1
                elif done.returncode == 3 and "hint: " in done.stderr:
                    refused[name] += 1
                else:
                    raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}\n{scenario.read_text()}")
    print("\n".join(f"{name}: {written[name]} written, {refused[name]} refused" for name in FORMATS))
    if any(count == 0 for name, count in written.items() if yaml is not None or name not in IN_YAML):
        raise SystemExit("a format was never written")


if __name__ == "__main__":
    sys.exit(main())
