// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/yaml_settings.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace yaml_settings_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

std::vector<std::string> settings_of(std::string_view text) {
    std::vector<std::string> result;
    for (const Setting& setting : parse_yaml_settings(text, "x.yaml").settings) {
        std::string line = setting.written + " (" + setting.name + ")";
        for (const SettingWord& word : setting.values) {
            line += word.unknown.empty() ? " " + word.text : " ?" + word.unknown;
        }
        result.push_back(line);
    }
    return result;
}

TEST(YamlSettings, AnExperimentOfPrimusIsItsOverrides) {
    const LaunchFile file = parse_yaml_settings(
        "work_group: ${PRIMUS_TEAM:amd}\n"
        "modules:\n"
        "  pre_trainer:\n"
        "    framework: megatron\n"
        "    # model to run\n"
        "    model: ${PRIMUS_MODEL:llama3_8B}.yaml\n"
        "    overrides:\n"
        "      micro_batch_size: 2\n"
        "      seq_length: ${PRIMUS_SEQ:8192}  # tokens\n"
        "      pipeline_model_parallel_size: ${PRIMUS_PP}\n"
        "      save: null\n"
        "      load:\n",
        "x.yaml");
    EXPECT_THAT(file.models, ElementsAre("llama3_8B.yaml"));
    ASSERT_EQ(file.settings.size(), 7U);
    EXPECT_EQ(file.settings[0].name, "work-group");
    EXPECT_EQ(file.settings[5].name, "save");
    EXPECT_EQ(file.settings[6].name, "load");
    for (const Setting& setting : file.settings) {
        EXPECT_EQ(setting.is_unset, setting.name == "save" || setting.name == "load");
    }
    EXPECT_EQ(file.settings[2].written, "micro_batch_size");
    EXPECT_EQ(file.settings[2].name, "micro-batch-size");
    EXPECT_EQ(file.settings[2].place, "x.yaml:8:7");
    EXPECT_THAT(file.settings[2].sections, ElementsAre("modules", "pre_trainer", "overrides"));
    EXPECT_EQ(file.settings[3].values.front().text, "8192");
    EXPECT_EQ(file.settings[3].values.front().place, "x.yaml:9:19");
    EXPECT_EQ(file.settings[4].values.front().unknown, "${PRIMUS_PP}");
}

TEST(YamlSettings, AFileOfMegatronBridgeHasTables) {
    EXPECT_THAT(settings_of("model:\n"
                            "  num_layers: 32\n"
                            "  normalization: \"RMSNorm\"\n"
                            "  layout:\n"
                            "    - [embedding, decoder]\n"
                            "    - [decoder, loss]\n"
                            "  other: [[embedding], [loss]]\n"
                            "train: \n"
                            "  micro_batch_size: 1\n"),
                ElementsAre("model.num_layers (num-layers) 32",
                            "model.normalization (normalization) RMSNorm",
                            "model.layout (layout) [embedding, decoder] [decoder, loss]",
                            "model.other (other) [[embedding], [loss]]",
                            "train.micro_batch_size (micro-batch-size) 1"));
}

TEST(YamlSettings, ListsQuotesCommentsAndTextsAreRead) {
    EXPECT_THAT(settings_of("---\n"
                            "a: [1, 'two', \"3 # 4\"]\n"
                            "b:\n"
                            "- 1\n"
                            "- x: 2\n"
                            "  y: 3\n"
                            "- 4\n"
                            "text: |\n"
                            "  c: 5\n"
                            "'d e': 'it'\n"),
                ElementsAre("a (a) 1 two 3 # 4", "b (b) 1 4", "d e (d e) it"));
    const LaunchFile file = parse_yaml_settings("extends:\n  - base.yaml\nx: 1\n", "x.yaml");
    EXPECT_THAT(file.models, ElementsAre("base.yaml"));
}

TEST(YamlSettings, IsKnownByItsFirstLine) {
    EXPECT_TRUE(is_yaml("# x\n\nwork_group: a\n"));
    EXPECT_TRUE(is_yaml("---\nx: 1\n"));
    EXPECT_TRUE(is_yaml("\xEF\xBB\xBFmodel:\n"));
    EXPECT_FALSE(is_yaml("--num-layers 8"));
    EXPECT_FALSE(is_yaml("#!/bin/bash\nexport X=1:2\n"));
    EXPECT_FALSE(is_yaml("Et*3|(tt|)*29,m|L\n"));
    EXPECT_FALSE(is_yaml(""));
}

TEST(YamlSettings, WhatIsNotUnderstoodIsRefusedWithItsPlace) {
    const auto refused = [](std::string_view text) {
        const Error error = error_of([&] { parse_yaml_settings(text, "x.yaml"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(error.hint(), "");
        return error.place() + ": " + error.text();
    };
    EXPECT_EQ(refused("a:\n\tb: 1\n"),
              "x.yaml:2:2: a tab as indentation, which YAML does not take");
    EXPECT_THAT(refused("a: 1\nb 2\n"), HasSubstr("x.yaml:2:1: 'b 2' is not a key with a value"));
    EXPECT_THAT(refused("a: &x 1\n"), HasSubstr("anchor"));
    EXPECT_THAT(refused("a:\n  <<: *x\n"), HasSubstr("x.yaml:2:3"));
    EXPECT_THAT(refused("a: {b: 1}\n"), HasSubstr("mapping in braces"));
    EXPECT_THAT(refused("a: 1\n---\na: 2\n"), HasSubstr("second document"));
    EXPECT_THAT(refused("a: 1\na: 2\n"), HasSubstr("'a' is here a second time"));
    EXPECT_THAT(refused("a: [1,\n 2]\n"), HasSubstr("the list does not end in its line"));
}

}  // namespace yaml_settings_test
}  // namespace pipetwin
