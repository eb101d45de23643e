// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/layer_faults.h"
#include "core/model/model.h"
#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace graph_model_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

using Names = std::vector<std::string>;

constexpr SampleShape four_numbers{.positions = 1, .width = 4};

LayerSpec linear(std::string name, int outputs, Names inputs = {}) {
    return {.name = std::move(name),
            .type = LayerType::Linear,
            .outputs = outputs,
            .inputs = std::move(inputs)};
}

LayerSpec joined(LayerType type, std::string name, Names inputs) {
    return {.name = std::move(name), .type = type, .inputs = std::move(inputs)};
}

LayerSpec loss(Names inputs = {}) {
    return {.name = "loss", .type = LayerType::CrossEntropy, .inputs = std::move(inputs)};
}

Model model_of(std::vector<LayerSpec> layers) {
    return Model::graph(four_numbers, std::move(layers));
}

/// Two branches behind a layer, and what joins them.
std::vector<LayerSpec> two_branches(LayerType join, int left, int right) {
    return {linear("stem", 8),
            linear("left", left, {"stem"}),
            linear("right", right, {"stem"}),
            joined(join, "join", {"right", "left"}),
            loss()};
}

Names names_of(const Model& model) {
    Names names;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        names.push_back(model.layer(layer).spec.name);
    }
    return names;
}

/// The fault of a list that has one, or the text of all.
std::string fault_of(std::vector<LayerSpec> layers) {
    const Error error = error_of([&] { model_of(std::move(layers)); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.place() + ": " + error.text();
}

TEST(GraphModel, WithoutNamesIsTheChain) {
    std::vector<LayerSpec> layers{linear("a", 8), linear("b", 6), loss()};
    const Model chain = Model::chain(four_numbers, layers);
    for (const Names& written : {Names{}, Names{"a"}}) {
        layers[1].inputs = written;
        const Model graph = model_of(layers);
        EXPECT_TRUE(graph.is_chain());
        ASSERT_EQ(graph.layer_count(), chain.layer_count());
        for (int layer = 0; layer < chain.layer_count(); ++layer) {
            EXPECT_EQ(graph.layer(layer).input, chain.layer(layer).input);
            EXPECT_EQ(graph.layer(layer).output, chain.layer(layer).output);
            EXPECT_EQ(graph.layer(layer).parameter_count, chain.layer(layer).parameter_count);
            EXPECT_EQ(graph.inputs_of(layer), chain.inputs_of(layer));
            EXPECT_EQ(graph.readers_of(layer), chain.readers_of(layer));
        }
    }
}

TEST(GraphModel, AnAddKeepsTheShapeOfWhatItReadsAndHasNoWeights) {
    const Model model = model_of(two_branches(LayerType::Add, 6, 6));
    EXPECT_EQ(model.layer(3).output, (SampleShape{.positions = 1, .width = 6}));
    EXPECT_EQ(model.layer(3).parameter_count, 0);
    EXPECT_EQ(model.layer(4).input, (SampleShape{.positions = 1, .width = 6}));
    EXPECT_FALSE(model.is_chain());
    EXPECT_TRUE(model.is_executable());
}

TEST(GraphModel, AConcatAddsUpTheWidthsOfWhatItReadsInTheOrderAsWritten) {
    const Model model = model_of(two_branches(LayerType::Concat, 6, 10));
    EXPECT_EQ(model.layer(3).output, (SampleShape{.positions = 1, .width = 16}));
    EXPECT_EQ(model.layer(3).parameter_count, 0);
    EXPECT_THAT(model.inputs_of(3), ElementsAre(1, 2));
    EXPECT_THAT(model.operands_of(3), ElementsAre(2, 1));
    EXPECT_EQ(model.layer(3).input, model.layer(2).output) << "the first that is written";
    EXPECT_THAT(model.readers_of(0), ElementsAre(1, 2));
}

TEST(GraphModel, LayersMayStandInAnyOrder) {
    const Model model = model_of({linear("stem", 8),
                                  loss({"join"}),
                                  joined(LayerType::Add, "join", {"left", "right"}),
                                  linear("left", 8, {"stem"}),
                                  linear("right", 8, {"stem"})});
    EXPECT_EQ(names_of(model), (Names{"stem", "left", "right", "join", "loss"}));
    EXPECT_THAT(model.operands_of(3), ElementsAre(1, 2));
}

TEST(GraphModel, ALayerWithoutANameIsReadByTheOneItGets) {
    const Model model = model_of({{.type = LayerType::Linear, .outputs = 8},
                                  {.type = LayerType::Gelu},
                                  joined(LayerType::Add, "", {"linear0", "gelu1"}),
                                  loss()});
    EXPECT_THAT(model.inputs_of(2), ElementsAre(0, 1));
    EXPECT_EQ(model.layer(2).spec.name, "add2");
}

TEST(GraphModel, RefusesANameThatIsNotThere) {
    EXPECT_EQ(
        fault_of({linear("stem", 8), linear("next", 8, {"nothing"}), loss()}),
        "model: 2 faults in its layers:\n"
        "  model, layer 'stem': no layer reads its output, expected one that does; name it in "
        "the inputs of a later layer, or take it out\n"
        "  model, layer 'next': reads 'nothing', which is no layer; layers: stem, next, loss");
    // A name that is nearly there means that layer, which so is read.
    EXPECT_EQ(fault_of({linear("stem", 8), linear("next", 8, {"stemm"}), loss()}),
              "model, layer 'next': reads 'stemm', which is no layer");
    EXPECT_EQ(error_of([] {
                  model_of({linear("stem", 8), linear("next", 8, {"stemm"}), loss()});
              }).hint(),
              "did you mean 'stem'?");
}

TEST(GraphModel, SaysWhichCopyOfARepeatedLayerAndThatOnlyTheFirstReadsTheInput) {
    EXPECT_EQ(error_of([] {
                  model_of({linear("stem", 8),
                            linear("block0", 8),
                            linear("block1", 8),
                            linear("next", 8, {"block"}),
                            loss()});
              }).hint(),
              "its last copy is 'block1'");
    const Error error = error_of([] { model_of({linear("stem", 8, {"input"}), loss()}); });
    EXPECT_EQ(error.place(), "model, layer 'stem'");
    EXPECT_EQ(error.hint(),
              "the first layer alone reads the model's input: let branches begin behind it");
}

TEST(GraphModel, RefusesANameThatIsThereTwice) {
    EXPECT_EQ(fault_of({linear("a", 8), linear("a", 8), loss()}),
              "model, layer 'a': two layers have this name, expected a name of its own");
    EXPECT_EQ(fault_of({linear("a", 8), joined(LayerType::Add, "b", {"a", "a"}), loss()}),
              "model, layer 'b': reads 'a' twice");
}

TEST(GraphModel, RefusesCirclesWithTheLayersThatAreInThem) {
    EXPECT_EQ(fault_of({linear("a", 8),
                        joined(LayerType::Add, "b", {"a", "d"}),
                        linear("c", 8),
                        linear("d", 8),
                        linear("e", 8),
                        loss()}),
              "model, layer 'b': layers wait for each other in a circle: b, c, d");
    EXPECT_EQ(fault_of({linear("a", 8), joined(LayerType::Add, "b", {"a", "b"}), loss()}),
              "model, layer 'b': reads itself");
    EXPECT_EQ(error_of([] {
                  model_of({linear("a", 8, {"b"}), linear("b", 8), loss()});
              }).hint(),
              "the first layer reads the model's input: let it name none");
}

TEST(GraphModel, RefusesShapesThatDoNotAddOrJoin) {
    EXPECT_EQ(fault_of(two_branches(LayerType::Add, 6, 7)),
              "model, layer 'join': 'right' makes 1 x 7 and 'left' 1 x 6, expected outputs of one "
              "shape");
    EXPECT_EQ(fault_of({linear("stem", 4), joined(LayerType::Add, "sum", {"stem"}), loss()}),
              "model, layer 'sum': add reads one output, expected two or more");
    EXPECT_EQ(fault_of({linear("a", 4), linear("b", 4), linear("c", 4, {"a", "b"}), loss()}),
              "model, layer 'c': linear reads 2 outputs, expected one");
    EXPECT_EQ(fault_of({linear("a", 1 << 30),
                        {.name = "b", .type = LayerType::Gelu},
                        joined(LayerType::Concat, "c", {"a", "b"}),
                        loss()}),
              "model, layer 'c': widths that add up to 2147483648, expected at most 1073741824");
}

/// A loss of the model's own logits and of others.
std::vector<LayerSpec> two_losses(int own, int other) {
    return {linear("stem", 8), linear("classes", own), linear("side", other, {"stem"}), loss()};
}

TEST(GraphModel, ALossMayReadTwoOutputsOfOneShape) {
    std::vector<LayerSpec> layers = two_losses(5, 5);
    layers.back().inputs = {"classes", "side"};
    const Model model = model_of(layers);
    EXPECT_THAT(model.operands_of(3), ElementsAre(1, 2));
    EXPECT_EQ(model.layer(3).output, (SampleShape{.positions = 1, .width = 0}));
    EXPECT_EQ(model.layer(3).parameter_count, 0);
    EXPECT_THAT(model.layer(3).keeps_input, ElementsAre(true, true));
    EXPECT_EQ(model.layer(3).spec.auxiliary_weight, 0.4);
}

TEST(GraphModel, RefusesLossesOfOutputsThatDoNotFit) {
    std::vector<LayerSpec> layers = two_losses(5, 6);
    layers.back().inputs = {"classes", "side"};
    EXPECT_EQ(
        fault_of(layers),
        "model, layer 'loss': 'classes' makes 1 x 5 and 'side' 1 x 6, expected outputs of one "
        "shape");
    layers = two_losses(5, 5);
    layers.back().inputs = {"classes", "side", "stem"};
    EXPECT_EQ(fault_of(layers),
              "model, layer 'loss': cross_entropy reads 3 outputs, expected one or two");
    layers.back().inputs.pop_back();
    layers.back().auxiliary_weight = 1.5;
    EXPECT_EQ(fault_of(layers), "model, layer 'loss': auxiliary_weight = 1.5, expected 0 to 1");
    layers.back().auxiliary_weight = 0.4;
    layers.back().label_smoothing = 1;
    EXPECT_EQ(fault_of(layers),
              "model, layer 'loss': label_smoothing = 1, expected 0 up to, but not, 1");
    LayerSpec alone = loss();
    alone.auxiliary_weight = 0.3;
    EXPECT_EQ(fault_of({linear("classes", 5), alone}),
              "model, layer 'loss': auxiliary_weight = 0.3 with one output to read, expected two");
}

TEST(GraphModel, RefusesAnOutputThatNoLayerReads) {
    EXPECT_EQ(
        fault_of({linear("stem", 8), linear("left", 8), linear("right", 8, {"stem"}), loss()}),
        "model, layer 'left': no layer reads its output, expected one that does");
    EXPECT_EQ(fault_of({linear("stem", 8),
                        {.name = "first", .type = LayerType::CrossEntropy},
                        loss({"stem"})}),
              "model, layer 'first': a loss besides 'loss', expected one in a model");
    EXPECT_EQ(fault_of({linear("stem", 8), loss(), linear("behind", 8, {"stem"})}),
              "model, layer 'behind': no layer reads its output, expected one that does");
}

/// C24: every skip name is produced and consumed exactly once per namespace; violations are refused
/// before running, listing all of them. Names are those of layers here, and an output may be read
/// by several.
TEST(GraphModel, TellsOfEveryFaultAtOnceInTheOrderOfTheList) {
    try {
        model_of({linear("stem", 8),
                  linear("left", 6, {"stem"}),
                  linear("right", 7, {"stem"}),
                  joined(LayerType::Add, "sum", {"left", "right"}),
                  linear("same", 8, {"stem"}),
                  linear("same", 8, {"stem"}),
                  linear("lost", 8, {"nowhere at all"}),
                  linear("round", 8, {"about"}),
                  linear("about", 8, {"round"}),
                  loss({"stem"})});
        FAIL() << "it has faults";
    } catch (const LayerFaults& error) {
        std::vector<std::pair<int, std::string>> found;
        for (const LayerFault& fault : error.faults()) {
            found.emplace_back(fault.layer, fault.error.text().substr(0, 20));
        }
        EXPECT_THAT(found,
                    ElementsAre(std::pair(3, "no layer reads its o"),
                                std::pair(3, "'left' makes 1 x 6 a"),
                                std::pair(4, "no layer reads its o"),
                                std::pair(5, "two layers have this"),
                                std::pair(5, "no layer reads its o"),
                                std::pair(6, "reads 'nowhere at al"),
                                std::pair(6, "no layer reads its o"),
                                std::pair(7, "layers wait for each")));
        EXPECT_EQ(error.place(), "model");
        EXPECT_THAT(error.text(), HasSubstr("8 faults in its layers:\n"));
        EXPECT_EQ(error.hint(),
                  "correct the first one and check again: one may be the cause of another");
    }
}

/// A random graph of adds and concats, listed in a random order.
struct RandomGraph {
    std::vector<LayerSpec> listed;
    std::map<std::string, int> widths;  ///< by name, from the way it was made
};

RandomGraph random_graph(std::mt19937_64& random) {
    const auto below = [&](std::size_t count) { return random() % count; };
    RandomGraph made;
    std::vector<LayerSpec> layers{linear("l0", 4)};
    std::vector<bool> is_read{false};
    made.widths["l0"] = 4;
    const std::size_t count = 3 + below(12);
    for (std::size_t i = 1; i < count; ++i) {
        const std::string name = "l" + std::to_string(i);
        const std::size_t a = below(layers.size());
        const std::size_t b = below(layers.size());
        const Names both{layers[a].name, layers[b].name};
        is_read[a] = true;
        is_read.push_back(false);
        if (a == b) {
            layers.push_back(linear(name, 1 + static_cast<int>(below(9)), {both.front()}));
            made.widths[name] = layers.back().outputs;
            continue;
        }
        is_read[b] = true;
        const int left = made.widths[both[0]];
        const int right = made.widths[both[1]];
        const bool add = left == right && below(2) == 0;
        layers.push_back(joined(add ? LayerType::Add : LayerType::Concat, name, both));
        made.widths[name] = add ? left : left + right;
    }
    Names unread;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (!is_read[i]) {
            unread.push_back(layers[i].name);
        }
    }
    if (unread.size() > 1) {
        layers.push_back(joined(LayerType::Concat, "all", unread));
        made.widths["all"] = 0;
        for (const std::string& name : unread) {
            made.widths["all"] += made.widths[name];
        }
        unread = {"all"};
    }
    layers.push_back(loss(unread));
    // The first reads the model's input; any other may stand anywhere.
    std::shuffle(layers.begin() + 1, layers.end(), random);
    made.listed = std::move(layers);
    return made;
}

TEST(GraphModel, EveryLayerOfARandomGraphStandsBehindItsInputsWithTheShapeThatFollows) {
    std::mt19937_64 random(tests::seed());
    for (int round = 0; round < tests::soaked(300); ++round) {
        const RandomGraph made = random_graph(random);
        const Model model = model_of(made.listed);
        ASSERT_EQ(model.layer_count(), std::ssize(made.listed));
        std::map<std::string, int> index_of;
        for (int layer = 0; layer < model.layer_count(); ++layer) {
            const Layer& placed = model.layer(layer);
            Names read;
            for (const int operand : model.operands_of(layer)) {
                ASSERT_LT(operand, layer);
                read.push_back(model.layer(operand).spec.name);
            }
            EXPECT_EQ(read, placed.spec.inputs);
            if (placed.spec.type != LayerType::CrossEntropy) {
                EXPECT_EQ(placed.output.width, made.widths.at(placed.spec.name));
            } else {
                EXPECT_EQ(layer, model.layer_count() - 1);
            }
        }
    }
}

}  // namespace graph_model_test
}  // namespace pipetwin
