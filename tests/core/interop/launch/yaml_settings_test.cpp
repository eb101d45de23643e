// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/yaml_settings.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
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
                            "model.other (other) [embedding] [loss]",
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
              "x.yaml:2:1: a tab as indentation, which YAML does not take");
    EXPECT_EQ(refused("a: 1\nb 2\n"), "x.yaml:2:1: 'b 2' is not a key with a value");
    EXPECT_EQ(refused("- a\n"), "x.yaml:1:1: no name of a key here");
    EXPECT_EQ(refused("? [a]\n: 1\n"), "x.yaml:1:3: no name of a key here");
    EXPECT_EQ(refused("a: 1\n---\na: 2\n"),
              "x.yaml:2:1: a second document begins here, expected one");
    const std::string again = " is here a second time, first in line 1, with another value";
    EXPECT_EQ(refused("a: 1\na: 2\n"), "x.yaml:2:1: the key 'a'" + again);
    EXPECT_EQ(refused("a: 1\na: \"1\"\n"), "x.yaml:2:1: the key 'a'" + again);
    EXPECT_EQ(refused("a:\n  \"b\": 1\n  b: 2\n"),
              "x.yaml:3:3: the key 'b' is here a second time, first in line 2, with another value");
    const LaunchFile same = parse_yaml_settings("a: 1\nb: x\na: 1\n", "x.yaml");
    EXPECT_EQ(same.settings.size(), 2U);
    EXPECT_EQ(same.notes,
              std::vector<std::string>{"x.yaml:3:1: the key 'a' is here a second time, with the "
                                       "value that it has in line 1"});
    EXPECT_EQ(
        refused("a: 1\nb: [1,\n 2\n"),
        "x.yaml:2:4: '[1,' is not YAML that can be read here: end of sequence flow not found");
    EXPECT_EQ(refused("a: b: c\n"),
              "x.yaml:1:5: ': c' is not YAML that can be read here: illegal map value");
    EXPECT_EQ(refused("a: 1\nb: \"two\nc: 3\n"), "x.yaml:2:4: the quotes are not closed");
    EXPECT_EQ(refused("a: \x04 1\n"), "x.yaml:1:4: the byte 0x04, which YAML does not take");
    EXPECT_EQ(refused("a: !ENV ${X}\n"), "x.yaml:1:4: the tag '!ENV', which is not understood");
    EXPECT_THAT(refused(","), HasSubstr("second document"));
}

TEST(YamlSettings, AliasesAndMergeKeysStandForWhatTheyName) {
    EXPECT_THAT(settings_of("base: &base {hidden_size: 64, num_layers: 8}\n"
                            "sizes: &sizes [1, 2]\n"
                            "model:\n"
                            "  <<: *base\n"
                            "  num_layers: 12\n"
                            "  sizes: *sizes\n"
                            "train:\n"
                            "  <<: [{lr: 1}, {lr: 2, wd: 3}]\n"),
                ElementsAre("base.hidden_size (hidden-size) 64",
                            "base.num_layers (num-layers) 8",
                            "sizes (sizes) 1 2",
                            "model.num_layers (num-layers) 12",
                            "model.sizes (sizes) 1 2",
                            "model.hidden_size (hidden-size) 64",
                            "train.lr (lr) 1",
                            "train.wd (wd) 3"));
}

TEST(YamlSettings, AliasesOfAliasesAndDeepNestingEndInARefusal) {
    const auto refused = [](const std::string& text) {
        return error_of([&] { parse_yaml_settings(text, "x.yaml"); }).text();
    };
    std::string laughs = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
    std::string mappings = "a0: &a0 {x: 1}\n";
    for (int i = 1; i < 40; ++i) {
        laughs += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}]\n", i, i - 1);
        mappings += fmt::format("a{0}: &a{0} {{<<: [*a{1}, *a{1}]}}\n", i, i - 1);
    }
    EXPECT_EQ(refused(laughs), "aliases stand for more than 10000 values");
    EXPECT_EQ(refused(mappings), "aliases stand for more than 10000 values");
    EXPECT_EQ(refused("a: &a [*a]\n"), "a value that holds itself");
    EXPECT_EQ(refused("a: " + std::string(100'000, '[')),
              "more than 64 levels of mappings and lists");
}

// What PyYAML 6 and OmegaConf read, by PyYAML's resolver.
TEST(YamlSettings, PlainScalarsAreThoseOfYaml11) {
    for (const auto& [written, read] : {std::pair{"yes", "true"},
                                        std::pair{"Off", "false"},
                                        std::pair{"True", "True"},
                                        std::pair{"'on'", "on"},
                                        std::pair{"!!str on", "on"},
                                        std::pair{"0x20", "32"},
                                        std::pair{"040", "32"},
                                        std::pair{"0b100000", "32"},
                                        std::pair{"+32", "32"},
                                        std::pair{"-3_2", "-32"},
                                        std::pair{"12:30", "750"},
                                        std::pair{"1:0:0", "3600"},
                                        std::pair{"1:60", "1:60"},
                                        std::pair{"1:000", "1:000"},
                                        std::pair{"0:32", "0:32"},
                                        std::pair{"0o17", "0o17"},
                                        std::pair{"1e6", "1e6"},
                                        std::pair{"_1", "_1"},
                                        std::pair{"\"nu\\x6cl\"", "null"}}) {
        const LaunchFile file = parse_yaml_settings(fmt::format("a: {}\n", written), "x.yaml");
        EXPECT_EQ(file.settings.front().values.front().text, read) << written;
    }
}

TEST(YamlSettings, DamagedTextsAreReadOrRefusedWithAPlace) {
    const std::string text =
        "# \xC3\xA4\nbase: &b {x: 1, 'y': \"2\"}\nmodel:\n  <<: *b\n  list:\n  - [1, 2]\n  - z: ~\n"
        "  text: |\n    a\n  key: ${A:1} # end\n";
    const std::string_view tokens = " \n:-,[]{}&*#?|>!%@`'\"~\t\x04x0<\r";
    for (std::size_t i = 0; i <= text.size(); ++i) {
        std::vector<std::string> damaged{text.substr(0, i)};
        for (const char token : tokens) {
            damaged.push_back(text.substr(0, i) + token + text.substr(i));
            damaged.push_back(text.substr(0, i) + token +
                              text.substr(std::min(i + 1, text.size())));
        }
        for (const std::string& each : damaged) {
            try {
                parse_yaml_settings(each, "x.yaml");
            } catch (const Error& error) {
                EXPECT_EQ(error.kind(), ErrorKind::BadInput);
                EXPECT_THAT(error.place(), ::testing::MatchesRegex("x.yaml:[0-9]+:[0-9]+")) << each;
            }
        }
    }
}

}  // namespace yaml_settings_test
}  // namespace pipetwin
