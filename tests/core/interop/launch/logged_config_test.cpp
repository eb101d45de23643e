// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/logged_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace logged_config_test {

using testing::error_of;
using ::testing::HasSubstr;

nlohmann::json config_of(const std::string& text) {
    return nlohmann::json::parse(logged_config(text, titan_config_marks, "x.log").json);
}

/// Python writes a dict with single quotes, or double ones around an apostrophe.
TEST(LoggedConfig, ADictOfPythonIsJson) {
    const std::string line =
        "[rank0]:2025-10-01 - root - INFO - Running with args: {'job': {'description': \"it's a "
        "[test]\", 'print_config': True}, 'training': {'seq_len': 8192, 'dataset_path': None, "
        "'lr': 8e-04, 'dtype': torch.bfloat16, 'betas': (0.9, 0.95), 'one': (1,)}, "
        "'hook': <class 'a.B'>, 'empty': [], 'path': PosixPath('a, b')} and more\n";
    const nlohmann::json expected{
        {"job", {{"description", "it's a [test]"}, {"print_config", true}}},
        {"training",
         {{"seq_len", 8192},
          {"dataset_path", nullptr},
          {"lr", 8e-04},
          {"dtype", "torch.bfloat16"},
          {"betas", nlohmann::json::array({0.9, 0.95})},
          {"one", nlohmann::json::array({1})}}},
        {"hook", "<class 'a.B'>"},
        {"empty", nlohmann::json::array()},
        {"path", "PosixPath('a, b')"}};
    EXPECT_EQ(config_of("first\n" + line), expected);
    EXPECT_EQ(logged_config("first\n" + line, titan_config_marks, "x.log").line, 2);
}

/// Launchers put the rank in front of every line, and other ranks and programs write in between.
TEST(LoggedConfig, JsonGoesOverLinesOfOneRank) {
    const std::string text =
        "[rank1]:starts\n"
        "[rank0]:[titan] INFO - Running with configs: {\n"
        "[rank0]:  \"training\": {\n"
        "[rank1]:  \"training\": {\n"
        "[rank0]:[2026-02-01 10:00:00,123] [INFO] another says {\n"
        "[rank0]:    \"text\": \"a } in quotes\",\n"
        "[rank0]:    \"seq_len\": 4096\n"
        "[rank0]:  }\n"
        "[rank0]:}\n"
        "[rank0]:step: 1 }\n";
    const nlohmann::json inside{{"text", "a } in quotes"}, {"seq_len", 4096}};
    EXPECT_EQ(config_of(text), (nlohmann::json{{"training", inside}}));
}

TEST(LoggedConfig, WhatIsNoConfigurationIsSaidWithItsLine) {
    const auto error = [](const std::string& text) {
        return std::string(
            error_of([&] { logged_config(text, titan_config_marks, "x.log"); }).what());
    };
    EXPECT_THAT(error("a\nRunning with args: {'a': 1,\n"),
                HasSubstr("x.log:2: the configuration "
                          "that is printed here has no "
                          "end"));
    EXPECT_THAT(error("Running with args: {'a' 1}\n"), HasSubstr("neither JSON nor a dict"));
    EXPECT_THAT(error("Running with args: {'a': 1}\n\nRunning with args: {'a': 2}\n"),
                HasSubstr("x.log:3: another configuration than in line 1"));
    const std::string both = "Running with args: {'a': 1}\nRunning with configs: {\"a\": 1}\n";
    EXPECT_EQ(config_of(both), (nlohmann::json{{"a", 1}}));
    EXPECT_FALSE(has_logged_config("Running with args: none", titan_config_marks));
}

}  // namespace logged_config_test
}  // namespace pipetwin
