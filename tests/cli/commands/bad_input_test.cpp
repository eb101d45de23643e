// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/hf_texts.h"
#include "tests/support/soak.h"

namespace pipetwin::cli {
namespace bad_input_test {

/// Broken inputs end in an exit code of the contract and an error text, never in a crash: 0 where
/// the change kept the file valid, 3 for what the grammar refuses, 4 for what reads well but is no
/// valid schedule.
class BadInput : public InFolder {
  protected:
    static void expect_clean_end(const Outcome& outcome, std::string_view input) {
        EXPECT_TRUE(outcome.code == 0 || outcome.code == 3 || outcome.code == 4)
            << "exit " << outcome.code << ", " << outcome.err << "\nfor:\n"
            << input;
        if (outcome.code != 0) {
            EXPECT_THAT(outcome.err, ::testing::StartsWith("error: "));
        }
        EXPECT_THAT(outcome.err, ::testing::Not(::testing::HasSubstr("a bug in pipetwin")))
            << input;
    }

    void check_every_prefix(std::string_view name, std::string_view content) const {
        for (std::size_t length = 0; length < content.size(); ++length) {
            const std::string_view prefix = content.substr(0, length);
            expect_clean_end(pipetwin({"check", file(name, prefix)}), prefix);
        }
    }

    void check_changed_bytes(std::string_view name, std::string_view content) const {
        SCOPED_TRACE(::testing::Message() << "PIPETWIN_SEED=" << tests::seed());
        std::mt19937_64 random(tests::seed());
        const int cases = tests::soaked(300);
        for (int run = 0; run < cases; ++run) {
            std::string changed(content);
            const int changes = 1 + static_cast<int>(random() % 4);
            for (int change = 0; change < changes; ++change) {
                changed[random() % changed.size()] = static_cast<char>(random() % 256);
            }
            expect_clean_end(pipetwin({"check", file(name, changed)}), changed);
        }
    }
};

constexpr std::string_view schedule =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0,0OPT\r\n"
    "1RECV_F0,1F0,1RECV_F1,1F1,1B1,1SEND_B1,1B0,1SEND_B0,1OPT\r\n";

TEST_F(BadInput, ScheduleCutAtAnyByteEndsCleanly) {
    ASSERT_EQ(pipetwin({"check", file("whole.csv", schedule)}).code, 0);
    check_every_prefix("cut.csv", schedule);
}

TEST_F(BadInput, ScheduleWithAnyBytesChangedEndsCleanly) {
    check_changed_bytes("changed.csv", schedule);
}

TEST_F(BadInput, ScenarioCutAtAnyByteEndsCleanly) {
    check_every_prefix("cut.toml", small_scenario);
}

TEST_F(BadInput, ScenarioWithAnyBytesChangedEndsCleanly) {
    check_changed_bytes("changed.toml", small_scenario);
}

/// A schedule file, and what every command that reads it must say.
struct BadSchedule {
    const char* content;
    int code;
    const char* said;
};

constexpr BadSchedule bad_schedules[] = {
    // What the grammar refuses: line and column.
    {"0F0,0F1x\n", 3, ":1:8: '0F1x': unexpected 'x'"},
    {"0F0,0B0\n1F0,1Q0\n", 3, ":2:6: '1Q0': 'Q' is not a type"},
    {"", 3, ":1:1: the file holds no action"},
    {",,\n", 3, ":1:1: the file holds no action"},
    {"0F0,0F65536\n", 3, ":1:7: '0F65536': '65536' is too large for a micro-batch"},
    {"0F0,(0F1;0B0)OVERLAP\n", 3, ":1:5: '(0F1;0B0)OVERLAP': expected"},
    // What reads well but is no valid schedule: rank and cell.
    {"0F0,0F1,0B0\n", 4, "rank 0: 0B1 is missing"},
    {"0F0,0F0,0B0\n", 4, "rank 0, cell 1: 0F0 is in cells 0 and 1;"},
    {"0F0,0B0,0B0\n", 4, "rank 0, cell 2: 0B0 is in cells 1 and 2;"},
    {"0B0,0F0\n", 4, "rank 0, cell 0: 0B0 comes before 0F0 (cell 1)"},
    {"0F0,0W0,0I0\n", 4, "rank 0, cell 1: 0W0 comes before 0I0 (cell 2)"},
    {"0F0,0B0\n0F1,0B1\n", 4, "rank 1, cell 0: 0F1 is of stage 0, which is on rank 0"},
    {"0F0,0B0\n2F0,2B0\n", 4, "stage 1 is on no rank"},
    {"0F0,0B0,0F5,0B5\n", 4, "is missing: forward of micro-batches 1 to 4 on stage 0"},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", 4, "rank 1: 1RECV_F0 is missing"},
    {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", 4, "rank 1, cell 0: 1RECV_F1 causes an order mismatch"},
    {"0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n", 4, "order mismatch"},
    // Rank 0 waits for the gradient that rank 1 has only after the forward that rank 0 sends last.
    {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 4, "rank 0, cell 2: 0RECV_B0 waits for"},
};

TEST_F(BadInput, EveryReaderOfAScheduleRefusesWhatIsWrongWithItAndWhere) {
    for (const BadSchedule& bad : bad_schedules) {
        const std::string csv = file("bad.csv", bad.content);
        const std::string out = path("out");
        const std::vector<std::vector<std::string>> commands{
            {"check", csv},
            {"import", "torch-csv", csv, "--out", out},
            {"export", "torch-csv", csv, "--out", out},
            {"export", "svg", csv, "--out", out},
            {"simulate", "--schedule-file", csv, "--forward-ms", "1", "--backward-ms", "2"},
        };
        for (const auto& command : commands) {
            const Outcome outcome = pipetwin(command);
            EXPECT_EQ(outcome.code, bad.code) << command.front() << ' ' << bad.content;
            EXPECT_THAT(outcome.out + outcome.err, ::testing::HasSubstr(bad.said))
                << command.front();
            EXPECT_FALSE(std::filesystem::exists(out));
        }
    }
}

TEST_F(BadInput, AFileOfTooManyColumnsIsRefusedWithLineAndCell) {
    const std::string csv = file("wide.csv", "0F0,0B0\n" + std::string(64'000'000, ','));
    const Outcome outcome = pipetwin({"check", csv});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                ::testing::HasSubstr(":2:64000000: the file has more than "
                                     "64000000 cells"));
}

TEST_F(BadInput, FolderInPlaceOfAFileIsRefused) {
    EXPECT_EQ(pipetwin({"check", folder().string()}).code, 3);
}

TEST_F(BadInput, HugeNumbersAreRefusedBeforeAnythingIsAllocated) {
    EXPECT_EQ(pipetwin({"check", file("huge.csv", "0F2147483647,0B2147483647\n")}).code, 3);
    EXPECT_EQ(pipetwin({"check", file("more.csv", "0F99999999999999999999\n")}).code, 3);
    const std::string scenario = file("huge.toml", small_scenario);
    EXPECT_EQ(pipetwin({"check", scenario, "--set", "pipeline.stages=1000000000"}).code, 3);
    EXPECT_EQ(pipetwin({"check", scenario, "--set", "training.batch=1e400"}).code, 3);
}

/// A file of another tool, how it is imported, and what the error says besides the file.
struct Foreign {
    std::string name;
    std::string content;
    std::vector<std::string> options;
    std::string said;
    std::string hint;
};

const std::vector<std::string> hf_options{
    "--device", "h100-sxm", "--sequence", "512", "--micro-batch-size", "1"};

std::string csv_with_forward(const std::string& forward) {
    return "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\na," + forward +
           ",1,2,3,4\n";
}

/// Two nodes of PipeDream's graph and their edges.
std::string graph_with(const std::string& edges) {
    const std::string costs =
        " -- forward_compute_time=1, backward_compute_time=2, activation_size=3, "
        "parameter_size=4\n";
    return "node1 -- Conv2d(3, 4)" + costs + "node2 -- ReLU" + costs + edges;
}

std::vector<Foreign> foreign_files() {
    const std::string number = "expected a number of milliseconds";
    return {
        {"hf", R"({"model_type": "mamba3"})", hf_options, "/model_type: \"mamba3\"", "profile"},
        {"hf", R"({"hidden_size": 8})", hf_options, "/model_type: missing", "config.json"},
        {"hf", R"({"model_type": "llama"})", hf_options, "missing, expected", "model_type"},
        {"hf", "hello", hf_options, ":1:1: invalid literal", ""},
        {"hf", "\x1f\x8b\x08", hf_options, ":1:1: a file packed by gzip, expected JSON", "unpack"},
        {"hf", "\xFF\xFE{", hf_options, ":1:1: a text in UTF-16, expected JSON", "iconv"},
        {"hf", "<html>", hf_options, ":1:1: a page of HTML or XML, expected JSON", "raw file"},
        {"hf", "version https://git-lfs.github.com/spec/v1", hf_options, "Git LFS", "git lfs pull"},
        {"hf",
         testing::with(testing::small_gpt2(), {{"torch_dtype", 16}}).dump(),
         hf_options,
         ": /torch_dtype: 16, expected bfloat16",
         "--precision bf16"},
        {"csv", "name,forward_ms\na,1\n", {}, ":1:1: no column 'backward_ms'", "expected: name"},
        {"csv", csv_with_forward("-1"), {}, ":2:3: forward_ms = '-1', " + number, ""},
        {"csv", csv_with_forward("nan"), {}, ":2:3: forward_ms = 'nan', " + number, ""},
        {"csv", csv_with_forward("1e400"), {}, ":2:3: forward_ms = '1e400', " + number, ""},
        {"pipedream",
         graph_with("\tnode1 -- node2\n\tnode2 -- node1\n"),
         {"--micro-batch-size", "4"},
         "the edges make a cycle: node1 -- node2 -- node1",
         "take one of these edges out"},
        {"pipedream",
         graph_with("\tnode1 -- node3\n"),
         {"--micro-batch-size", "4"},
         ":3:11: no line describes node 'node3'",
         "did you mean"},
        {"torch-trace",
         R"({"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 0,
             "tid": 0}], "distributedInfo": {"rank": 0, "world_size": 1}})",
         {"--micro-batch-size", "4"},
         "no ranges of a forward, named PP:0F3",
         "record_function"},
    };
}

TEST_F(BadInput, FilesOfOtherToolsAreRefusedWithPlaceAndRemedy) {
    for (const Foreign& one : foreign_files()) {
        SCOPED_TRACE(one.content);
        const std::string input = file("input", one.content);
        const Outcome outcome = pipetwin(
            joined({"import", one.name, input, "--out", path("out.profile.json")}, one.options));
        EXPECT_EQ(outcome.code, 3);
        EXPECT_THAT(outcome.err, ::testing::HasSubstr("error: " + input));
        EXPECT_THAT(outcome.err, ::testing::HasSubstr(one.said));
        EXPECT_THAT(outcome.err, ::testing::HasSubstr(one.hint));
        EXPECT_FALSE(std::filesystem::exists(path("out.profile.json")));
    }
}

TEST_F(BadInput, WeightsThatEndInTheirHeaderAreRefused) {
    const std::string config = file("config.json",
                                    R"({"model_type": "gpt2", "n_layer": 1, "n_head": 2,
        "n_embd": 16, "n_positions": 512, "vocab_size": 100, "torch_dtype": "bfloat16"})");
    using namespace std::string_view_literals;
    const std::string weights = file("cut.safetensors", "\x10\0\0\0\0\0\0\0{\"a\""sv);
    const Outcome outcome = pipetwin(joined(
        {"import", "hf", config, "--weights", weights, "--out", path("out.json")}, hf_options));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                ::testing::HasSubstr(weights + ": byte 12: the file ends in its header"));
    EXPECT_THAT(outcome.err, ::testing::HasSubstr("hint: the file was cut off"));
}

/// Costs of one layer for one sample, eight of which make a mini-batch.
TEST_F(BadInput, ScenariosThatAskForWhatIsNotThereAreRefusedWithARemedy) {
    file("x.csv", csv_with_forward("1"));
    const std::string scenario = file("x.toml",
                                      R"toml([model]
kind = "profile"
file = "x.csv"
[training]
batch = 8
)toml");
    struct Wrong {
        std::vector<std::string> settings;
        int code;
        std::string said;
        std::string hint;
    };
    const std::vector<Wrong> all{
        {{"pipeline.micro_batches=1"},
         3,
         "costs are known for micro-batches of 1 sample, but these have 8",
         "set pipeline.micro_batches to a number from 4 to 8"},
        {{"cluster.memory_limit=0"}, 3, "--set cluster.memory_limit: 0, expected", ""},
        {{"pipeline.data_parallel=3", "cluster.count=3"},
         3,
         "training.batch = 8 cannot be shared out to pipeline.data_parallel = 3 replicas",
         "set batch to a multiple of 3"},
        {{"pipeline.micro_batches=8", "cluster.memory_limit=10"},
         4,
         "needs more than the limit of 10 B",
         "use devices with more memory"},  // one layer, samples one by one, all recomputed
    };
    for (const Wrong& one : all) {
        std::vector<std::string> args{"simulate", scenario};
        for (const std::string& setting : one.settings) {
            args.insert(args.end(), {"--set", setting});
        }
        const Outcome outcome = pipetwin(args);
        EXPECT_EQ(outcome.code, one.code) << one.said;
        EXPECT_THAT(outcome.err, ::testing::HasSubstr(one.said));
        EXPECT_THAT(outcome.err, ::testing::HasSubstr(one.hint));
    }
}

// Behind a byte of value 0 a parser may see the end, and take half a file for a whole one.
TEST_F(BadInput, BytesBehindAByteOfValueZeroAreRefusedByEveryReaderOfText) {
    struct Reader {
        std::vector<std::string> words;  ///< FILE stands for the file's path
        std::string content;
    };
    const std::string profile = file("costs.csv", small_profile);
    const std::string scenario = file("s.toml", small_scenario);
    const std::vector<Reader> readers{
        {{"check", "FILE"}, std::string(schedule)},
        {{"import", "torch-csv", "FILE"}, std::string(schedule)},
        {{"simulate", "FILE", "--profile", profile}, std::string(small_scenario)},
        {{"simulate", scenario, "--profile", "FILE"}, std::string(small_profile)},
        {{"import", "csv", "FILE"}, std::string(small_profile)},
        {{"import", "megatron", "FILE"}, "Et|tL"},
        {{"import", "megatron", "FILE"},
         "python pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 "
         "--seq-length 8 --vocab-size 100 --micro-batch-size 1 --global-batch-size 2\n"},
        {{"import", "megatron", "FILE"}, "num_layers: 2\nhidden_size: 8\n"},
        {{"import", "torchtitan", "FILE"}, "[training]\nlocal_batch_size = 4\n"},
        {{"import", "deepspeed", "FILE"},
         R"({"train_batch_size": 8, "gradient_accumulation_steps": 2})"},
    };
    for (const Reader& reader : readers) {
        const bool is_table = reader.words.back() == "FILE" && reader.words.front() == "simulate";
        const std::string name = reader.words.front() == "check" || is_table ? "x.csv" : "x.toml";
        for (const std::string_view tail :
             {std::string_view("\0", 1), std::string_view("\0[{x", 5)}) {
            const std::string path = file(name, reader.content + std::string(tail));
            std::vector<std::string> words = reader.words;
            std::ranges::replace(words, std::string("FILE"), path);
            if (words.front() == "import") {
                words.insert(words.end(), {"--out", this->path("out"), "--force"});
            }
            const Outcome outcome = pipetwin(words);
            EXPECT_EQ(outcome.code, 3) << words[0] << ' ' << words[1] << outcome.err;
            EXPECT_THAT(outcome.err, ::testing::HasSubstr("hint: ")) << words[1];
        }
    }
}

}  // namespace bad_input_test
}  // namespace pipetwin::cli
