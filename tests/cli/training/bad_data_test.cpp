// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace bad_data_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr std::string_view costs =
    "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
    "embedding,0.01,0.02,64,64,3456\n"
    "block0.attention,0.01,0.02,64,64,1216\n"
    "block0.feed_forward,0.01,0.02,64,64,2272\n"
    "head,0.01,0.02,0,64,3664\n";

/// A hundred different tokens, and a model that knows no more.
constexpr std::string_view scenario = R"toml([model]
kind = "gpt"
layers = 1
d_model = 8
heads = 1
context = 8
vocabulary = 100
[data]
kind = "tokens"
path = "tokens.bin"
[training]
batch = 4
steps = 1000000
[pipeline]
micro_batches = 2
)toml";

/// Tokens of two bytes, as nanoGPT writes them.
std::string tokens(std::size_t count) {
    std::string bytes(2 * count, '\0');
    for (std::size_t i = 0; i < count; ++i) {
        bytes[2 * i] = static_cast<char>(i * 37 % 100);
    }
    return bytes;
}

class BadData : public InFolder {
  protected:
    std::vector<std::string> train(const std::string& run,
                                   const std::vector<std::string>& more = {}) const {
        return joined({"train",
                       file("gpt.toml", scenario),
                       "--profile",
                       file("costs.csv", costs),
                       "--out",
                       path(run)},
                      more);
    }

    int steps_done(const std::string& run) const {
        const std::string lines = content_of(folder() / run / run_file::metrics);
        return static_cast<int>(std::ranges::count(lines, '\n'));
    }

    /// The checkpoint holds all steps that the metrics have, and the training goes on from it.
    void expect_goes_on(const std::string& run, const std::string& err) const {
        const int steps = steps_done(run);
        EXPECT_THAT(err, HasSubstr(fmt::format("--resume continues with step {}", steps)));
        EXPECT_TRUE(std::filesystem::exists(folder() / run / run_file::checkpoints /
                                            fmt::format("step-{:08}", steps)));
        const Outcome rest = pipetwin(
            train(run, {"--resume", "--set", fmt::format("training.steps={}", steps + 2)}));
        EXPECT_EQ(rest.code, 0) << rest.err;
        EXPECT_EQ(steps_done(run), steps + 2);
    }
};

// The process was ended by SIGBUS, with no word and no checkpoint.
TEST_F(BadData, AFileOfTokensThatShrinksEndsTheTrainingWithAPlaceAndACheckpoint) {
    const std::string whole = tokens(40'000);
    file("tokens.bin", whole);
    Child child(train("run"), path("run"));
    ASSERT_TRUE(has_lines(folder() / "run" / run_file::metrics, 5));
    std::filesystem::resize_file(path("tokens.bin"), 20'000);
    const Outcome outcome = child.end();
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err,
                ContainsRegex("tokens.bin: byte [0-9]+: the file ends here, but had 80000 bytes"));
    file("tokens.bin", whole);
    expect_goes_on("run", outcome.err);
}

TEST_F(BadData, ATokenBeyondTheVocabularyIsFoundBeforeTheFirstStepAndLeavesNoFolder) {
    std::string bytes = tokens(40'000);
    bytes[70'002] = 100;
    file("tokens.bin", bytes);
    const Outcome outcome = pipetwin(train("run"));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                HasSubstr("tokens.bin: byte 70002: token 100, but the model knows those from 0 to "
                          "99"));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(BadData, InAFileTooLargeToWaitForItIsFoundSoonAndAfterACheckpoint) {
    std::string bytes = tokens(100'000'000);
    bytes[199'000'000] = 100;
    file("tokens.bin", bytes);
    const Outcome outcome = pipetwin(train("run"));
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("tokens.bin: byte 199000000: token 100"));
    if (!std::filesystem::exists(path("run"))) {
        return;  // it was found before the first step
    }
    bytes[199'000'000] = 1;
    file("tokens.bin", bytes);
    expect_goes_on("run", outcome.err);
}

TEST_F(BadData, InHeldOutDataItIsFoundBeforeTheFirstStepToo) {
    file("tokens.bin", tokens(40'000));
    std::string bytes = tokens(1000);
    bytes[10] = 100;
    file("held-out.bin", bytes);
    const Outcome outcome = pipetwin(train(
        "run", {"--set", "data.validation=held-out.bin", "--set", "training.validate_every=1000"}));
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("held-out.bin: byte 10: token 100"));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

}  // namespace bad_data_test
}  // namespace pipetwin::cli
