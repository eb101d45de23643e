// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "tests/core/scenario/scenario_texts.h"

namespace pipetwin {
namespace scenario_model_test {

using testing::expect_refused;
using testing::gpt;
using testing::layers_text;
using testing::mlp;
using testing::parse;
using testing::refusal;
using testing::Refusal;
using testing::with;

TEST(LayersModel, ExpandsRepeatsAndNests) {
    const Scenario s = parse(layers_text);
    ASSERT_EQ(s.model.layers.size(), 6U);
    EXPECT_EQ(s.model.input, (SampleShape{.positions = 1, .width = 8}));
    EXPECT_FALSE(s.model.layers[1].bias);
    EXPECT_EQ(s.model.layers[4].name, "block2");
    const Model model = scenario_model(s);
    EXPECT_EQ(model.layer(0).spec.name, "linear0");
    EXPECT_EQ(model.layer(1).spec.name, "linear1");
    EXPECT_EQ(model.layer(2).parameter_count, 2 * 4 + 4 * 4 + 4);
    EXPECT_EQ(model.layer(5).spec.type, LayerType::CrossEntropy);
}

TEST(LayersModel, ReadsTokensWhereItBeginsWithAnEmbedding) {
    const Scenario s = parse(R"([model]
kind = "layers"
layer = [{type = "embedding", outputs = 8, context = 4}, {type = "attention", heads = 2},
         {type = "gelu"}, {type = "linear", outputs = 256}, {type = "cross_entropy"}]
)");
    EXPECT_EQ(s.model.input, (SampleShape{.token_ids = true, .positions = 4}));
    EXPECT_EQ(s.data.kind, DataKind::Text);
    EXPECT_EQ(scenario_model(s).layer(0).parameter_count, 256 * 8 + 4 * 8);
}

TEST(Gelus, HaveAnExactFormAndThatOfTanh) {
    struct Case {
        std::string_view text;
        std::size_t unit;
        std::size_t inner;  ///< of the unit's layers the GELU
    };
    for (const Case& one : {Case{R"([model]
kind = "gpt"
layers = 1
d_model = 8
heads = 2
context = 4
gelu = "tanh"
)",
                                 2,
                                 2},
                            Case{R"([model]
kind = "translation"
layers = 1
d_model = 8
heads = 2
source_context = 4
target_context = 4
activation = "gelu"
gelu = "tanh"
)",
                                 4,
                                 2},
                            Case{R"([model]
kind = "layers"
input = 4
layer = [{type = "sequence", layer = [{type = "gelu", approximate = "tanh"}]},
         {type = "cross_entropy"}]
)",
                                 0,
                                 0}}) {
        const auto gelu_of = [&one](const Scenario& s) {
            return scenario_model(s).layer(static_cast<int>(one.unit)).spec.inner.at(one.inner);
        };
        const Scenario s = parse(one.text);
        EXPECT_EQ(gelu_of(s).type, LayerType::Gelu);
        EXPECT_EQ(gelu_of(s).gelu, GeluForm::Tanh);
        EXPECT_EQ(parse(print_scenario(s)), s);
        for (const auto& [written, exact] : {std::pair{"gelu = \"tanh\"", "gelu = \"exact\""},
                                             {"approximate = \"tanh\"", "approximate = \"none\""},
                                             {"gelu = \"tanh\"", ""}}) {
            if (one.text.find(written) == std::string_view::npos) {
                continue;
            }
            std::string text(one.text);
            text.replace(text.find(written), std::string_view(written).size(), exact);
            EXPECT_EQ(gelu_of(parse(text)).gelu, GeluForm::Exact);
            EXPECT_EQ(parse(print_scenario(parse(text))), parse(text));
        }
    }
}

TEST(Gelus, OfAnotherFormOrOfNoGeluAreRefused) {
    expect_refused(
        {{gpt, "gelu = \"sigmoid\"", "model.gelu = \"sigmoid\", expected one of exact, tanh"},
         {"[model]\nkind = \"layers\"\ninput = 4\n",
          "layer = [{type = \"gelu\", approximate = \"exact\"}]",
          "layer[0].approximate = \"exact\", expected one of none, tanh"},
         {"[model]\nkind = \"layers\"\ninput = 4\n",
          "layer = [{type = \"relu\", approximate = \"tanh\"}]",
          "unknown key 'approximate'"}});
    expect_refused({{testing::translation,
                     "gelu = \"tanh\"",
                     "model.gelu = \"tanh\", expected no such key beside activation = \"relu\""}},
                   "activation = \"gelu\"");
}

// A plan needs no more than the sizes, and scenario.toml of a run folder means the same.
TEST(ImageModels, AreBuiltFromTheirSizes) {
    struct Case {
        std::string_view text;
        int units;
    };
    for (const Case& scenario : {Case{R"([model]
kind = "unet"
depth = 2
convolutions = 1
channels = 4
dropout = 0
image = [32, 32, 1]
)",
                                      29},
                                 Case{R"([model]
kind = "resnet"
depth = 20
classes = 10
projections = false
image = [28, 28, 1]
)",
                                      78},
                                 Case{R"([model]
kind = "amoebanet-d"
layers = 6
filters = 64
classes = 10
variant = "torchgpipe"
image = [64, 64, 3]
)",
                                      12},
                                 Case{R"([model]
kind = "amoebanet-b"
layers = 3
filters = 64
classes = 10
image = [65, 63, 3]
)",
                                      9},
                                 Case{R"([model]
kind = "amoebanet-d"
layers = 3
filters = 64
classes = 10
auxiliary_head = true
drop_path = 0.3
image = [67, 67, 3]
)",
                                      10}}) {
        const Scenario s = parse(scenario.text);
        EXPECT_EQ(scenario_model(s).layer_count(), scenario.units);
        EXPECT_EQ(s.data.kind, DataKind::Synthetic);
        EXPECT_EQ(parse(print_scenario(s)), s);
    }
}

TEST(LayersModel, RefusesWhatIsNoModel) {
    const std::string head = "[model]\nkind = \"layers\"\n";
    const std::vector<Refusal> cases{
        {head, "layer = [{type = \"gelu\"}]", "model.input is missing"},
        {head, "input = 4\nlayer = [{type = \"gelu\"}]", "not a cross_entropy"},
        {head,
         "input = 4\nlayer = [{type = \"lineer\"}]",
         "layer[0].type = \"lineer\", expected one"},
        {head, "input = 4\nlayer = [{outputs = 4}]", "model.layer[0].type is missing"},
        {head, "input = 4\nlayer = [{type = \"gelu\", heads = 2}]", "unknown key 'heads'"},
        {head, "input = 4\nlayer = [{type = \"linear\"}]", "model.layer[0].outputs is missing"},
        {head, "input = 4\nlayer = [{type = \"linear\", outputs = 4, bias = 1}]", "true or false"},
        {head, "input = 4\nlayer = [{type = \"gelu\", repeat = 0}]", "model.layer[0].repeat = 0"},
        {head, "input = 4\nlayer = [{type = \"residual\"}]", "model.layer[0].layer is missing"},
        {head,
         "input = 4\nlayer = [{type = \"sequence\", repeat = 1000, layer = [{type = \"gelu\", "
         "repeat = 1000}]}]",
         "at most 100000 layers"},
        {head,
         "input = 4\nlayer = [{type = \"embedding\", outputs = 2, context = 2}]",
         "model.input = 4, expected no such key"},
        {head,
         "input = 4\nlayer = [{type = \"gelu\", name = \"a\"}, {type = \"gelu\", name = \"a\"}, "
         "{type = \"cross_entropy\"}]",
         "two layers have this name"},
    };
    expect_refused(cases);
    EXPECT_EQ(refusal(with(head, "input = 4\nlayer = [{type = \"lineer\"}]")).hint(),
              "did you mean 'linear'?");
}

constexpr std::string_view branches = R"([model]
kind = "layers"
input = 8

[[model.layer]]
type = "linear"
name = "stem"
outputs = 8

[[model.layer]]
type = "linear"
name = "left"
outputs = 6
repeat = 2

[[model.layer]]
type = "linear"
name = "right"
outputs = 4
inputs = ["stem"]
repeat = 2

[[model.layer]]
type = "concat"
inputs = ["right1", "left1"]

[[model.layer]]
type = "linear"
outputs = 10

[[model.layer]]
type = "cross_entropy"
)";

TEST(LayersModel, OfBranchesReadsItsInputsByName) {
    const Scenario s = parse(branches);
    const Model model = scenario_model(s);
    ASSERT_EQ(model.layer_count(), 8);
    EXPECT_EQ(model.inputs_of(1), (std::vector<int>{0}));
    EXPECT_EQ(model.inputs_of(3), (std::vector<int>{0})) << "the first copy of 'right'";
    EXPECT_EQ(model.inputs_of(4), (std::vector<int>{3})) << "the second reads the first";
    EXPECT_EQ(model.operands_of(5), (std::vector<int>{4, 2}));
    EXPECT_EQ(model.layer(5).output, (SampleShape{.positions = 1, .width = 4 + 6}));
    EXPECT_EQ(model.layer(6).parameter_count, 10 * 10 + 10);
    EXPECT_EQ(parse(print_scenario(s)).model, s.model);
}

TEST(LayersModel, OfBranchesTellsOfEveryFaultWithItsLineAndColumn) {
    std::string text(branches);
    text.replace(text.find("[\"stem\"]"), 8, "[\"stam\"]");
    text.replace(text.find("right1"), 6, "rihgt1");
    const Error error = refusal(text);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:20:10");
    EXPECT_EQ(error.text(),
              "2 faults in its layers:\n"
              "  /home/u/scenarios/s.toml:20:10: model, layer 'right0': reads 'stam', which is no "
              "layer; did "
              "you mean 'stem'?\n"
              "  /home/u/scenarios/s.toml:25:10: model, layer 'concat5': reads 'rihgt1', which is "
              "no layer; "
              "did you mean 'right1'?");
}

TEST(LayersModel, OfBranchesRefusesWhatNoLayerCanRead) {
    const std::string head = "[model]\nkind = \"layers\"\ninput = 4\n";
    expect_refused({
        {head,
         "layer = [{type = \"gelu\", inputs = []}, {type = \"cross_entropy\"}]",
         "model.layer[0].inputs = [], expected the name of at least one layer"},
        {head,
         "layer = [{type = \"gelu\", inputs = \"a\"}, {type = \"cross_entropy\"}]",
         "model.layer[0].inputs = \"a\", expected"},
        {head,
         "layer = [{type = \"residual\", layer = [{type = \"gelu\", inputs = [\"a\"]}]}, "
         "{type = \"cross_entropy\"}]",
         "expected none: a layer of a residual reads the one before it"},
        {head,
         "layer = [{type = \"gelu\", repeat = 3}, {type = \"add\", inputs = [\"gelu0\", "
         "\"gelu2\"], repeat = 2}, {type = \"cross_entropy\"}]",
         "add reads one output, expected two or more"},
    });
}

constexpr std::string_view cells = R"([model]
kind = "layers"
input = 8

[[model.layer]]
type = "linear"
name = "a"
outputs = 6

[[model.layer]]
type = "linear"
name = "b"
outputs = 5

[[model.layer]]
type = "sequence"
name = "cell"
inputs = ["b", "a"]

[[model.layer.layer]]
type = "linear"
name = "x"
outputs = 3
repeat = 2

[[model.layer.layer]]
type = "linear"
name = "y"
inputs = ["input1"]
outputs = 3

[[model.layer.layer]]
type = "sequence"
name = "mix"
inputs = ["x1", "y"]

[[model.layer.layer.layer]]
type = "add"
name = "sum"
inputs = ["input0", "input1"]

[[model.layer]]
type = "cross_entropy"
)";

TEST(LayersModel, OfCellsNamesWhatTheyReadInside) {
    const Scenario s = parse(cells);
    const Model model = scenario_model(s);
    ASSERT_EQ(model.layer_count(), 4);
    EXPECT_EQ(model.operands_of(2), (std::vector<int>{1, 0}));
    EXPECT_EQ(model.layer(2).output, (SampleShape{.positions = 1, .width = 3}));
    EXPECT_EQ(model.layer(2).parameter_count, (5 + 1) * 3 + (3 + 1) * 3 + (6 + 1) * 3);
    EXPECT_EQ(parse(print_scenario(s)).model, s.model);
}

TEST(LayersModel, OfCellsTellsOfEveryFaultWithItsLineAndColumn) {
    std::string text(cells);
    text.replace(text.find("input1"), 6, "input4");
    const Error error = refusal(text);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:18:10");
    EXPECT_EQ(error.text(),
              "2 faults in its layers:\n"
              "  /home/u/scenarios/s.toml:18:10: model, layer 'cell': no layer inside reads "
              "'input1', expected one that does; name it in the inputs of a layer inside, or read "
              "one output fewer\n"
              "  /home/u/scenarios/s.toml:29:10: model, layer 'cell.y': reads 'input4', but 'cell' "
              "reads 2 outputs; they are 'input0' to 'input1'");
    std::string deeper(cells);
    deeper.replace(deeper.rfind("input0\", "), 10, "");
    EXPECT_EQ(refusal(deeper).text(),
              "2 faults in its layers:\n"
              "  /home/u/scenarios/s.toml:35:10: model, layer 'cell.mix': no layer inside reads "
              "'input0', expected one that does; name it in the inputs of a layer inside, or read "
              "one output fewer\n"
              "  /home/u/scenarios/s.toml:40:10: model, layer 'cell.mix.sum': add reads one "
              "output, expected two or more; name them, as in inputs = [\"left\", \"right\"]");
}

std::vector<int> partition_of(std::string_view list, int stages) {
    const Scenario s = parse(
        gpt,
        {{"pipeline.partition", std::string(list)}, {"pipeline.stages", std::to_string(stages)}});
    return scenario_partition(s, scenario_model(s))->layers_per_stage();
}

TEST(ScenarioPartition, CountsWholeBlocksOfAGptOrItsUnits) {
    EXPECT_EQ(partition_of("[2, 2]", 2), (std::vector<int>{5, 5}));
    EXPECT_EQ(partition_of("[1, 2, 1]", 3), (std::vector<int>{3, 4, 3}));
    EXPECT_EQ(partition_of("[4]", 1), (std::vector<int>{10}));
    EXPECT_EQ(partition_of("[3, 7]", 2), (std::vector<int>{3, 7}));
    EXPECT_EQ(scenario_partition(parse(gpt), scenario_model(parse(gpt))), std::nullopt);
}

TEST(ScenarioPartition, RefusesAWrongSumOrLengthNamingBothNumbersAndTheBalancer) {
    const auto refused = [](std::string_view base, std::string_view list, int stages) {
        return refusal(base,
                       {{"pipeline.partition", std::string(list)},
                        {"pipeline.stages", std::to_string(stages)}});
    };
    const Error sum = refused(gpt, "[2, 3]", 2);
    EXPECT_EQ(sum.kind(), ErrorKind::BadInput);
    EXPECT_EQ(sum.text(),
              "[2, 3] sums to 5, expected 4 (whole blocks; the units before and after them go with "
              "the first and the last stage) or 10 (units: 'embedding', 'block0.attention', "
              "'block0.feed_forward', ..., 'head')");
    EXPECT_EQ(sum.hint(), "let the balancer choose: partition = \"auto\"");
    EXPECT_EQ(
        refused(gpt, "[2, 2]", 3).text().substr(0, 104),
        "2 entries for 3 stages, expected one entry per stage, in the order of the model, which "
        "together make 4 (");
    EXPECT_EQ(refused(mlp, "[1, 2]", 2).text(),
              "[1, 2] sums to 3, expected 2 (units: 'linear0', 'linear1')");
    EXPECT_EQ(refused(mlp, "[2, 0]", 2).text(),
              "stage 1 has 0 units, so it would be empty, expected at least 1");
    EXPECT_EQ(refused(gpt, "[2, 0, 2]", 3).text(),
              "stage 1 has 0 whole blocks, so it would be empty, expected at least 1");
}

/// The embedding alone makes a first stage, the head alone a last one.
TEST(ScenarioPartition, TheFirstAndTheLastStageMayHaveNoBlock) {
    EXPECT_EQ(partition_of("[0, 3, 1, 0]", 4), (std::vector<int>{1, 6, 2, 1}));
}

/// A profile by `import hf`, in halves of blocks or in whole ones, and any other with numbered
/// blocks, is cut by its blocks as a gpt is.
TEST(ScenarioPartition, CountsTheBlocksOfAProfile) {
    const auto layers_per_stage = [](std::vector<std::string> names, std::vector<int> list) {
        Profile profile;
        for (std::string& name : names) {
            profile.layers.push_back({.name = std::move(name)});
        }
        const Scenario s = parse("[model]\nkind = \"profile\"\nfile = \"x.profile.json\"\n");
        const auto stages = static_cast<int>(list.size());
        return written_partition(list, stages, scenario_model(s, &profile)).layers_per_stage();
    };
    const std::vector<std::string> whole{"embedding", "block0", "block1", "block2", "head"};
    EXPECT_EQ(layers_per_stage(whole, {1, 2}), (std::vector<int>{2, 3}));
    EXPECT_EQ(layers_per_stage(whole, {2, 3}), (std::vector<int>{2, 3}));
    const std::vector<std::string> halves{"embedding",
                                          "block0.attention",
                                          "block0.feed_forward",
                                          "block1.attention",
                                          "block1.feed_forward",
                                          "head"};
    EXPECT_EQ(layers_per_stage(halves, {1, 1}), (std::vector<int>{3, 3}));
    EXPECT_EQ(layers_per_stage(halves, {0, 2, 0}), (std::vector<int>{1, 4, 1}));
    EXPECT_EQ(layers_per_stage(halves, {2, 4}), (std::vector<int>{2, 4}));
    EXPECT_EQ(layers_per_stage({"wte", "h.0", "h.1", "ln_f", "lm_head"}, {1, 1}),
              (std::vector<int>{2, 3}));
}

TEST(ScenarioModel, TakesTheLayersOfAProfile) {
    const Scenario s = parse("[model]\nkind = \"profile\"\nfile = \"x.profile.json\"\n");
    EXPECT_EQ(s.model.profile, "/home/u/scenarios/x.profile.json");
    const Profile profile{.layers = {{.name = "a"}, {.name = "b"}, {.name = "c", .inputs = {"a"}}}};
    const Model model = scenario_model(s, &profile);
    EXPECT_EQ(model.layer_count(), 3);
    EXPECT_EQ(model.inputs_of(2), (std::vector<int>{0}));
    EXPECT_FALSE(model.is_executable());
    EXPECT_THROW(scenario_model(s), InternalError);
}

}  // namespace scenario_model_test
}  // namespace pipetwin
