// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "cli/commands/commands.h"
#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "tests/cli/support.h"

/// Mistakes of people who come from other programs, or paste from documents. Each is refused with
/// one hint, and the command that the hint leads to is tried: it can be read, and `simulate` and
/// `check` carry it out.
namespace pipetwin::cli {
namespace hints_test {

using ::testing::HasSubstr;

/// A command line and the one that its hint leads to. "{}" is the folder of the test, "~" a blank
/// in a word, "$sim", "$plan", "$plain" and "$times" are the beginnings that many of them share.
struct Mistake {
    std::string_view words;
    std::string_view mended;
    std::string_view hint{};  ///< part of it; empty: the words that `mended` has and `words` lacks
    bool runs = true;         ///< false: what is mended leads to the next mistake
};

constexpr auto mistakes = std::to_array<Mistake>({
    {"simulate --stages 2 4 --micro-batches 8 $times",
     "simulate --stages 2,4 --micro-batches 8 $times"},
    {"simulate --schedule gpipe 1f1b --stages 4 --micro-batches 8 $times",
     "simulate --schedule gpipe,1f1b --stages 4 --micro-batches 8 $times"},
    {"sweep {}/s.toml --schedule gpipe 1f1b", "sweep {}/s.toml --schedule gpipe,1f1b"},
    {"simulate --schedule gpipe {}/s.toml --profile {}/costs.profile.json",
     "$sim --set pipeline.schedule=gpipe"},
    {"$sim --pp 3", "$sim --set pipeline.stages=3 --set cluster.count=3"},
    {"$sim --pp 2", "$sim --set pipeline.stages=2"},
    {"$sim --pipeline-model-parallel-size 2", "$sim --set pipeline.stages=2"},
    {"$sim --pipeline_parallel_degree=2", "$sim --set pipeline.stages=2"},
    {"$sim --parallelism.pipeline_parallel_degree 2", "$sim --set pipeline.stages=2"},
    {"$sim --tp 1", "$sim --set pipeline.tensor_parallel=1"},
    {"$sim --tensor-model-parallel-size 1", "$sim --set pipeline.tensor_parallel=1"},
    {"$sim --dp 2", "$sim --set pipeline.data_parallel=2 --set cluster.count=4"},
    {"$sim --mbs 2", "$sim --set pipeline.micro_batches=4"},
    {"$sim --micro-batch-size 4", "$sim --set pipeline.micro_batches=2"},
    {"$sim --gbs 16", "$sim --set training.batch=16"},
    {"$sim --global-batch-size 16", "$sim --set training.batch=16"},
    {"$sim --train_batch_size 16", "$sim --set training.batch=16"},
    {"$sim --gradient-accumulation-steps 8", "$sim --set pipeline.micro_batches=8"},
    {"$sim --num-microbatches 8", "$sim --set pipeline.micro_batches=8"},
    {"$sim --zero-stage 1", "$sim --set pipeline.shard=optimizer"},
    {"$sim --fsdp", "$sim --set pipeline.shard=weights"},
    {"$sim --use-distributed-optimizer", "$sim --set pipeline.shard=optimizer"},
    {"$sim --dtype bfloat16", "$sim --set training.precision=bf16"},
    {"$sim --bf16", "$sim --set training.precision=bf16"},
    {"$sim --pipeline-parallel-schedule GPipe", "$sim --set pipeline.schedule=GPipe"},
    {"$sim --world-size 4", "$sim --set cluster.count=4"},
    {"$sim --gpus 4", "$sim --set cluster.count=4"},
    {"plan llama-3-70b --devices h100-sxm", "plan llama-3-70b --cluster 8x-h100-sxm"},
    {"plan llama-3-70b --gpus 64",
     "plan llama-3-70b --cluster 8x-h100-sxm --nodes 8",
     "did you mean '--nodes'? 8 nodes of --cluster 8x-h100-sxm have 64 GPUs"},
    {"$sim --memory-limit 16GiB", "$sim --set cluster.memory_limit=16GiB"},
    {"$sim --stages 2", "$sim --set pipeline.stages=2"},
    {"$sim --schedule zero-bubble", "$sim --set pipeline.schedule=zb-h1"},
    {"$sim --micro-batches 8", "$sim --set pipeline.micro_batches=8"},
    {"$sim --context-parallel-size 1", "$sim --set pipeline.context_parallel=1"},
    {"$sim --expert-parallel 1", "$sim --set pipeline.expert_parallel=1"},
    {"$sim --expert-tensor-parallel-size 1", "$sim --set pipeline.expert_tensor_parallel=1"},
    {"$sim -o {}/out", "$sim --out {}/out"},
    {"$sim -s pipeline.stages=2", "$sim --set pipeline.stages=2"},
    {"$sim --output {}/out", "$sim --out {}/out"},
    {"$sim --output-dir {}/out", "$sim --out {}/out"},
    {"$sim --silent", "$sim --quiet"},
    {"$sim --debug", "$sim --verbose"},
    {"$sim --no-color", "$sim --color never"},
    {"$sim --overwrite", "$sim --force"},
    {"$sim --Json", "$sim --json"},
    {"simulate {}/s.toml –profile {}/costs.profile.json", "$sim"},
    {"simulate {}/s.toml —profile {}/costs.profile.json", "$sim"},
    {"$sim −−json", "$sim --json"},
    {"$sim --set pipeline.schedule=“gpipe”", "$sim --set pipeline.schedule=gpipe"},
    {"$sim --set ‘pipeline.stages=2’", "$sim --set pipeline.stages=2"},
    {"$sim --set pipeline.stages＝2", "$sim --set pipeline.stages=2"},
    {"$sim --set pipeline.stages 2", "$sim --set pipeline.stages=2"},
    {"$sim --set stages 2", "$sim --set pipeline.stages=2"},
    {"$sim --set pipeline.stages = 2", "$sim --set pipeline.stages=2"},
    {"$sim --set pipeline.stages= 2", "$sim --set pipeline.stages=2"},
    {"$sim --set pipeline.stages:2", "$sim --set pipeline.stages=2"},
    {"$sim --set pp=2", "$sim --set pipeline.stages=2"},
    {"$sim --set stages=2", "$sim --set pipeline.stages=2"},
    {"$sim --set a b",
     "$sim --set pipeline.stages=4 --set cluster.count=4",
     "--set pipeline.stages=4",
     false},
    {"$sim --set pipeline.stagess=2", "$sim --set pipeline.stages=2", "did you mean 'stages'?"},
    {"$sim --set pipelin.stages=2", "$sim --set pipeline.stages=2", "did you mean 'pipeline'?"},
    {"$sim --set pipeline.schedule=1fb1", "$sim --set pipeline.schedule=1f1b"},
    {"$sim --set pipeline.schedule=interleaved --set pipeline.chunks=1",
     "$sim --set pipeline.schedule=interleaved-1f1b --set pipeline.chunks=1"},
    {"$sim --set training.precision=float16", "$sim --set training.precision=bf16"},
    {"$sim --set training.batch=1e3", "$sim --set training.batch=1000", "", false},
    {"$sim --set training.batch=0", "$sim --set training.batch=1"},
    {"$sim --set cluster.backend=nccl", "$sim --set cluster.backend=cuda", "", false},
    {"$sim --set cluster.device=h100", "$sim --set cluster.device=h100-sxm"},
    {"$sim --set pipeline.recompute=full",
     "$sim --set pipeline.recompute=always",
     "did you mean '"},
    {"predict {}/s.toml --profile {}/costs.profile.json", "$sim"},
    {"sim {}/s.toml --profile {}/costs.profile.json", "$sim"},
    {"simulte {}/s.toml --profile {}/costs.profile.json", "$sim"},
    {"estimate {}/s.toml --profile {}/costs.profile.json", "$sim"},
    {"tune {}/s.toml --profile {}/costs.profile.json",
     "plan {}/s.toml --profile {}/costs.profile.json"},
    {"search {}/s.toml --profile {}/costs.profile.json",
     "plan {}/s.toml --profile {}/costs.profile.json"},
    {"optimize {}/s.toml --profile {}/costs.profile.json",
     "plan {}/s.toml --profile {}/costs.profile.json"},
    {"autotune {}/s.toml --profile {}/costs.profile.json",
     "plan {}/s.toml --profile {}/costs.profile.json"},
    {"validate {}/sched.csv", "check {}/sched.csv"},
    {"verify {}/sched.csv", "check {}/sched.csv"},
    {"lint {}/sched.csv", "check {}/sched.csv"},
    {"benchmark {}/s.toml", "profile {}/s.toml"},
    {"measure {}/s.toml", "profile {}/s.toml"},
    {"fit {}/s.toml", "train {}/s.toml"},
    {"pretrain {}/s.toml", "train {}/s.toml"},
    {"torchrun {}/s.toml --ranks 2", "launch {}/s.toml --ranks 2"},
    {"mpirun {}/s.toml --ranks 2", "launch {}/s.toml --ranks 2"},
    {"diff a b", "compare a b"},
    {"visualize {}/sched.csv", "view {}/sched.csv"},
    {"gui", "view"},
    {"convert hf x --out y", "import hf x --out y"},
    {"list", "devices"},
    {"clusters", "devices"},
    {"models", "devices"},
    {"tutorial", "demo"},
    {"pipetwin $sim", "$sim", "leave it out"},
    {"--json $sim", "$sim --json"},
    {"--quiet $sim", "$sim --quiet"},
    {"-v", "--version"},
    {"exp torch-csv {}/s.toml --out {}/x.csv", "export torch-csv {}/s.toml --out {}/x.csv"},
    {"simulat {}/s.toml", "simulate {}/s.toml", "", false},
    {"$plan --pp 4", "$plan --set pipeline.stages=4"},
    {"$plan --tp 8", "$plan --set pipeline.tensor_parallel=8"},
    {"$plan --mbs 1", "$plan", "leave it out"},
    {"$plan --gbs 512", "$plan --batch-tokens 2097152"},
    {"$plan --sequence 8192 --gbs 512", "$plan --sequence 8192 --batch-tokens 4194304"},
    {"$plan --seq-length 8192", "$plan --sequence 8192"},
    {"$plan --seq_len 8192", "$plan --sequence 8192"},
    {"$plan --max-seq-len 8192", "$plan --sequence 8192"},
    {"$plan --gpus 64", "$plan --nodes 8"},
    {"$plan --num-gpus 16", "$plan --nodes 2"},
    {"$plan --nnodes 4", "$plan --nodes 4"},
    {"$plan --bf16", "$plan --precision bf16"},
    {"$plan --dtype fp8", "$plan --precision fp8"},
    {"$plan --fp8", "$plan --precision fp8"},
    {"$plan --zero 3", "$plan --set pipeline.shard=weights"},
    {"$plan --recompute full", "$plan --set pipeline.recompute=block"},
    {"$plan --ep 8", "$plan --set pipeline.expert_parallel=8"},
    {"$plan --cp 2", "$plan --set pipeline.context_parallel=2"},
    {"$plan --vpp 2", "$plan --set pipeline.chunks=2"},
    {"$plan --schedules 1f1b", "$plan --schedule 1f1b"},
    {"$plan --schedule zero-bubble", "$plan --schedule zb-h1"},
    {"$plan --schedule vpp", "$plan --schedule interleaved-1f1b"},
    {"plan llama-3-8b --gpu 8x-h100-sxm", "$plan"},
    {"plan llama-3-8b –cluster 8x-h100-sxm", "$plan"},
    {"plan llama-3-8b --cluster h100", "$plan"},
    {"plan llama3-8b --cluster 8x-h100-sxm", "$plan"},
    {"plan -", "plan scenario.toml"},
    {"plan - --cluster 8x-h100-sxm", "plan scenario.toml --cluster 8x-h100-sxm"},
    {"$plan --nodes 2 nodes", "$plan --nodes 2", "leave it out"},
    {"simulate --stages 4 --microbatches 8 $times", "$plain $times"},
    {"simulate --stages 4 --micro_batches 8 $times", "$plain $times"},
    {"simulate --pp 4 --micro-batches 8 $times", "$plain $times"},
    {"$plain --fwd-ms 1 --backward-ms 2", "$plain $times", "", false},
    {"$plain --forward 1 --backward-ms 2", "$plain $times"},
    {"$plain --forward-us 1000 --backward-ms 2", "$plain $times"},
    {"$plain $times --latency-us 5", "$plain $times --latency-ms 0.005"},
    {"$plain --forward-ms 1ms --backward-ms 2", "$plain $times"},
    {"$plain --forward-ms 500us --backward-ms 2", "$plain --forward-ms 0.5 --backward-ms 2"},
    {"$plain --forward-ms 0,5 --backward-ms 2", "$plain --forward-ms 0.5 --backward-ms 2"},
    {"$plain --forward-ms 1~2~1~1 --backward-ms 2", "$plain --forward-ms 1,2,1,1 --backward-ms 2"},
    {"$plain --forward-ms [1,2,1,1] --backward-ms 2",
     "$plain --forward-ms 1,2,1,1 --backward-ms 2"},
    {"$plain --forward-ms 1;2;1;1 --backward-ms 2", "$plain --forward-ms 1,2,1,1 --backward-ms 2"},
    {"simulate --stages 4.0 --micro-batches 8 $times", "$plain $times"},
    {"simulate --stages 4 --micro-batches 1e2 $times",
     "simulate --stages 4 --micro-batches 100 $times"},
    {"simulate --stages 4 --micro-batches 1,024 $times",
     "simulate --stages 4 --micro-batches 1024 $times"},
    {"simulate --stages 2~4 --micro-batches 8 $times",
     "simulate --stages 2,4 --micro-batches 8 $times"},
    {"simulate --schedule zb --stages 4 --micro-batches 8 $times",
     "simulate --schedule zb-h1 --stages 4 --micro-batches 8 $times"},
    {"simulate --schedule zbv --stages 4 --micro-batches 8 $times",
     "simulate --schedule zb-v --stages 4 --micro-batches 8 $times"},
    {"simulate --schedule interleaved --stages 4 --micro-batches 8 $times",
     "simulate --schedule interleaved-1f1b --stages 4 --micro-batches 8 $times"},
    {"simulate --schedule dapple --stages 4 --micro-batches 8 $times",
     "simulate --schedule 1f1b --stages 4 --micro-batches 8 $times"},
    {"simulate --schedule afab --stages 4 --micro-batches 8 $times",
     "simulate --schedule gpipe --stages 4 --micro-batches 8 $times"},
    {"simulate --schedule zerobubble --stages 4 --micro-batches 8 $times",
     "simulate --schedule zb-h1 --stages 4 --micro-batches 8 $times"},
    {"simulate --schedule gpip --stages 4 --micro-batches 8 $times",
     "simulate --schedule gpipe --stages 4 --micro-batches 8 $times"},
    {"$plain $times --bandwidth-gbps 400Gbps --boundary-bytes 8MB",
     "$plain $times --bandwidth-gbps 400 --boundary-bytes 8MB"},
    {"$plain $times --bandwidth-gbps 50GB/s --boundary-bytes 8MB",
     "$plain $times --bandwidth-gbps 400 --boundary-bytes 8MB"},
    {"$plain $times --bandwidth 400 --boundary-bytes 8MB",
     "$plain $times --bandwidth-gbps 400 --boundary-bytes 8MB"},
    {"$plain $times --jitter 5%", "$plain $times --jitter 0.05"},
    {"$plain $times --recompute full", "$plain $times --recompute always"},
    {"simulate --stages 2,4 --micro-batches 8 $times --csv {}/x.xlsx",
     "simulate --stages 2,4 --micro-batches 8 $times --csv {}/x.csv"},
    {"$plain --rank-forward-ms 1 --backward-ms 2",
     "$plain --rank-forward-ms 1 --rank-backward-ms 2"},
    {"simulate --schedule zb-v --chunks 3 --stages 4 --micro-batches 8 $times",
     "simulate --schedule zb-v --chunks 2 --stages 4 --micro-batches 8 $times"},
    {"$plain $times --seed -1", "$plain $times --seed 1"},
    {"$plain $times --color=yes", "$plain $times --color auto"},
    {"$plain $times --mbs 1", "$plain $times", "leave it out"},
    {"check /dev/stdin", "check schedule.csv"},
    {"check -", "check schedule.csv"},
    {"simulate -", "simulate scenario.toml"},
    {"model llama-3-8b", "$plan"},
    {"check {}/sched.csv --pp 2", "check {}/sched.csv", "leave it out"},
    {"export pytorch {}/s.toml --out {}/p.csv", "export torch-csv {}/s.toml --out {}/p.csv"},
    {"export perfetto {}/s.toml --out {}/t.json", "export chrome-trace {}/s.toml --out {}/t.json"},
    {"export png {}/s.toml --out {}/p.svg", "export svg {}/s.toml --out {}/p.svg"},
    {"export svg {}/s.toml --out {}/p.png", "export svg {}/s.toml --out {}/p.svg"},
    {"export huggingface {} --out x", "export hf {} --out x"},
    {"export {}/s.toml torch-csv --out {}/p.csv",
     "export torch-csv {}/s.toml --out {}/p.csv",
     "export torch-csv"},
    {"export torch-csv {}/s.toml {}/p.csv", "export torch-csv {}/s.toml --out {}/p.csv"},
    {"import megatron-lm run.sh --out x", "import megatron run.sh --out x"},
    {"import huggingface llama-3-8b --out x", "import hf llama-3-8b --out x"},
    {"import titan t.toml --out x", "import torchtitan t.toml --out x"},
    {"import nsight t.sqlite --out x", "import nsys t.sqlite --out x"},
    {"import hf llama-3-8b --seq-len 4096 --out x", "import hf llama-3-8b --sequence 4096 --out x"},
    {"import hf llama-3-8b --mbs 1 --out x", "import hf llama-3-8b --micro-batch-size 1 --out x"},
    {"run {}/s.toml --steps 3", "run {}/s.toml --set training.steps=3"},
    {"run {}/s.toml --epochs 3", "run {}/s.toml --set training.steps=100"},
    {"run {}/s.toml --lr 1e-3", "run {}/s.toml --set training.learning_rate=1e-3"},
    {"run {}/s.toml --batch-size 16", "run {}/s.toml --set training.batch=16"},
    {"run {}/s.toml --device cuda", "run {}/s.toml --set cluster.backend=cuda"},
    {"run {}/s.toml --cuda", "run {}/s.toml --set cluster.backend=cuda"},
    {"run {}/s.toml --backend nccl", "run {}/s.toml --set cluster.backend=cuda"},
    {"run {}/s.toml --save-interval 10", "run {}/s.toml --set output.checkpoint_every=10"},
    {"run {}/s.toml --checkpoint 10", "run {}/s.toml --set output.checkpoint_every=10"},
    {"run {}/s.toml --resume {}/old", "run {}/s.toml --resume --out {}/old"},
    {"run {}/s.toml --resume-from {}/old", "run {}/s.toml --resume --out {}/old"},
    {"run {}/s.toml --load {}/old", "run {}/s.toml --resume --out {}/old"},
    {"launch {}/s.toml --nproc-per-node 2", "launch {}/s.toml --ranks 2"},
    {"launch {}/s.toml -np 2", "launch {}/s.toml --ranks 2"},
    {"launch {}/s.toml 2", "launch {}/s.toml --ranks 2"},
    {"demo 3", "demo --from 3"},
    {"devices --measure --matrix 8k", "devices --measure --matrix 8192"},
});

/// Costs of micro-batches of 1 to 64 samples.
std::string costs() {
    std::string layers;
    for (const auto* const layer : {R"("linear0", "kind": "linear", "parameter_bytes": 576)",
                                    R"("linear1", "kind": "linear", "parameter_bytes": 1088)",
                                    R"("linear2", "kind": "linear", "parameter_bytes": 272)"}) {
        std::string samples;
        for (const char* const size : {"1", "4", "64"}) {
            samples += std::string(samples.empty() ? "" : ", ") + R"({"micro_batch_size": )" +
                       size + R"(, "forward_ns": 1000, "backward_input_ns": 1000, )" +
                       R"("backward_weight_ns": 1000, "output_bytes": 128, "saved_bytes": 128})";
        }
        layers += std::string(layers.empty() ? "" : ", ") + R"({"name": )" + layer +
                  R"(, "samples": [)" + samples + "]}";
    }
    return R"({"schema_version": 1, "source": "measured", "layers": [)" + layers + "]}";
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size())) {
        text.replace(at, what.size(), by);
    }
    return text;
}

class Hints : public InFolder {
  protected:
    Hints() {
        file("s.toml", three_layers);
        file("costs.profile.json", costs());
        file("sched.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    }

    std::vector<std::string> words_of(std::string_view line) const {
        std::string text = replaced(
            std::string(line), "$sim", "simulate {}/s.toml --profile {}/costs.profile.json");
        text = replaced(text, "$plan", "plan llama-3-8b --cluster 8x-h100-sxm");
        text = replaced(text, "$plain", "simulate --stages 4 --micro-batches 8");
        text = replaced(text, "$times", "--forward-ms 1 --backward-ms 2");
        std::vector<std::string> words;
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find(' ', begin), text.size());
            const std::string word = replaced(text.substr(begin, end - begin), "~", " ");
            words.push_back(replaced(word, "{}", folder().string()));
            begin = end + 1;
        }
        return words;
    }

    /// The hint of a refusal, which must be one.
    static std::string hint_of(const Outcome& outcome) {
        EXPECT_NE(outcome.code, 0);
        const std::size_t at = outcome.err.find("\nhint: ");
        EXPECT_NE(at, std::string::npos) << outcome.err;
        EXPECT_EQ(outcome.err.find("\nhint: ", at + 1), std::string::npos) << "two hints";
        return at == std::string::npos ? "" : outcome.err.substr(at);
    }

    void expect_told(const Mistake& mistake) const {
        const std::vector<std::string> words = words_of(mistake.words);
        const std::vector<std::string> mended = words_of(mistake.mended);
        const Outcome outcome = pipetwin(words);
        SCOPED_TRACE(std::string(mistake.words) + "\n" + outcome.err);
        const std::string hint = hint_of(outcome);
        for (const std::string& word : mended) {
            // A hint may name the key of a table alone, as "did you mean 'stages'?".
            const std::string value = word.substr(word.find('=') + 1);
            const bool is_new = std::ranges::find(words, word) == words.end();
            if (mistake.hint.empty() && is_new && hint.find(word) == std::string::npos) {
                EXPECT_THAT(hint, HasSubstr(value));
            }
        }
        EXPECT_THAT(hint, HasSubstr(replaced(std::string(mistake.hint), "{}", folder().string())));
        EXPECT_NO_THROW(parse_options(mended)) << "the hint";
        const bool is_quick = mended.front() == "simulate" || mended.front() == "check";
        const bool has_file = std::ranges::none_of(mended, [](const std::string& word) {
            return word == "scenario.toml" || word == "schedule.csv";
        });
        if (mistake.runs && is_quick && has_file) {
            const bool writes = std::ranges::count(mended, "--out") > 0;
            const Outcome tried = pipetwin(writes ? joined(mended, {"--force"}) : mended);
            EXPECT_EQ(tried.code, 0) << "the hint: " << tried.err;
        }
    }
};

TEST_F(Hints, LeadToCommandsThatWork) {
    for (const Mistake& mistake : mistakes) {
        expect_told(mistake);
    }
}

/// A line of a scenario that is mistyped, and what the hint says to write in its place.
struct Slip {
    std::string_view line;
    std::string_view typed;
    std::string_view mended;
};

constexpr auto slips = std::to_array<Slip>({
    {"schedule = \"1f1b\"", "schedule = \u201c1f1b\u201d", "schedule = \"1f1b\""},
    {"schedule = \"1f1b\"", "schedule = gpipe", "schedule = \"gpipe\""},
    {"schedule = \"1f1b\"", "schedule = 1f1b", "schedule = \"1f1b\""},
    {"schedule = \"1f1b\"", "schedule: \"1f1b\"", "schedule = \"1f1b\""},
    {"stages = 2", "stages: 2", "stages = 2"},
    {"stages = 2", "stages = 2,", "stages = 2"},
    {"stages = 2", "stages = 2;", "stages = 2"},
    {"stages = 2", "stages == 2", "stages = 2"},
    {"stages = 2", "stages = 2 // two of them", "stages = 2"},
    {"stages = 2", "stages\u00a0= 2", "stages = 2"},
    {"stages = 2", "stages = 2\npartition = \"2, 1\"", "partition = [2, 1]"},
    {"stages = 2", "stages = 2\npartition = (2, 1)", "partition = [2, 1]"},
    {"stages = 2", "stages = 2\npartition = [2 1]", "partition = [2, 1]"},
    {"sizes = [8, 16, 16, 4]", "sizes = (8, 16, 16, 4)", "sizes = [8, 16, 16, 4]"},
    {"sizes = [8, 16, 16, 4]", "sizes = \"8, 16, 16, 4\"", "sizes = [8, 16, 16, 4]"},
    {"sizes = [8, 16, 16, 4]", "sizes = 8, 16, 16, 4", "sizes = [8, 16, 16, 4]"},
    {"batch = 8", "batch = 1,024", "batch = 1024"},
    {"batch = 8", "batch = 1e3", "batch = 1000"},
    {"batch = 8", "batch = \"8\"", "batch = 8"},
    {"batch = 8", "batch = 0", "batch = 1"},
    {"batch = 8", "batch = 8\nlearning_rate = 0,001", "learning_rate = 0.001"},
    {"batch = 8", "batch = 8\nlearning_rate = 1e\u22123", "learning_rate = 1e-3"},
    {"batch = 8", "batch = 8\nlearning_rate = \"1e-3\"", "learning_rate = 1e-3"},
    {"batch = 8", "batch = 8\naccuracy = True", "accuracy = true"},
    {"batch = 8", "batch = 8\naccuracy = \"true\"", "accuracy = true"},
    {"count = 2", "count = 2\nlink_gbps = \"400 Gbps\"", "link_gbps = 400"},
    {"count = 2", "count = 2\nmemory_limit = 16e9", "memory_limit = 16000000000"},
    {"[pipeline]", "[pipeline", "[pipeline]"},
    {"[pipeline]", "[[pipeline]]", "[pipeline]"},
});

TEST_F(Hints, OfLinesOfAScenarioAreLinesThatCanBeRead) {
    for (const Slip& slip : slips) {
        const std::string typed = replaced(std::string(three_layers), slip.line, slip.typed);
        const Outcome outcome = pipetwin(
            {"simulate", file("slip.toml", typed), "--profile", path("costs.profile.json")});
        SCOPED_TRACE(std::string(slip.typed) + "\n" + outcome.err);
        EXPECT_THAT(hint_of(outcome), HasSubstr(slip.mended));
        // The mended line stands in place of the last one that was typed.
        const std::size_t last = slip.typed.rfind('\n');
        const std::string before(last == std::string_view::npos ? ""
                                                                : slip.typed.substr(0, last + 1));
        const std::string mended =
            replaced(std::string(three_layers), slip.line, before + std::string(slip.mended));
        EXPECT_NO_THROW(parse_scenario(mended, path("slip.toml")));
    }
}

TEST_F(Hints, OfKeysThatFollowFromOthersSayWhich) {
    const auto hint = [this](std::string_view line, std::string_view typed) {
        const std::string text = replaced(std::string(three_layers), line, typed);
        return hint_of(pipetwin({"check", file("slip.toml", text)}));
    };
    EXPECT_THAT(hint("micro_batches = 4", "micro_batch_size = 2"),
                HasSubstr("write micro_batches, which is training.batch"));
    EXPECT_THAT(hint("steps = 1", "epochs = 1"), HasSubstr("write steps"));
    EXPECT_THAT(hint("[model]", "stages = 2\n[model]"),
                HasSubstr("write it below the line [pipeline]"));
    EXPECT_THAT(hint("schedule = \"1f1b\"", "schedule = None"), HasSubstr("leave the line out"));
    EXPECT_THAT(hint("stages = 2", "stages = 2\nstages = 4"), HasSubstr("leave one of the two"));
    EXPECT_THAT(hint("[cluster]", "[training]\n[cluster]"), HasSubstr("below one header"));
}

}  // namespace hints_test
}  // namespace pipetwin::cli
