# SPDX-License-Identifier: Apache-2.0
"""Real outputs of every command, for tests of their schemas: small questions that need no GPU, no torch and no network."""
import json
import re
import subprocess

MLP = """[model]
kind = "mlp"
sizes = [8, 16, 16, 16, 4]
[data]
kind = "synthetic"
[training]
batch = 8
steps = 3
optimizer = "sgd"
learning_rate = 0.1
[pipeline]
stages = 2
micro_batches = 4
"""
LAYERS = """name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes
linear0,0.02,0.04,64,160,576
linear1,0.02,0.04,64,160,1088
linear2,0.02,0.04,64,160,1088
linear3,0.01,0.02,0,100,272
"""
PAIRS = """[model]
kind = "translation"
layers = 1
d_model = 32
heads = 4
source_context = 10
target_context = 10
[data]
kind = "pairs"
path = "pairs.tsv"
languages = ["de"]
[training]
batch = 8
steps = 2
translate = 3
beam = 2
[pipeline]
stages = 2
partition = [6, 4]
micro_batches = 2
channel_capacity = 2
"""
TRACE = """{"traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "h.0", "pid": 1, "tid": 1, "ts": 0, "dur": 10},
 {"ph": "X", "cat": "user_annotation", "name": "h.0 back", "pid": 1, "tid": 1, "ts": 20, "dur": 20},
 {"ph": "X", "cat": "user_annotation", "name": "h.0", "pid": 1, "tid": 1, "ts": 60, "dur": 8},
 {"ph": "X", "cat": "user_annotation", "name": "h.0 back", "pid": 1, "tid": 1, "ts": 80, "dur": 20}]}
"""
STACK_ROW = {"name": "a node", "model": "llama-3-8b", "device": "h100-sxm", "stack": "nemo-2024", "sequence": 8192,
             "training.batch": 128, "pipeline.stages": 1, "pipeline.data_parallel": 8, "pipeline.micro_batches": 16,
             "pipeline.schedule": "1f1b", "pipeline.shard": "weights", "pipeline.recompute": "none", "step_seconds": 14.5}
NUMBERS = ["--stages", "2", "--micro-batches", "4", "--forward-ms", "1", "--backward-ms", "2"]
OPEN = ["--set", "pipeline.stages=auto", "--set", "cluster.count=4"]
LLAMA = ["llama-3-8b", "--cluster", "8x-h100-sxm", "--batch-tokens", "256k", "--schedule", "1f1b"]

FILES = {
    "mlp.toml": MLP, "mlp.csv": LAYERS, "words.toml": PAIRS, "torch.trace.json": TRACE,
    "pairs.tsv": "".join(f"de\tno {number}\tNr {number}\n" for number in range(300)),
    "runs.json": json.dumps([{"name": "a run", "training.batch": 128, "step_seconds": 9.5, "peak_bytes": 60000000000}]),
    "rows.json": json.dumps([STACK_ROW]),
    "wrong.csv": "0F0,0F0,0B0\n1F0,1B0\n",
    "deadlock.csv": "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n",
    "run.sh": "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
              "--seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 "
              "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 4 --vocab-size 32000\n",
}

# (schema, words of the command line). Commands behind each other may read the files of those before.
QUESTIONS = [
    ("result-simulate", ["simulate", "--schedule", "1f1b", *NUMBERS]),
    ("result-simulate", ["simulate", "--schedule", "zb-h1", *NUMBERS, "--samples", "20", "--jitter", "0.1",
                         "--spikes", "0.01:3", "--straggler", "1:1.5", "--mtbf-hours", "1000"]),
    ("result-simulate", ["simulate", "mlp.toml", "--profile", "mlp.csv", "--out", "predicted"]),
    ("result-simulate", ["simulate", "scenarios/papers/gpipe-transformer-48.toml"]),
    ("result-simulate", ["simulate", "scenarios/offload.toml"]),
    ("result-sweep", ["sweep", "--schedule", "gpipe,1f1b", *NUMBERS]),
    ("result-sweep", ["sweep", "mlp.toml", "--profile", "mlp.csv", "--stages", "2,4", "--micro-batches", "2,4"]),
    ("result-sweep", ["simulate", "--schedule", "gpipe,1f1b", *NUMBERS, "--samples", "10", "--jitter", "0.1"]),
    ("result-sweep", ["simulate", "mlp.toml", "--profile", "mlp.csv", "--sweep", "training.batch=8,16"]),
    ("result-plan", ["plan", *LLAMA, "--out", "llama", "--tokens", "1T", "--price", "2"]),
    ("result-simulate", ["simulate", "llama/scenario.toml", "--calibrate", "runs.json"]),
    ("result-plan", ["plan", "mlp.toml", "--profile", "mlp.csv", *OPEN,
              "--set", "pipeline.recompute=auto", "--heatmap", "map.svg"]),
    ("result-plan", ["plan", "mlp.toml", "--profile", "mlp.csv", *OPEN, "--hybrid"]),
    ("result-plan", ["plan", "llama-3-8b", "--cluster", "8x-h100-sxm", "--batch-tokens", "256k", "--schedule", "gpipe",
                     "--stack", "none"]),
    ("result-sweep", ["plan", "mlp.toml", "--profile", "mlp.csv", *OPEN, "--sweep", "training.batch=8,16"]),
    ("result-plan-table", ["plan", "gpt2-124m", "--cluster", "8x-rtx-4090,8x-h100-sxm", "--nodes", "1,2", "--schedule", "1f1b",
                           "--set", "pipeline.stages=4", "--set", "pipeline.tensor_parallel=4", "--batch-tokens", "64k",
                           "--sequence", "1024", "--tokens", "1T", "--price", "1,2.5", "--until", "2027-03-31",
                           "--from", "2027-01-01"]),
    ("result-plan-largest", ["plan", "llama/scenario.toml", "--set", "pipeline.partition=auto", "--largest", "layers"]),
    ("file-profile", ["profile", "mlp.toml", "--out", "measured.profile.json"]),
    ("result-model", ["model", "mlp.toml"]),
    ("result-model", ["model", "mlp.toml", "--profile", "mlp.csv"]),
    ("result-train", ["train", "mlp.toml", "--profile", "mlp.csv", "--out", "trained"]),
    ("result-run", ["run", "mlp.toml", "--profile", "mlp.csv", "--out", "run"]),
    ("result-train", ["train", "words.toml", "--set", "output.checkpoint_every=1", "--out", "words"]),
    ("result-translate", ["translate", "words", "--text", "no 1"]),
    ("result-compare", ["compare", "run"]),
    ("result-compare", ["compare", "run/predicted.trace.json", "run/measured.trace.json"]),
    ("result-check", ["check", "predicted/schedule.csv"]),
    ("result-check", ["check", "deadlock.csv"]),
    ("result-check", ["check", "wrong.csv"]),
    ("result-exchange", ["export", "torch-csv", "predicted", "--out", "torch.csv"]),
    ("result-exchange", ["export", "json", "mlp.toml", "--profile", "mlp.csv", "--out", "plan.json"]),
    ("result-exchange", ["import", "torch-csv", "torch.csv", "--out", "imported.csv"]),
    ("result-exchange", ["import", "hf", "llama-3-8b", "--device", "h100-sxm", "--sequence", "4096", "--micro-batch-size", "1",
                  "--out", "hf.profile.json"]),
    ("result-exchange", ["import", "megatron", "run.sh", "--model", "llama-3-8b", "--device", "h100-sxm",
                         "--out", "megatron.toml"]),
    ("result-exchange", ["import", "auto", "train.log", "--device", "h100-sxm", "--out", "logged.toml"]),
    ("result-calibrate-rows", ["calibrate", "rows.json", "--out", "stack.toml"]),
    ("result-calibrate-trace", ["calibrate", "torch.trace.json", "--forward", "block=h.{micro_batch}",
                                "--backward", "block=h.* back", "--micro-batch-size", "2", "--out", "points.json"]),
    ("result-devices", ["devices"]),
    ("result-demo", ["demo", "--to", "1", "--out", "tour"]),
    ("result-demo", ["demo", "--list", "--out", "tour"]),
    ("result-completion", ["completion", "bash"]),
    ("result-completion", ["completion", "man", "--out", "man1"]),
    ("result-version", ["--version"]),
]


def documents(program, folder, source):
    """Runs every command in an empty folder; returns [(schema, what, document)]: results, and files that they wrote."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    page = (source / "docs/cookbook.md").read_text()
    (folder / "train.log").write_text(re.search(r"cat > train.log <<'END'\n(.*?)END\n", page, re.S)[1])
    for name in ("scenarios", "profiles"):
        (folder / name).symlink_to(source / name)
    found = []
    for schema, words in QUESTIONS:
        done = subprocess.run([program, *words, "--json"], cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 4), (words, done.returncode, done.stderr)
        found.append((schema, " ".join(words), json.loads(done.stdout)))
    kinds = {"profile.json": "file-profile", "plan.json": "file-plan", "trace.json": "file-trace", "report.json": "result-run"}
    for file in sorted(folder.glob("*.json")) + sorted(folder.glob("*/*.json")):
        kind = next((kind for ending, kind in kinds.items() if file.name.endswith(ending)), None)
        if kind is None or file.name == "torch.trace.json" or file.parent.is_symlink():
            continue
        content = json.loads(file.read_text())
        found.append((kind, str(file.relative_to(folder)), content["pipetwin"] if kind == "file-trace" else content))
    for file in sorted((source / "profiles").rglob("*.profile.json")):
        found.append(("file-profile", file.name, json.loads(file.read_text())))
    for file in sorted(folder.glob("*/metrics.jsonl")):
        found.extend(("file-step", str(file), json.loads(line)) for line in file.read_text().splitlines())
    return found
