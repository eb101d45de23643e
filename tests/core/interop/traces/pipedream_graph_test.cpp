// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/pipedream_graph.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/costs/profile_json.h"
#include "tests/support/code_blocks.h"
#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace pipedream_graph_test {

using testing::error_of;

/// A residual block, written down in no useful order: 1 -> 2 -> (3 -> 4, 5) -> 6, 6 reads 4 and 5.
constexpr std::string_view branches =
    "node6 -- Add(inplace) -- forward_compute_time=0.250, backward_compute_time=0.500, "
    "activation_size=400.0, parameter_size=0.000 -- stage_id=1\n"
    "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=[60.0; 40.0], parameter_size=0.000 -- stage_id=0\n"
    "node2 -- Conv2d(3, 64, kernel_size=(7, 7)) -- forward_compute_time=1.500, "
    "backward_compute_time=3.001, activation_size=200.0, parameter_size=37632.000 -- stage_id=0\r\n"
    "node5 -- Identity() -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=200.0, parameter_size=0.000 -- stage_id=1\n"
    "node3 -- BatchNorm2d(64, eps=1e-05) -- forward_compute_time=0.100, "
    "backward_compute_time=0.200, activation_size=200.0, parameter_size=512.000 -- stage_id=0\n"
    "\n"
    "node4 -- ReLU(inplace) -- forward_compute_time=0.050, backward_compute_time=0.060, "
    "activation_size=200.0, parameter_size=0.000 -- stage_id=1\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n"
    "\tnode3 -- node4\n"
    "\tnode2 -- node5\n"
    "\tnode4 -- node6\n"
    "\tnode5 -- node6\n"
    "\tnode5 -- node6\n";

std::string node(std::string_view name, std::string_view description = "Linear(4)") {
    return fmt::format(
        "{} -- {} -- forward_compute_time=1, backward_compute_time=2, activation_size=8, "
        "parameter_size=4\n",
        name,
        description);
}

std::vector<std::string> names(const Profile& profile) {
    std::vector<std::string> all;
    for (const LayerCost& layer : profile.layers) {
        all.push_back(layer.name);
    }
    return all;
}

TEST(ParsePipeDreamGraph, KeepsBranchesAndPutsEveryLayerBehindItsInputs) {
    const PipeDreamGraph graph = parse_pipedream_graph(branches, "graph.txt", 32);
    const Profile& profile = graph.profile;
    EXPECT_EQ(profile.source, CostSource::Imported);
    EXPECT_EQ(names(profile),
              (std::vector<std::string>{"node2", "node3", "node5", "node4", "node6"}));
    EXPECT_EQ(profile.layers[2].inputs, std::vector<std::string>{"node2"});
    EXPECT_EQ(profile.layers[3].inputs, std::vector<std::string>{"node3"});
    EXPECT_EQ(profile.layers[4].inputs, (std::vector<std::string>{"node4", "node5"}));
    EXPECT_TRUE(profile.layers[0].inputs.empty());
    EXPECT_TRUE(profile.layers[1].inputs.empty());  // the layer before
    EXPECT_EQ(graph.model_inputs, std::vector<std::string>{"node1"});
    EXPECT_EQ(graph.partition, (std::vector<int>{2, 3}));
}

TEST(ParsePipeDreamGraph, ReadsMillisecondsAndBytesOfTheMiniBatch) {
    const Profile profile = parse_pipedream_graph(branches, "graph.txt", 32).profile;
    EXPECT_EQ(profile.layers[0],
              (LayerCost{.name = "node2",
                         .kind = "Conv2d",
                         .parameter_bytes = Bytes{37632},
                         .samples = {{.micro_batch_size = 32,
                                      .forward = Duration{1'500'000},
                                      .backward_input = Duration{1'500'500},
                                      .backward_weight = Duration{1'500'500},
                                      .input = Bytes{60 + 40},
                                      .output = Bytes{200},
                                      .saved = Bytes{60 + 40}}}}));
    // Nothing to learn: the whole backward makes the gradient of the input. Both inputs are kept.
    const LayerSample& add = profile.layers[4].samples[0];
    EXPECT_EQ(add.backward_input, Duration{500'000});
    EXPECT_EQ(add.backward_weight, Duration{});
    EXPECT_EQ(add.saved, Bytes{200 + 200});
}

TEST(ParsePipeDreamGraph, SeveralLayersThatReadTheInputStandBehindOneForIt) {
    const PipeDreamGraph graph = parse_pipedream_graph(
        node("node1", "Input0") + node("node2", "Input1") + node("node3") + node("node4") +
            node("node5") +
            "\tnode1 -- node3\n\tnode2 -- node4\n\tnode3 -- node5\n\tnode4 -- "
            "node5\n",
        "graph.txt",
        1);
    ASSERT_EQ(names(graph.profile), (std::vector<std::string>{"input", "node3", "node4", "node5"}));
    EXPECT_EQ(graph.profile.layers[0].samples[0].output, Bytes{8 + 8});
    EXPECT_EQ(graph.profile.layers[2].inputs, std::vector<std::string>{"input"});
    EXPECT_EQ(graph.model_inputs, (std::vector<std::string>{"node1", "node2"}));
    EXPECT_TRUE(graph.partition.empty());  // no stage is named
}

TEST(ParsePipeDreamGraph, StagesThatGoBackAreNoPartition) {
    std::string text(branches);
    text.replace(text.find("stage_id=1"), 10, "stage_id=0");  // of node6, behind stage 1
    EXPECT_TRUE(parse_pipedream_graph(text, "graph.txt", 1).partition.empty());
}

TEST(ParsePipeDreamGraph, ReadsTheExampleOfItsDocumentation) {
    for (const std::string& block : testing::code_blocks("docs/formats.md", "")) {
        if (block.starts_with("node1")) {
            const Profile profile = parse_pipedream_graph(block, "docs/formats.md", 64).profile;
            EXPECT_EQ(profile.layers.size(), 4U);
            EXPECT_EQ(parse_profile(print_profile(profile), "x"), profile);
            return;
        }
    }
    FAIL() << "no example found";
}

struct Breach {
    std::string text;
    std::string place;
    std::string what;  ///< part of the error
    std::string hint;  ///< part of it
};

TEST(ParsePipeDreamGraph, RefusesWithLineAndColumn) {
    const std::string a = node("node1");
    const std::string values =
        "forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=4";
    const std::vector<Breach> breaches{
        {"", "g", "no node but the model's input", ""},
        {node("node1", "Input0"), "g", "no node but the model's input", ""},
        {"node1 -- node2\n", "g:1:1", "2 parts between \" -- \"", "begins with a TAB"},
        {"hello\n", "g:1:1", "1 part between \" -- \"", ""},
        {a + "\tnode1\n", "g:2:2", "'node1' is not an edge, expected a TAB and two nodes", ""},
        {a + "\tnode1 -- mode1\n", "g:2:11", "no line describes node 'mode1'", "mean 'node1'?"},
        {a + "\n\tstrange -- node1\n", "g:3:2", "no line describes node 'strange'", "a line of"},
        {a + a, "g:2:1", "node 'node1' a second time", ""},
        {"n -- d -- forward=1\n", "g:1:11", "'forward=1', expected KEY=NUMBER", "forward_compute"},
        {"n -- d -- forward_compute_time=1\n", "g:1:11", "no backward_compute_time", ""},
        {"n -- d -- forward_compute_time=-1\n", "g:1:32", "= '-1', expected a number of milli", ""},
        {"n -- d -- forward_compute_time=nan\n", "g:1:32", "= 'nan', expected a number of", ""},
        {"n -- d -- forward_compute_time=1 ms\n", "g:1:32", "= '1 ms'", ""},
        {"n -- d -- forward_compute_time=1e16\n", "g:1:32", "= '1e16'", ""},
        {"n -- d -- activation_size=[1; x]\n", "g:1:31", "= 'x', expected a number of bytes", ""},
        {"n -- d -- activation_size=[1, 2]\n", "g:1:27", "= '[1', expected a number of bytes", ""},
        {"n -- d -- parameter_size=1, parameter_size=1\n", "g:1:29", "a second time", ""},
        {"n -- d -- " + values + " -- stage=1\n", "g:1:99", "'stage=1', expected stage_id=0", ""},
        {"n -- \xff -- " + values + "\n", "g:1:1", "not UTF-8 text", ""},
    };
    for (const Breach& breach : breaches) {
        const Error error = error_of([&] { parse_pipedream_graph(breach.text, "g", 1); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), breach.place) << error.what();
        EXPECT_NE(error.text().find(breach.what), std::string::npos) << error.what();
        EXPECT_NE(error.hint().find(breach.hint), std::string::npos) << error.what();
    }
}

TEST(ParsePipeDreamGraph, NamesTheNodesOfACycle) {
    const Error error = error_of([] {
        parse_pipedream_graph(
            node("node9") + node("node1") + node("node2") + node("node3") +
                "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node1\n\tnode3 -- node9\n",
            "g",
            1);
    });
    EXPECT_EQ(error.text(), "the edges make a cycle: node3 -- node1 -- node2 -- node3");
}

TEST(ParsePipeDreamGraph, ThrowsNothingButErrorForDamagedTexts) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < tests::soaked(1000); ++round) {
        const std::string damaged = testing::mutated(std::string(branches), random);
        try {
            const Profile profile = parse_pipedream_graph(damaged, "graph.txt", 1).profile;
            ASSERT_EQ(parse_profile(print_profile(profile), "x.json"), profile) << damaged;
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty()) << damaged;
        } catch (const std::exception& other) {
            FAIL() << other.what() << "\nfor\n" << damaged;
        }
    }
}

}  // namespace pipedream_graph_test
}  // namespace pipetwin
