// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/readers/readers.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "core/interop/safetensors.h"
#include "tests/support/hf_texts.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view schedule = "0F0,0F1,0B1,0B0\r\n1F0,1F1,1B1,1B0\r\n";

constexpr std::string_view graph =
    "node1 -- Conv2d(3, 4) -- forward_compute_time=1.5, backward_compute_time=2.5, "
    "activation_size=3.0, parameter_size=4.0\n"
    "node2 -- ReLU -- forward_compute_time=1.5, backward_compute_time=2.5, activation_size=3.0, "
    "parameter_size=4.0\n"
    "\tnode1 -- node2\n";

constexpr std::string_view torch_trace = R"({"distributedInfo": {"rank": 0, "world_size": 1},
"traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "pid": 1, "tid": 1, "ts": 1.5, "dur": 3000.5},
{"ph": "X", "cat": "user_annotation", "name": "PP:0B0", "pid": 1, "tid": 1, "ts": 4000.5, "dur": 6000.5}
]})";

constexpr std::string_view otlp =
    R"({"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [)"
    R"({"name": "megatron.microbatch.forward", "startTimeUnixNano": "5000", )"
    R"("endTimeUnixNano": "9000"}, {"name": "megatron.microbatch.backward", )"
    R"("startTimeUnixNano": "9000", "endTimeUnixNano": "15000"}]}]}]})";

constexpr std::string_view megatron =
    "--pipeline-model-parallel-size 2 --num-layers 4 "
    "--hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32 --micro-batch-size 1 "
    "--global-batch-size 8 --lr 1.5e-4 --clip-grad 1.5\n";

constexpr std::string_view primus = R"(work_group: a
modules:
  pre_trainer:
    framework: megatron
    overrides:
      num_layers: 4
      hidden_size: 64
      num_attention_heads: 4
      seq_length: 32
      max_position_embeddings: 32
      vocab_size: 1000
      pipeline_model_parallel_size: 2
      micro_batch_size: 1
      global_batch_size: 8
      lr: 1.5e-4
)";

constexpr std::string_view torchtitan = R"([model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 2048
[optimizer]
lr = 1.5e-4
[parallelism]
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1F1B"
)";

constexpr std::string_view titan_log =
    "[rank0]:[titan] 10:00 - INFO - Running with args: {'model': {'name': 'llama3', 'flavor': "
    "'8B'}, 'training': {'local_batch_size': 8, 'seq_len': 2048, 'dataset_path': None}, "
    "'optimizer': {'lr': 1.5e-04}, 'profiling': {'profile_freq': 10}}\n"
    "step:  1  loss: 12.2  memory: 40.50GiB(50.5%)  tps: 400  tflops: 20.0  mfu: 2.0%\n"
    "step: 10  loss:  9.9  memory: 41.00GiB(51.7%)  tps: 4,096  tflops: 205.0  mfu: 20.7%\n";

constexpr std::string_view maxtext =
    "model_name: llama3-8b\nper_device_batch_size: 2.0\nici_fsdp_parallelism: 8\n"
    "dcn_data_parallelism: 1\ngradient_accumulation_steps: 2\nlearning_rate: 3.e-5\n";

constexpr std::string_view swift =
    R"({"model": "Qwen/Qwen3-8B", "tuner_type": "full", "tensor_model_parallel_size": 2,
"micro_batch_size": 1, "global_batch_size": 16, "seq_length": 2048, "lr": 1.5e-5})";

constexpr std::string_view deepspeed = R"({"train_batch_size": 8,
"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.5,
"optimizer": {"type": "AdamW", "params": {"lr": 1.5e-4}}})";

constexpr std::string_view calibration = R"({"schema_version": 1,
"points": [{"kind": "attention", "micro_batch_size": 1, "forward_ns": 1500000, "backward_ns": 3500000}]})";

constexpr std::string_view cluster =
    "[cluster]\ncount = 2\nlink_gbps = 8.5\nlink_latency_us = 1.5\n";

constexpr std::string_view with_costs = R"([model]
kind = "profile"
file = "costs.csv"
[training]
batch = 8
learning_rate = 0.15
[pipeline]
stages = 2
micro_batches = 4
[cluster]
profile = "cluster.toml"
)";

/// A scenario that trains on a file.
std::string trained_on(std::string_view kind, std::string_view file) {
    return "[model]\nkind = \"gpt\"\nlayers = 2\nd_model = 8\nheads = 2\ncontext = 4\n"
           "vocabulary = 256\n[data]\nkind = \"" +
           std::string(kind) + "\"\npath = \"" + std::string(file) +
           "\"\n[training]\nbatch = 4\nsteps = 2\nlearning_rate = 0.05\n"
           "[pipeline]\nstages = 2\nmicro_batches = 2\npartition = [1, 1]\n";
}

std::string trained_on_images() {
    return "[model]\nkind = \"mlp\"\nsizes = [4, 8, 2]\n[data]\nkind = \"mnist\"\npath = "
           "\"images\"\n"
           "[training]\nbatch = 2\nsteps = 2\nlearning_rate = 0.05\n"
           "[pipeline]\nstages = 2\nmicro_batches = 2\n";
}

constexpr std::string_view trained_on_pairs =
    "[model]\nkind = \"translation\"\nlayers = 1\nd_model = 8\nheads = 2\n"
    "source_context = 24\ntarget_context = 24\n[data]\nkind = \"pairs\"\npath = "
    "\"pairs.tsv\"\nlanguages = [\"de\"]\n[training]\nbatch = 2\nsteps = 2\n"
    "[pipeline]\nmicro_batches = 2\n";

/// Two images of 2 x 2 pixels, and their labels.
constexpr std::string_view images("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2\1\2\3\4\5\6\7\x08", 24);
constexpr std::string_view labels("\0\0\x08\x01\0\0\0\2\0\1", 10);

}  // namespace

void Readers::make_weights() const {
    SafetensorsHeader header;
    nlohmann::json map;
    for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
             {"wte.weight", {100, 16}},
             {"wpe.weight", {32, 16}},
             {"h.0.ln_1.weight", {16}},
             {"h.0.ln_1.bias", {16}},
             {"h.0.attn.c_attn.weight", {16, 48}},
             {"h.0.attn.c_attn.bias", {48}},
             {"h.0.attn.c_proj.weight", {16, 16}},
             {"h.0.attn.c_proj.bias", {16}},
             {"h.0.ln_2.weight", {16}},
             {"h.0.ln_2.bias", {16}},
             {"h.0.mlp.c_fc.weight", {16, 64}},
             {"h.0.mlp.c_fc.bias", {64}},
             {"h.0.mlp.c_proj.weight", {64, 16}},
             {"h.0.mlp.c_proj.bias", {16}},
             {"ln_f.weight", {16}},
             {"ln_f.bias", {16}}}) {
        header.tensors.push_back({.name = name, .dtype = "BF16", .shape = shape});
        map[name] = "model.safetensors";
    }
    place_tensors(header);
    file("model.safetensors",
         print_safetensors_header(header) +
             std::string(static_cast<std::size_t>(header.tensors.back().end), '\0'));
    file("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
    file("config.json", testing::with(testing::small_gpt2(), {{"n_layer", 1}}).dump());
}

void Readers::make_run() const {
    ASSERT_EQ(pipetwin({"train",
                        path("small.toml"),
                        "--profile",
                        path("costs.csv"),
                        "--out",
                        path("trained"),
                        "--set",
                        "training.steps=4",
                        "--set",
                        "output.checkpoint_every=2"})
                  .code,
              0);
    ASSERT_EQ(pipetwin({"simulate",
                        path("small.toml"),
                        "--profile",
                        path("costs.csv"),
                        "--out",
                        path("simulated")})
                  .code,
              0);
}

void Readers::SetUp() {
    file("small.toml", small_scenario);
    file("costs.csv", small_profile);
    file("cluster.toml", cluster);
    file("with_costs.toml", with_costs);
    file("schedule.csv", schedule);
    file("graph.txt", graph);
    file("torch.json", torch_trace);
    file("spans.jsonl", otlp);
    file("megatron.sh", megatron);
    file("primus.yaml", primus);
    file("layout.txt", "Et*3|(tt|)*2,t|tL");
    file("titan.toml", torchtitan);
    file("titan.log", titan_log);
    file("maxtext.yml", maxtext);
    file("args.json", swift);
    file("deepspeed.json", deepspeed);
    file("points.json", calibration);
    file("runs.json", R"({"name": "mine", "step_seconds": 0.0015})");
    file("text.txt", "It is a truth universally acknowledged, that a single man ...");
    file("tokens.bin", std::string("\1\0\2\0\3\0\4\0\5\0\6\0\7\0", 14) + std::string(60, '\0'));
    file("text.toml", trained_on("text", "text.txt"));
    file("tokens.toml", trained_on("tokens", "tokens.bin"));
    file("images.toml", trained_on_images());
    file("pairs.toml", trained_on_pairs);
    file("pairs.tsv", "de\tFile not found\tDatei fehlt\nde\tOpen a file\tDatei öffnen\n");
    std::filesystem::create_directory(folder() / "images");
    file("images/train-images-idx3-ubyte", images);
    file("images/train-labels-idx1-ubyte", labels);
    make_weights();
    ASSERT_EQ(
        pipetwin({"import", "csv", path("costs.csv"), "--out", path("costs.profile.json")}).code,
        0);
    ASSERT_NO_FATAL_FAILURE(make_run());
}

std::vector<Reader> Readers::of_simulations() const {
    const std::string scenario = path("small.toml");
    return {
        {"a scenario", "small.toml", {"simulate", scenario, "--profile", path("costs.csv")}},
        {"costs as CSV", "costs.csv", {"simulate", scenario, "--profile", path("costs.csv")}},
        {"costs as JSON",
         "costs.profile.json",
         {"simulate", scenario, "--profile", path("costs.profile.json"), "--json"}},
        {"costs that a scenario names", "costs.csv", {"plan", path("with_costs.toml")}},
        {"a cluster that a scenario names", "cluster.toml", {"simulate", path("with_costs.toml")}},
        {"measured runs",
         "runs.json",
         {"simulate", path("with_costs.toml"), "--calibrate", path("runs.json"), "--json"}},
        {"a schedule", "schedule.csv", {"check", path("schedule.csv")}},
        {"a schedule with plain numbers",
         "schedule.csv",
         {"simulate",
          "--schedule-file",
          path("schedule.csv"),
          "--forward-ms",
          "1.5",
          "--backward-ms",
          "2.5"}},
        {"the plan of a run folder",
         "simulated/plan.json",
         {"export", "json", path("simulated"), "--out", path("out")}},
        {"the schedule of a run folder",
         "simulated/schedule.csv",
         {"export", "torch-csv", path("simulated"), "--out", path("out")}},
        {"a trace",
         "simulated/predicted.trace.json",
         {"compare",
          path("simulated/predicted.trace.json"),
          path("simulated/predicted.trace.json")}},
        {"the trace of a run folder", "trained/measured.trace.json", {"compare", path("trained")}},
    };
}

std::vector<Reader> Readers::of_imports() const {
    const auto import = [this](const std::string& format,
                               const std::string& name,
                               const std::vector<std::string>& more = {}) {
        return joined({"import", format, path(name), "--out", path("out.profile.json")}, more);
    };
    const std::vector<std::string> size{"--micro-batch-size", "4"};
    const std::vector<std::string> hf{
        "--device", "h100-sxm", "--sequence", "32", "--micro-batch-size", "1"};
    return {
        {"a schedule to import", "schedule.csv", import("torch-csv", "schedule.csv")},
        {"a table of costs", "costs.csv", import("csv", "costs.csv")},
        {"a config.json", "config.json", import("hf", "config.json", hf)},
        {"weights",
         "model.safetensors",
         joined(import("hf", "config.json", hf), {"--weights", path("model.safetensors")})},
        {"an index of weights",
         "model.safetensors.index.json",
         joined(import("hf", "config.json", hf),
                {"--weights", path("model.safetensors.index.json")})},
        {"weights that an index names",
         "model.safetensors",
         joined(import("hf", "config.json", hf),
                {"--weights", path("model.safetensors.index.json")})},
        {"measured layers",
         "points.json",
         joined(import("hf", "config.json", hf), {"--calibrate", path("points.json")})},
        {"Megatron's flags", "megatron.sh", import("megatron", "megatron.sh")},
        {"Megatron's flags as YAML", "primus.yaml", import("megatron", "primus.yaml")},
        {"Megatron's layout", "layout.txt", import("megatron", "layout.txt")},
        {"torchtitan's TOML", "titan.toml", import("torchtitan", "titan.toml")},
        {"torchtitan's log", "titan.log", import("torchtitan", "titan.log")},
        {"MaxText's YAML", "maxtext.yml", import("maxtext", "maxtext.yml")},
        {"ms-swift's arguments", "args.json", import("swift", "args.json")},
        {"DeepSpeed's JSON", "deepspeed.json", import("deepspeed", "deepspeed.json")},
        {"PipeDream's graph", "graph.txt", import("pipedream", "graph.txt", size)},
        {"a trace of PyTorch's profiler", "torch.json", import("torch-trace", "torch.json", size)},
        {"spans of OpenTelemetry", "spans.jsonl", import("otlp", "spans.jsonl", size)},
        {"an export of nsys", "torch.json", import("nsys", "torch.json", size), {3, 5, 6}},
        {"a trace of ours",
         "simulated/predicted.trace.json",
         import("chrome-trace", "simulated/predicted.trace.json", size)},
        {"a trace to calibrate by",
         "torch.json",
         {"calibrate",
          path("torch.json"),
          "--forward",
          "block=PP:0F*",
          "--backward",
          "block=PP:0B*",
          "--micro-batch-size",
          "1",
          "--out",
          path("out")}},
    };
}

std::vector<Reader> Readers::of_trainings() const {
    const auto train = [this](const std::string& scenario) -> std::vector<std::string> {
        return {"train", path(scenario), "--out", path("out")};
    };
    const std::vector<std::string> resume{"train",
                                          path("small.toml"),
                                          "--profile",
                                          path("costs.csv"),
                                          "--out",
                                          path("trained"),
                                          "--resume",
                                          "--set",
                                          "training.steps=4",
                                          "--set",
                                          "output.checkpoint_every=2"};
    return {
        {"a text to train on", "text.txt", train("text.toml")},
        {"tokens to train on", "tokens.bin", train("tokens.toml")},
        {"pairs to train on", "pairs.tsv", train("pairs.toml")},
        {"images to train on", "images/train-images-idx3-ubyte", train("images.toml")},
        {"labels to train on", "images/train-labels-idx1-ubyte", train("images.toml")},
        {"the manifest of a checkpoint",
         "trained/checkpoints/step-00000002/checkpoint.json",
         resume},
        {"the weights of a checkpoint",
         "trained/checkpoints/step-00000002/000.weights.safetensors",
         resume},
        // A missing file, or one without a line, is one that begins.
        {"the metrics of a run to go on", "trained/metrics.jsonl", resume, {0, 3, 6}},
    };
}

std::vector<Reader> Readers::readers() const {
    std::vector<Reader> all = of_simulations();
    std::ranges::move(of_imports(), std::back_inserter(all));
    std::ranges::move(of_trainings(), std::back_inserter(all));
    return all;
}

Outcome Readers::run(const Reader& reader) const {
    for (const char* const name : {"out", "out.profile.json"}) {
        std::filesystem::remove_all(folder() / name);
    }
    // What a training that went on has left.
    std::filesystem::remove_all(folder() / "trained/checkpoints/step-00000004");
    return pipetwin(reader.args);
}

std::string Readers::written(const Reader& reader) const {
    const auto out = std::ranges::find(reader.args, "--out");
    if (out == reader.args.end() || !std::filesystem::is_regular_file(*(out + 1))) {
        return {};
    }
    return content_of(*(out + 1));
}

}  // namespace pipetwin::cli
