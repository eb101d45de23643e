#include <fstream>

#include <gmock/gmock.h>

#include "tests/cli/support.h"

/// Typical mistakes on the command line and in files. An error names the place, what was found and
/// what was expected, and gives one suggestion; a suggestion that is a command works.
namespace pipetwin::cli {
namespace typical_mistakes_test {

using ::testing::HasSubstr;

/// One mistake. In all texts "{}" stands for the folder of the test.
struct Mistake {
    std::string what;
    std::vector<std::string> args;
    int code = 0;
    std::string place;
    std::string found;
    std::string expected;
    std::string suggestion;
    std::vector<std::string> mended{};  ///< what the suggestion leads to, which works; empty: none
};

constexpr std::string_view scenario = R"([model]
kind = "mlp"
sizes = [8, 16, 16, 4]
[data]
kind = "synthetic"
[training]
batch = 8
steps = 1
[pipeline]
stages = 2
micro_batches = 4
schedule = "1f1b"
[cluster]
count = 2
)";

constexpr std::string_view costs = R"({"schema_version": 1, "source": "measured", "layers": [
  {"name": "linear0", "kind": "linear", "parameter_bytes": 576, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 128,
     "saved_bytes": 64}]},
  {"name": "linear1", "kind": "linear", "parameter_bytes": 1088, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 128,
     "saved_bytes": 128}]},
  {"name": "linear2", "kind": "linear", "parameter_bytes": 272, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 32,
     "saved_bytes": 128}]}]})";

constexpr std::string_view one_layer = R"({"schema_version": 1, "source": "measured", "layers": [
  {"name": "linear0", "kind": "linear", "parameter_bytes": 576, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 128,
     "saved_bytes": 64}]}]})";

constexpr std::string_view llama = R"([model]
kind = "llama"
layers = 2
d_model = 32
heads = 4
context = 16
vocabulary = 40
feed_forward = 64
[data]
kind = "synthetic"
[training]
batch = 8
steps = 1
[pipeline]
stages = 2
micro_batches = 4
)";

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size())) {
        text.replace(at, what.size(), by);
    }
    return text;
}

/// A line of the scenario in place of another.
std::string with(std::string_view line, std::string_view other) {
    return replaced(std::string(scenario), line, other);
}

class TypicalMistakes : public InFolder {
  protected:
    TypicalMistakes() {
        file("s.toml", scenario);
        file("my model.toml", scenario);
        file("costs.profile.json", costs);
        file("other.profile.json", one_layer);
        file("empty.toml", "");
        file("binary.toml",
             std::string("\x7f"
                         "ELF\x02\x01\x01\0\0\xff\xfe",
                         11));
        file("json.toml", "{\"model\": 1}");
        file("key.toml", with("stages = 2", "stagess = 2"));
        file("table.toml", with("[pipeline]", "[pipelin]"));
        file("type.toml", with("batch = 8", "batch = \"8\""));
        file("half.toml", with("batch = 8", "batch = 8.5"));
        file("unit.toml", with("count = 2", "count = 2\nmemory_limit = \"4 GX\""));
        file("bytes.toml", with("count = 2", "count = 2\nmemory_limit = 4"));
        file("word.toml", with("\"1f1b\"", "\"1fb1\""));
        file("columns.csv", "a,b,c\n1,2,3\n");
        file("there.csv", "");
        file("llama.toml", llama);
        file("README.md", "# A model\n");
        file("two-stages.csv", "0F0,0B0\n1F0,1B0\n");
        std::filesystem::create_directories(folder() / "planned");
        file("planned/scenario.toml", scenario);
        file("planned/predicted.trace.json", "{}");
        std::filesystem::create_directories(folder() / "empty");
        std::filesystem::create_directories(folder() / "mixtral");
        file("mixtral/config.json", R"({"model_type": "mixtral"})");
        // A header without tensors: 8 bytes of its length, then the JSON.
        file("mixtral/model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
    }

    std::string in_folder(const std::string& text) const {
        return replaced(text, "{}", folder().string());
    }
    std::vector<std::string> in_folder(std::vector<std::string> words) const {
        for (std::string& word : words) {
            word = in_folder(word);
        }
        return words;
    }

    void expect_told(const Mistake& mistake) const {
        const Outcome outcome = pipetwin(in_folder(mistake.args));
        SCOPED_TRACE(mistake.what + "\n" + outcome.err);
        EXPECT_EQ(outcome.code, mistake.code);
        const std::size_t error = outcome.err.find("error: ");
        ASSERT_NE(error, std::string::npos);
        const std::size_t hint = outcome.err.find("\nhint: ", error);
        ASSERT_NE(hint, std::string::npos);
        EXPECT_EQ(outcome.err.find("\nhint: ", hint + 1), std::string::npos) << "two hints";
        const std::string told = outcome.err.substr(error, hint - error);
        EXPECT_THAT(told, HasSubstr(in_folder(mistake.place)));
        EXPECT_THAT(told, HasSubstr(in_folder(mistake.found)));
        EXPECT_THAT(outcome.err.substr(error), HasSubstr(in_folder(mistake.expected)));
        EXPECT_THAT(outcome.err.substr(hint), HasSubstr(in_folder(mistake.suggestion)));
        if (!mistake.mended.empty()) {
            const Outcome mended = pipetwin(in_folder(mistake.mended));
            EXPECT_EQ(mended.code, 0) << "the suggestion: " << mended.err;
        }
    }

    void expect_all(const std::vector<Mistake>& mistakes) const {
        for (const Mistake& mistake : mistakes) {
            expect_told(mistake);
        }
    }

    /// `simulate` of the scenario with its costs, and more options.
    static std::vector<std::string> simulate(const std::vector<std::string>& more,
                                             const std::string& name = "{}/s.toml") {
        return joined({"simulate", name, "--profile", "{}/costs.profile.json"}, more);
    }
    /// Plain numbers, and more options.
    static std::vector<std::string> numbers(const std::vector<std::string>& more) {
        return joined({"simulate", "--forward-ms", "1", "--backward-ms", "2"}, more);
    }
};

TEST_F(TypicalMistakes, OfFiles) {  // 1 to 17
    expect_all({
        {"a missing file",
         simulate({}, "{}/missing.toml"),
         6,
         "{}/missing.toml",
         "cannot open",
         "No such file",
         "check the name"},
        {"an example that is elsewhere",
         simulate({}, "{}/scenarios/mlp-synthetic.toml"),
         6,
         "{}/scenarios/mlp-synthetic.toml",
         "cannot open",
         "No such file",
         "scenarios/mlp-synthetic.toml"},
        {"a folder in place of a file",
         simulate({}, "{}/empty"),
         3,
         "{}/empty",
         "a folder",
         "expected a regular file",
         "name a file in it"},
        {"an empty file",
         simulate({}, "{}/empty.toml"),
         3,
         "{}/empty.toml:1:1",
         "model is missing",
         "expected a table [model]",
         "docs/scenario.md"},
        {"a binary file",
         simulate({}, "{}/binary.toml"),
         3,
         "{}/binary.toml:1:",
         "rror",
         "expected TOML",
         "expected TOML"},
        {"JSON in place of TOML",
         simulate({}, "{}/json.toml"),
         3,
         "{}/json.toml:1:1",
         "saw '{'",
         "expected TOML",
         "key = value"},
        {"costs in place of a scenario",
         {"simulate", "{}/costs.profile.json"},
         3,
         "{}/costs.profile.json",
         "this is a profile",
         "expected a scenario",
         "--profile {}/costs.profile.json",
         simulate({})},
        {"a scenario in place of costs",
         {"simulate", "{}/s.toml", "--profile", "{}/s.toml"},
         3,
         "{}/s.toml",
         "this is a scenario",
         "expected the costs of layers",
         "pipetwin simulate {}/s.toml"},
        {"costs that were never measured",
         {"simulate", "{}/s.toml"},
         3,
         "{}/s.toml:1:1",
         "are not known yet",
         "the costs of the layers",
         "pipetwin profile {}/s.toml",
         {"profile", "{}/s.toml", "--out", "{}/new.profile.json"}},
        {"costs of another model",
         {"simulate", "{}/s.toml", "--profile", "{}/other.profile.json"},
         3,
         "{}/other.profile.json",
         "costs of 1 layer",
         "the model has 3",
         "profile this model"},
        {"CSV with other columns",
         {"simulate", "{}/s.toml", "--profile", "{}/columns.csv"},
         3,
         "{}/columns.csv:1:1",
         "unknown column 'a'",
         "known: name, forward_ms",
         "known: name"},
        {"a table that is no schedule",
         {"check", "{}/columns.csv"},
         3,
         "{}/columns.csv:1:1",
         "'a'",
         "expected a stage",
         "remove it"},
        {"an output that is there",
         {"export", "torch-csv", "{}/s.toml", "--out", "{}/there.csv"},
         6,
         "{}/there.csv",
         "is there already",
         "the file",
         "--force",
         {"export", "torch-csv", "{}/s.toml", "--out", "{}/there.csv", "--force"}},
        {"a folder as an output file",
         {"export", "svg", "{}/s.toml", "--out", "{}/empty"},
         6,
         "{}/empty",
         "there is a folder of this name",
         "expected the name of a file",
         "--out FILE"},
        {"an output in a folder that is missing",
         {"export", "torch-csv", "{}/s.toml", "--out", "{}/no/x.csv"},
         6,
         "{}/no/x.csv",
         "cannot write",
         "No such file",
         "mkdir -p {}/no"},
        {"a picture of another kind",
         {"export", "svg", "{}/s.toml", "--out", "{}/a.png"},
         2,
         "--out",
         "ends in .png",
         "the picture is an SVG",
         "name it {}/a.svg",
         {"export", "svg", "{}/s.toml", "--out", "{}/a.svg"}},
        {"a name with a space that was not quoted",
         {"simulate", "{}/my", "model.toml"},
         2,
         "",
         "'model.toml' is one argument more",
         "'simulate' takes",
         "pipetwin simulate --help",
         {"simulate", "--help"}},
        {"a plan in place of a run",
         {"compare", "{}/planned"},
         3,
         "{}/planned",
         "nothing was trained here",
         "no measured timeline",
         "'pipetwin run' or 'pipetwin train'"},
        {"a folder of a plan in place of its scenario",
         {"simulate", "{}/planned"},
         3,
         "{}/planned",
         "this is a run folder",
         "expected a scenario",
         "name its scenario: {}/planned/scenario.toml",
         simulate({}, "{}/planned/scenario.toml")},
        {"one timeline that is missing",
         {"compare", "{}/missing"},
         6,
         "{}/missing",
         "cannot open",
         "No such file",
         "check the name"},
    });
}

TEST_F(TypicalMistakes, OfScenarios) {  // 18 to 38
    const auto set = [](const std::string& key) { return simulate({"--set", key}); };
    expect_all({
        {"a misspelled key",
         simulate({}, "{}/key.toml"),
         3,
         "{}/key.toml:10:1",
         "'stagess'",
         "unknown key",
         "did you mean 'stages'?",
         simulate({})},
        {"a misspelled table",
         simulate({}, "{}/table.toml"),
         3,
         "{}/table.toml:9:2",
         "'pipelin'",
         "unknown key",
         "did you mean 'pipeline'?"},
        {"a number in quotes",
         simulate({}, "{}/type.toml"),
         3,
         "{}/type.toml:7:9",
         "training.batch = \"8\"",
         "expected a whole number",
         "leave the quotes out: batch = 8"},
        {"half a sample",
         simulate({}, "{}/half.toml"),
         3,
         "{}/half.toml:7:9",
         "training.batch = 8.5",
         "expected a whole number from 1",
         "docs/scenario.md"},
        {"memory in a unit that there is none of",
         simulate({}, "{}/unit.toml"),
         3,
         "{}/unit.toml:15:16",
         "'4 GX'",
         "is not an amount of memory",
         "\"4 GiB\"",
         set("cluster.memory_limit=\"4 GiB\"")},
        {"memory without a unit",
         {"train", "{}/bytes.toml"},
         4,
         "{}/bytes.toml:15:16",
         "limit of 4 B",
         "needs",
         "raise cluster.memory_limit"},
        {"a misspelled schedule",
         simulate({}, "{}/word.toml"),
         3,
         "{}/word.toml:12:12",
         "'1fb1'",
         "not a schedule",
         "did you mean '1f1b'?",
         set("pipeline.schedule=1f1b")},
        {"no micro-batches",
         {"simulate",
          "--stages",
          "4",
          "--micro-batches",
          "0",
          "--forward-ms",
          "1",
          "--backward-ms",
          "2"},
         2,
         "--micro-batches",
         "micro_batches = 0",
         "out of range",
         "from 1 to 65536"},
        {"more stages than layers",
         simulate({"--set", "pipeline.stages=4", "--set", "cluster.count=4"}),
         4,
         "--set pipeline.stages",
         "3 units",
         "4 stages",
         "set stages to a number from 1 to 3",
         simulate({"--set", "pipeline.stages=3", "--set", "cluster.count=4"})},
        {"several devices for a rank that trains",
         {"train", "{}/s.toml", "--set", "pipeline.tensor_parallel=2", "--set", "cluster.count=4"},
         4,
         "--set pipeline.tensor_parallel=2: a rank",
         "several devices per rank",
         "a rank trains on one device",
         "set pipeline.tensor_parallel = 1"},
        {"a schedule in place of a scenario",
         {"simulate", "1f1b", "--stages", "4"},
         2,
         "--stages",
         "'1f1b' is given as a scenario",
         "takes the place of a scenario",
         "--schedule 1f1b names a schedule"},
        {"more stages than devices",
         {"train", "{}/s.toml", "--set", "cluster.count=1"},
         3,
         "--set cluster.count",
         "--set cluster.count: 1,",
         "expected at least the 2",
         "set stages = 1 or count = 2",
         simulate({"--set", "cluster.count=2"})},
        {"a batch that replicas cannot share",
         simulate({"--set",
                   "training.batch=9",
                   "--set",
                   "pipeline.data_parallel=2",
                   "--set",
                   "cluster.count=4"}),
         3,
         "--set training.batch",
         "training.batch = 9",
         "2 replicas",
         "a multiple of 2, such as 10"},
        {"a partition that is too long",
         set("pipeline.partition=[2,2]"),
         3,
         "--set pipeline.partition",
         "[2, 2] sums to 4",
         "expected 3",
         "partition = \"auto\"",
         set("pipeline.partition=auto")},
        {"a partition of too few stages",
         set("pipeline.partition=[3]"),
         3,
         "--set pipeline.partition",
         "1 entry for 2 stages",
         "expected one entry per stage",
         "partition = \"auto\"",
         set("pipeline.partition=auto")},
        {"--set without a value",
         set("training.batch"),
         2,
         "--set",
         "'training.batch'",
         "of the form key=value",
         "--set pipeline.stages=4"},
        {"--set without the table",
         set("batch=8"),
         2,
         "--set batch",
         "the table of the key",
         "expected training.batch",
         "--set training.batch=8",
         set("training.batch=8")},
        {"--set of a misspelled key",
         set("training.btach=8"),
         3,
         "--set training.btach",
         "'btach'",
         "unknown key",
         "did you mean 'batch'?",
         set("training.batch=8")},
        {"a negative number",
         set("training.batch=-1"),
         3,
         "--set training.batch",
         "--set training.batch: -1,",
         "from 1 to 16777216",
         "docs/scenario.md"},
        {"zero",
         set("pipeline.micro_batches=0"),
         3,
         "--set pipeline.micro_batches",
         "--set pipeline.micro_batches: 0,",
         "expected a whole number from 1",
         "docs/scenario.md"},
        {"a huge number",
         set("training.batch=99999999999999999999"),
         3,
         "--set training.batch",
         "99999999999999999999",
         "from 1 to 16777216",
         "docs/scenario.md"},
        {"half of a pair",
         set("training.betas=[0.9]"),
         3,
         "--set training.betas",
         "[0.9]",
         "expected two numbers",
         "betas = [0.9, 0.95]",
         set("training.betas=[0.9, 0.95]")},
        {"a misspelled optimizer",
         set("training.optimizer=adma"),
         3,
         "--set training.optimizer",
         "\"adma\"",
         "expected one of sgd",
         "did you mean 'adam'?",
         set("training.optimizer=adam")},
        {"a device without its form factor",
         set("cluster.device=h100"),
         3,
         "--set cluster.device",
         "\"h100\"",
         "h100-sxm",
         "did you mean 'h100-sxm'?"},
    });
}

TEST_F(TypicalMistakes, OfCommandLines) {  // 39 to 57
    const std::vector<std::string> good{"--stages", "4", "--micro-batches", "8"};
    expect_all({
        {"a misspelled command",
         {"simluate", "{}/s.toml"},
         2,
         "",
         "'simluate'",
         "is not a command",
         "did you mean 'simulate'?",
         simulate({})},
        {"a misspelled option",
         {"simulate", "{}/s.toml", "--proflie", "x"},
         2,
         "",
         "'--proflie'",
         "'simulate' has no option",
         "did you mean '--profile'?",
         simulate({})},
        {"no scenario",
         {"train"},
         2,
         "train",
         "no scenario is given",
         "expected SCENARIO.toml",
         "pipetwin train SCENARIO.toml"},
        {"no output",
         {"export", "torch-csv", "{}/s.toml"},
         2,
         "export",
         "--out is missing",
         "--out",
         "add --out FILE",
         {"export", "torch-csv", "{}/s.toml", "--out", "{}/rows.csv"}},
        {"a word in place of a number",
         numbers({"--stages", "four", "--micro-batches", "8"}),
         2,
         "--stages",
         "'four'",
         "expected a whole number",
         "pipetwin simulate --help"},
        {"a time with a unit",
         joined({"simulate", "--forward-ms", "1s", "--backward-ms", "2"}, good),
         2,
         "--forward-ms",
         "'1s'",
         "a number of zero or more",
         "write it as in 18.5",
         joined({"simulate", "--forward-ms", "18.5", "--backward-ms", "2"}, good)},
        {"no costs",
         joined({"simulate"}, good),
         2,
         "",
         "--forward-ms is missing",
         "add --forward-ms X",
         "and --backward-ms X",
         numbers(good)},
        {"times of too few stages",
         joined({"simulate", "--forward-ms", "1,2", "--backward-ms", "2"}, good),
         2,
         "--forward-ms",
         "2 numbers",
         "4 stages",
         "one number for all",
         numbers(good)},
        {"too few micro-batches for interleaving",
         numbers({"--schedule",
                  "interleaved-1f1b",
                  "--chunks",
                  "2",
                  "--stages",
                  "4",
                  "--micro-batches",
                  "2"}),
         4,
         "interleaved-1f1b",
         "2 micro-batches",
         "4 ranks",
         "set --micro-batches 4 or more",
         numbers({"--schedule",
                  "interleaved-1f1b",
                  "--chunks",
                  "2",
                  "--stages",
                  "4",
                  "--micro-batches",
                  "4"})},
        {"one chunk of a schedule of two",
         numbers({"--schedule", "zb-v", "--stages", "4", "--micro-batches", "8"}),
         4,
         "zb-v",
         "two chunks",
         "got 1",
         "--chunks 2",
         numbers({"--schedule", "zb-v", "--stages", "4", "--micro-batches", "8", "--chunks", "2"})},
        {"stages of a schedule file",
         numbers({"--schedule", "{}/two-stages.csv", "--stages", "5"}),
         2,
         "--stages",
         "{}/two-stages.csv",
         "sets it already",
         "leave out --stages\n",
         numbers({"--schedule", "{}/two-stages.csv"})},
        {"a picture of another kind",
         numbers({"--schedule",
                  "gpipe,1f1b",
                  "--stages",
                  "4",
                  "--micro-batches",
                  "8",
                  "--svg",
                  "{}/plans.png"}),
         2,
         "--svg",
         "ends in .png",
         "the picture is an SVG",
         "name it {}/plans.svg",
         numbers({"--schedule",
                  "gpipe,1f1b",
                  "--stages",
                  "4",
                  "--micro-batches",
                  "8",
                  "--svg",
                  "{}/plans.svg"})},
        {"a seed by an option and by a key",
         simulate({"--seed", "1", "--set", "training.seed=2"}),
         2,
         "--seed",
         "it sets training.seed",
         "so does --set training.seed=2",
         "leave one of the two out"},
        {"a negative seed",
         simulate({"--seed", "x"}),
         2,
         "--seed",
         "'x'",
         "expected a whole number of zero or more",
         "pipetwin simulate --help"},
        {"a colour",
         simulate({"--color", "blue"}),
         2,
         "--color",
         "'blue'",
         "expected one of auto, always, never",
         "--color"},
        {"a misspelled model",
         {"plan", "gpt2-1.6b", "--cluster", "8x-h100-sxm"},
         3,
         "model",
         "'gpt2-1.6b'",
         "known: gpt2-1.5b",
         "did you mean 'gpt2-1.5b'?"},
        {"a cluster without its dash",
         {"plan", "gpt2-1.5b", "--cluster", "8xh100"},
         3,
         "--cluster",
         "'8xh100'",
         "known: 8x-a100-sxm-80",
         "did you mean '8x-h100-sxm'?"},
        {"a model without a cluster",
         {"plan", "gpt2-1.5b"},
         2,
         "plan",
         "is a model",
         "--cluster is missing",
         "--cluster 8x-a100-sxm-80"},
        {"nodes of a scenario",
         {"plan", "{}/s.toml", "--nodes", "2"},
         2,
         "--nodes",
         "is a scenario",
         "goes with a model",
         "leave --nodes out"},
        {"no nodes",
         {"plan", "gpt2-1.5b", "--cluster", "8x-h100-sxm", "--nodes", "0"},
         2,
         "--nodes",
         "'0'",
         "from 1 to 65536",
         "write it as in --nodes 8"},
        {"a misspelled format",
         {"import", "fh", "gpt2-1.5b", "--out", "{}/x.json"},
         2,
         "",
         "'fh'",
         "format that can be imported",
         "did you mean 'hf'?"},
        {"a GPU that is not there",
         {"train", "{}/s.toml", "--set", "cluster.backend=gpu"},
         3,
         "--set cluster.backend",
         "\"gpu\"",
         "expected one of cpu, paced, cuda",
         "did you mean 'cuda'?"},
        {"weights of another family",
         {"train", "{}/llama.toml", "--weights", "{}/mixtral"},
         3,
         "{}/mixtral/config.json",
         "\"mixtral\"",
         "expected \"llama\"",
         "\"model_type\": \"llama\""},
    });
}

TEST_F(TypicalMistakes, OfQuestionsAboutAModel) {
    const auto ask = [](const std::vector<std::string>& more,
                        const std::string& model = "gpt2-1.5b") {
        return joined({"plan", model, "--cluster", "8x-h100-sxm"}, more);
    };
    expect_all({
        {"a price with a sign",
         ask({"--tokens", "1T", "--price", "$2.2"}),
         2,
         "--price",
         "'$2.2'",
         "expected a number above zero",
         "did you mean '2.2'?"},
        {"tokens in bytes",
         ask({"--batch-tokens", "4MB"}),
         2,
         "--batch-tokens",
         "'4MB'",
         "optionally followed by k, M, G, B or T",
         "did you mean '4M'?"},
        {"tokens with a small letter",
         ask({"--batch-tokens", "4m"}),
         2,
         "--batch-tokens",
         "'4m'",
         "optionally followed by k, M, G, B or T",
         "did you mean '4M'?"},
        {"tokens with commas",
         ask({"--sequence", "8,192"}),
         2,
         "--sequence",
         "'8,192'",
         "expected a whole number above zero",
         "did you mean '8192'?"},
        {"a price with a decimal comma",
         ask({"--tokens", "1T", "--price", "2,5"}),
         2,
         "--price",
         "'2,5'",
         "expected a number above zero",
         "did you mean '2.5'?"},
        {"tokens with a decimal comma",
         ask({"--batch-tokens", "4,5M"}),
         2,
         "--batch-tokens",
         "'4,5M'",
         "expected a number above zero",
         "did you mean '4.5M'?"},
        {"half a node with a decimal comma",
         ask({"--nodes", "2,5"}),
         2,
         "--nodes",
         "'2,5'",
         "expected a whole number",
         "write it as in --nodes 8"},
        {"schedules by an option and by a key",
         ask({"--schedule", "1f1b", "--set", "pipeline.schedule=gpipe"}),
         2,
         "--schedule",
         "it sets pipeline.schedule",
         "so does --set pipeline.schedule=gpipe",
         "leave one of the two out"},
        {"a precision by its key",
         ask({"--set", "training.precision=fp32"}),
         2,
         "--set training.precision",
         "fp32",
         "--precision sets it",
         "write --precision fp32"},
        {"a batch by an option and by a key",
         ask({"--batch-tokens", "64k", "--set", "training.batch=8"}),
         2,
         "--batch-tokens",
         "it sets training.batch",
         "so does --set training.batch=8",
         "leave one of the two out"},
        {"memory without a unit",
         ask({"--set", "cluster.memory_limit=80"}),
         3,
         "cluster.memory_limit",
         "80 B for each device",
         "the weights of the model are",
         "did you mean \"80 GiB\"?"},
        {"devices of a layer that no node can be divided into",
         ask({"--set", "pipeline.tensor_parallel=3"}),
         2,
         "--set pipeline.tensor_parallel",
         "3",
         "one node, which has 8 devices",
         "a divisor of that: 1, 2, 4, 8"},
        {"devices of a layer on two nodes",
         ask({"--nodes", "2", "--set", "pipeline.tensor_parallel=16"}),
         2,
         "--set pipeline.tensor_parallel",
         "16",
         "one node, which has 8 devices",
         "a divisor of that: 1, 2, 4, 8"},
        {"more stages than the nodes have devices",
         ask({"--set", "pipeline.stages=100"}),
         2,
         "--set pipeline.stages",
         "100 stages need 100 devices",
         "1 node of '8x-h100-sxm' has only 8",
         "--nodes 13"},
        {"schedules without the brackets of a list",
         ask({"--set", "pipeline.schedule=1f1b,interleaved-1f1b"}),
         2,
         "--set pipeline.schedule",
         "'1f1b,interleaved-1f1b'",
         "names several schedules, expected one",
         "--schedule 1f1b,interleaved-1f1b"},
        {"schedules without the quotes of a list",
         ask({"--set", "pipeline.schedule=[1f1b, zb-h1]"}),
         3,
         "--set pipeline.schedule",
         "'[1f1b, zb-h1]'",
         "is no value",
         "'[\"1f1b\", \"zb-h1\"]'"},
        {"a schedule of one micro-batch",
         ask({"--schedule", "naive"}),
         4,
         "gpt2-1.5b",
         "can be run",
         "naive",
         "leave the schedule open"},
        {"a text that describes no model",
         ask({}, "{}/README.md"),
         3,
         "{}/README.md",
         "describes no model",
         "expected a model's config.json",
         "a model that 'pipetwin devices' lists"},
        {"a short name of --sequence",
         ask({"--seq", "8192"}),
         2,
         "",
         "'--seq'",
         "'plan' has no option",
         "did you mean '--sequence'?"},
        {"a number in words",
         ask({"--nodes", "four"}),
         2,
         "--nodes",
         "'four'",
         "expected a whole number from 1 to 65536",
         "write it as in --nodes 8"},
        {"half a node",
         ask({"--nodes", "1.5"}),
         2,
         "--nodes",
         "'1.5'",
         "expected a whole number",
         "write it as in --nodes 8"},
        {"another name of --sequence",
         ask({"--seq-len", "4096"}),
         2,
         "",
         "'--seq-len'",
         "'plan' has no option",
         "did you mean '--sequence'?"},
        {"GPUs in place of nodes",
         ask({"--gpus", "64"}),
         2,
         "",
         "'--gpus'",
         "'plan' has no option",
         "did you mean '--nodes'?"},
        {"a key as an option",
         ask({"--shard", "weights"}),
         2,
         "",
         "'--shard'",
         "'plan' has no option",
         "--set pipeline.shard=VALUE"},
        {"another program's word for a key",
         ask({"--tp", "8"}),
         2,
         "",
         "'--tp'",
         "'plan' has no option",
         "--set pipeline.tensor_parallel=VALUE"},
        {"a key without its table",
         ask({"--set", "shard=weights"}),
         2,
         "--set shard",
         "the table of the key is missing",
         "expected pipeline.shard",
         "--set pipeline.shard=weights"},
        {"a schedule that there is none of",
         ask({"--schedule", "1f1b,interleved-1f1b"}),
         2,
         "--schedule",
         "'interleved-1f1b'",
         "not a schedule",
         "did you mean 'interleaved-1f1b'?"},
        {"a missing file",
         ask({}, "{}/missing.json"),
         6,
         "{}/missing.json",
         "no such file",
         "expected a config.json",
         "check the path"},
        {"a model of a hub",
         ask({}, "meta-llama/Llama-3-70B"),
         6,
         "meta-llama/Llama-3-70B",
         "no such file",
         "the name of a model",
         "did you mean the model 'llama-3-70b'?"},
        {"a unit that there is none of",
         ask({"--batch-tokens", "4X"}),
         2,
         "--batch-tokens",
         "'4X'",
         "optionally followed by k, M, G, B or T",
         "--batch-tokens 4M"},
        {"a model with capitals",
         ask({}, "Llama-3-70B"),
         3,
         "model",
         "'Llama-3-70B'",
         "known: gpt2-1.5b",
         "did you mean 'llama-3-70b'?"},
        {"a model that is not known",
         ask({}, "llama-2-13B"),
         3,
         "model",
         "'llama-2-13B'",
         "known: gpt2-1.5b",
         "the model's own config.json"},
        {"a cluster by another name",
         {"plan", "gpt2-1.5b", "--cluster", "dgx-h100"},
         3,
         "--cluster",
         "'dgx-h100'",
         "known: 8x-a100-sxm-80",
         "did you mean '8x-h100-sxm'?"},
        {"a cluster that is not known",
         {"plan", "gpt2-1.5b", "--cluster", "8x-l40s"},
         3,
         "--cluster",
         "'8x-l40s'",
         "known: 8x-a100-sxm-80",
         "a file of your own, FILE.toml, with the line [cluster] and lines such as device = "
         "\"h100-sxm\", count = 8, per_node = 8, link = \"nvlink-4\""},
        {"half precision by another name",
         ask({"--precision", "f16"}),
         2,
         "--precision",
         "'f16'",
         "expected bf16, fp16, fp32, fp8",
         "did you mean 'fp16'?"},
    });
}

TEST_F(TypicalMistakes, OfConfigFiles) {
    const auto config = [this](std::string_view name, std::string_view type, int layers) {
        file(name,
             replaced(replaced(R"({"model_type": "TYPE", "num_hidden_layers": LAYERS,
                "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
                "vocab_size": 1000, "max_position_embeddings": 1024})",
                               "TYPE",
                               type),
                      "LAYERS",
                      std::to_string(layers)));
    };
    config("lama.json", "lama", 2);
    config("deep.json", "llama", 4000);
    const auto ask = [](const std::string& file) {
        return std::vector<std::string>{
            "plan", file, "--cluster", "8x-h100-sxm", "--sequence", "1024"};
    };
    expect_all({
        {"a misspelled family",
         ask("{}/lama.json"),
         3,
         "{}/lama.json: /model_type",
         "\"lama\"",
         "expected one of",
         "did you mean 'llama'?"},
        {"thousands of layers",
         ask("{}/deep.json"),
         3,
         "{}/deep.json: /num_hidden_layers",
         "4000",
         "expected at most 16.00 MiB",
         "layers can be planned"},
    });
}

}  // namespace typical_mistakes_test
}  // namespace pipetwin::cli
