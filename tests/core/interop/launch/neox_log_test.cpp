// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/interop/launch/program_logs.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace neox_log_test {

using testing::error_of;
using ::testing::HasSubstr;

/// A line as megatron/neox_arguments/arguments.py prints it.
std::string line(std::string_view name, std::string_view value, std::string_view end = "updated") {
    std::string text = fmt::format("[rank0]:   {} ", name);
    text.append(30 - name.size(), '.');
    text += fmt::format(" {}", value);
    text.append(value.size() < 28 ? 28 - value.size() : 0, '.');
    return text + std::string(end) + "\n";
}

std::string block(std::string_view layers, bool has_end = true) {
    return "-------------------- arguments --------------------\n" + line("num_layers", layers) +
           line("hidden_size", "2048") + line("pipe_parallel_size", "2") +
           line("attention_config", "['flash', 'flash', 'flash', 'flash']") +
           line("zero_optimization", "{'stage': 1, 'overlap_comm': True}") +
           line("zero_stage", "1") + line("is_pipe_parallel", "True") +
           line("seq_length", "4096", "default") + line("load", "None") +
           (has_end ? "---------------- end of arguments ----------------\n" : "");
}

TEST(NeoxLog, ArgumentsThatAreNoDefaultsAreSettings) {
    ASSERT_TRUE(has_neox_log(block("4")));
    const LaunchFile file = parse_neox_log("started\n" + block("4"), "x.log");
    std::map<std::string, std::string> found;
    for (const Setting& setting : file.settings) {
        std::string text;
        for (const SettingWord& word : setting.values) {
            text += (text.empty() ? "" : " ") + word.text;
        }
        found[setting.written] = text;
    }
    EXPECT_EQ(found,
              (std::map<std::string, std::string>{{"num_layers", "4"},
                                                  {"hidden_size", "2048"},
                                                  {"pipe_parallel_size", "2"},
                                                  {"attention_config", "flash flash flash flash"},
                                                  {"zero_optimization.stage", "1"},
                                                  {"zero_optimization.overlap_comm", "true"}}));
    EXPECT_TRUE(file.is_printed);
}

TEST(NeoxLog, BlocksThatDifferOrHaveNoEndAreRefusedWithTheirLines) {
    EXPECT_EQ(parse_neox_log(block("4") + block("4"), "x.log").settings.size(), 6U);
    const Error other = error_of([] { parse_neox_log(block("4") + block("6"), "x.log"); });
    EXPECT_EQ(other.place(), "x.log:12");
    EXPECT_THAT(other.text(), HasSubstr("another num_layers than those of line 1"));
    const Error open = error_of([] { parse_neox_log("a\n" + block("4", false), "x.log"); });
    EXPECT_EQ(open.place(), "x.log:2");
}

TEST(NeoxLog, MegatronsArgumentsAreNone) {
    EXPECT_FALSE(
        has_neox_log("------------------------ arguments ------------------------\n"
                     "  pipeline_model_parallel_size .................... 4\n"
                     "-------------------- end of arguments ---------------------\n"));
}

}  // namespace neox_log_test
}  // namespace pipetwin
