// SPDX-License-Identifier: Apache-2.0
#include "core/model/inner_layers.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/layer_faults.h"
#include "core/model/model.h"
#include "tests/support/error_of.h"

/// Sequences whose layers read each other, and what the sequence reads, by name.
namespace pipetwin {
namespace inner_layers_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Names = std::vector<std::string>;

LayerSpec linear(std::string name, int outputs, Names inputs = {}) {
    return {.name = std::move(name),
            .type = LayerType::Linear,
            .outputs = outputs,
            .inputs = std::move(inputs)};
}

LayerSpec of_type(LayerType type, std::string name, Names inputs = {}) {
    return {.name = std::move(name), .type = type, .inputs = std::move(inputs)};
}

LayerSpec sequence(std::string name, std::vector<LayerSpec> inner, Names inputs = {}) {
    return {.name = std::move(name),
            .type = LayerType::Sequence,
            .inner = std::move(inner),
            .inputs = std::move(inputs)};
}

Model model_of(std::vector<LayerSpec> layers) {
    layers.push_back(of_type(LayerType::CrossEntropy, "loss"));
    return Model::graph({.positions = 2, .width = 4}, std::move(layers));
}

/// Two layers, and a unit that reads both.
std::vector<LayerSpec> with_cell(std::vector<LayerSpec> inner, Names inputs = {"b", "a"}) {
    return {linear("a", 8), linear("b", 6), sequence("cell", std::move(inner), std::move(inputs))};
}

std::string fault_of(std::vector<LayerSpec> layers) {
    const Error error = error_of([&] { model_of(std::move(layers)); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.place() + ": " + error.text();
}

SampleShape two_rows(int width) {
    return {.positions = 2, .width = width};
}

TEST(InnerLayers, OfACellReadItsInputsInTheOrderOfTheUnit) {
    const Model model = model_of(with_cell({linear("left", 5, {"input1"}),
                                            linear("right", 7, {"input0"}),
                                            of_type(LayerType::Concat, "out", {"right", "left"})}));
    const Layer& cell = model.layer(2);
    EXPECT_THAT(model.operands_of(2), ElementsAre(1, 0));
    EXPECT_THAT(cell.inputs, ElementsAre(two_rows(6), two_rows(8)));
    EXPECT_EQ(cell.input, two_rows(6)) << "the first that is written";
    EXPECT_EQ(cell.output, two_rows(7 + 5));
    EXPECT_EQ(cell.parameter_count, (8 + 1) * 5 + (6 + 1) * 7);
    const std::vector<InnerLayer> inner = inner_layers(cell.spec, cell.inputs);
    ASSERT_EQ(inner.size(), 3U);
    EXPECT_THAT(inner[0].operands, ElementsAre(1U));  // values 0 and 1 are what the unit reads
    EXPECT_THAT(inner[0].inputs, ElementsAre(two_rows(8)));
    EXPECT_THAT(inner[1].operands, ElementsAre(0U));
    EXPECT_THAT(inner[2].operands, ElementsAre(3U, 2U));
    EXPECT_EQ(inner[2].output, cell.output);
    EXPECT_TRUE(model.is_executable());
}

TEST(InnerLayers, WithoutInputsReadTheOneBeforeAndTheFirstReadsTheFirstInput) {
    const Model model = model_of(with_cell({linear("x", 3),
                                            of_type(LayerType::Gelu, "y"),
                                            linear("z", 3, {"input1"}),
                                            of_type(LayerType::Add, "out", {"y", "z"})}));
    const Layer& cell = model.layer(2);
    std::vector<std::vector<std::size_t>> operands;
    for (const InnerLayer& inner : inner_layers(cell.spec, cell.inputs)) {
        operands.push_back(inner.operands);
    }
    EXPECT_THAT(
        operands,
        ElementsAre(ElementsAre(0U), ElementsAre(2U), ElementsAre(1U), ElementsAre(3U, 4U)));
    EXPECT_EQ(cell.output, two_rows(3));
}

TEST(InnerLayers, WithALossOfTheOneBeforeHaveNoBranches) {
    const LayerSpec head =
        sequence("head", {linear("classes", 5), of_type(LayerType::CrossEntropy, "loss")});
    EXPECT_FALSE(has_branches(head));
    EXPECT_FALSE(takes_several(head.inner.back(), 1));
    EXPECT_TRUE(takes_several(head.inner.back(), 2));
}

TEST(InnerLayers, MayEndWithALossThatReadsAnInputToo) {
    const Model model =
        Model::graph({.positions = 2, .width = 4},
                     {linear("a", 8),
                      linear("b", 5),
                      sequence("head",
                               {linear("classes", 5),
                                of_type(LayerType::CrossEntropy, "loss", {"classes", "input1"})},
                               {"a", "b"})});
    const Layer& head = model.layer(2);
    EXPECT_EQ(head.output, (SampleShape{.positions = 1, .width = 0}));
    EXPECT_TRUE(ends_with_loss(head.spec));
    EXPECT_THAT(head.keeps_input, ElementsAre(true, true));
}

TEST(InnerLayers, MayStandInAnyOrderAndAreSorted) {
    const Model model =
        model_of(with_cell({of_type(LayerType::Add, "out", {"y", "z"}),
                            linear("z", 3, {"y"}),
                            linear("y", 3, {"both"}),
                            of_type(LayerType::Concat, "both", {"input0", "input1"})}));
    Names names;
    std::vector<Names> inputs;
    for (const LayerSpec& inner : model.layer(2).spec.inner) {
        names.push_back(inner.name);
        inputs.push_back(inner.inputs);
    }
    EXPECT_THAT(names, ElementsAre("both", "y", "z", "out"));
    EXPECT_THAT(inputs,
                ElementsAre(ElementsAre("input0", "input1"),
                            ElementsAre("both"),
                            ElementsAre("y"),
                            ElementsAre("y", "z")));
}

TEST(InnerLayers, ThatFollowEachOtherAreAChainThoughTheyNameTheirInputs) {
    const Model model = model_of(
        {linear("a", 8), sequence("b", {linear("x", 3, {"input0"}), linear("y", 5, {"x"})})});
    const LayerSpec& spec = model.layer(1).spec;
    EXPECT_FALSE(has_branches(spec));
    EXPECT_THAT(spec.inner[1].inputs, IsEmpty());
    EXPECT_EQ(model.layer(1).output, two_rows(5));
}

TEST(InnerLayers, MayBeSequencesThatReadSeveralInTheirTurn) {
    const Model model =
        model_of(with_cell({linear("x", 3),
                            sequence("mix",
                                     {linear("left", 2),
                                      linear("right", 2, {"input1"}),
                                      of_type(LayerType::Add, "sum", {"left", "right"})},
                                     {"input1", "x"}),
                            of_type(LayerType::Concat, "out", {"mix", "x"})}));
    EXPECT_EQ(model.layer(2).output, two_rows(2 + 3));
    EXPECT_EQ(model.layer(2).parameter_count, (6 + 1) * 3 + (8 + 1) * 2 + (3 + 1) * 2);
}

TEST(InnerLayers, OfAResidualStandInASequenceWhereTheyHaveBranches) {
    const LayerSpec branches = sequence(
        "f",
        {linear("x", 8), linear("y", 8, {"input0"}), of_type(LayerType::Add, "sum", {"x", "y"})});
    const Model model =
        model_of({linear("a", 8), {.name = "b", .type = LayerType::Residual, .inner = {branches}}});
    EXPECT_EQ(model.layer(1).parameter_count, 2 * (8 + 1) * 8);
    EXPECT_EQ(fault_of({linear("a", 8),
                        {.name = "b", .type = LayerType::Residual, .inner = branches.inner}}),
              "model, layer 'b': layer 1 inside names its inputs, expected that it reads the one "
              "before it");
}

TEST(InnerLayers, MayEndWithTheLossOfTheModel) {
    const Model model =
        Model::graph({.positions = 1, .width = 4},
                     {linear("a", 8),
                      linear("b", 8),
                      sequence("head",
                               {of_type(LayerType::CrossEntropy, "loss", {"sum"}),
                                of_type(LayerType::Add, "sum", {"input0", "input1"})},
                               {"a", "b"})});
    EXPECT_EQ(model.layer(2).output.width, 0);
    EXPECT_EQ(model.layer(2).spec.inner.back().name, "loss");
    EXPECT_EQ(fault_of({linear("a", 8),
                        sequence("b",
                                 {of_type(LayerType::Gelu, "x"),
                                  of_type(LayerType::CrossEntropy, "y"),
                                  linear("z", 8, {"x"})})}),
              "model, layer 'b.z': no layer reads its output, expected one that does");
}

TEST(InnerLayers, RefusesEveryFaultAtItsPlace) {
    try {
        model_of({linear("a", 8),
                  linear("b", 6),
                  sequence("cell",
                           {linear("x", 3, {"input2"}),
                            linear("y", 3, {"nowhere at all"}),
                            linear("unread", 3, {"input0"}),
                            of_type(LayerType::Add, "out", {"x", "y"})},
                           {"a", "b"}),
                  linear("c", 3, {"nobody"})});
        FAIL() << "it has faults";
    } catch (const LayerFaults& error) {
        std::vector<std::pair<std::vector<int>, std::string>> found;
        for (const LayerFault& fault : error.faults()) {
            std::vector<int> way{fault.layer};
            way.insert(way.end(), fault.inside.begin(), fault.inside.end());
            found.emplace_back(way, fault.error.place() + ": " + fault.error.text());
        }
        using Found = std::pair<std::vector<int>, std::string>;
        EXPECT_THAT(
            found,
            ElementsAre(
                Found{{2},
                      "model, layer 'cell': no layer reads its output, expected one that does"},
                Found{{2},
                      "model, layer 'cell': no layer inside reads 'input1', expected one that "
                      "does"},
                Found{{2, 0}, "model, layer 'cell.x': reads 'input2', but 'cell' reads 2 outputs"},
                Found{{2, 1}, "model, layer 'cell.y': reads 'nowhere at all', which is no layer"},
                Found{{2, 2},
                      "model, layer 'cell.unread': no layer reads its output, expected one that "
                      "does"},
                Found{{3}, "model, layer 'c': reads 'nobody', which is no layer"}));
        EXPECT_EQ(error.faults()[2].error.hint(), "they are 'input0' to 'input1'");
    }
}

TEST(InnerLayers, RefusesShapesCirclesAndNamesAsThoseOfAModel) {
    EXPECT_EQ(
        fault_of(with_cell({linear("x", 3), of_type(LayerType::Add, "out", {"x", "input1"})})),
        "model, layer 'cell.out': 'x' makes 2 x 3 and 'input1' 2 x 8, expected outputs of "
        "one shape");
    EXPECT_EQ(fault_of(with_cell({of_type(LayerType::Add, "x", {"input0", "y"}),
                                  of_type(LayerType::Concat, "y", {"x", "input1"}),
                                  linear("out", 2)})),
              "model, layer 'cell.x': layers wait for each other in a circle: x, y");
    EXPECT_THAT(fault_of(with_cell({linear("input1", 6, {"input1"}),
                                    of_type(LayerType::Concat, "out", {"input0", "input1"})})),
                HasSubstr("model, layer 'cell.input1': has the name of an output that the layers "
                          "around it read, expected another"));
    EXPECT_EQ(fault_of(with_cell({of_type(LayerType::Concat, "out", {"input1", "input1"})})),
              "model: 2 faults in its layers:\n"
              "  model, layer 'cell': no layer inside reads 'input0', expected one that does; name "
              "it in the inputs of a layer inside, or read one output fewer\n"
              "  model, layer 'cell.out': reads 'input1' twice; name every input once");
    EXPECT_THAT(error_of([] { model_of(with_cell({linear("x", 3, {"input"})})); }).hint(),
                HasSubstr("correct the first one"));
    EXPECT_THAT(fault_of(with_cell({linear("x", 3, {"input"})})),
                HasSubstr("reads 'input', which is no layer; what 'cell' reads is 'input0', "
                          "'input1', ..."));
    EXPECT_EQ(fault_of(with_cell({})),
              "model, layer 'cell': a sequence without layers, expected at least one");
    EXPECT_EQ(fault_of({linear("a", 4), sequence("b", {of_type(LayerType::Add, "sum")})}),
              "model, layer 'b.sum': add reads one output, expected two or more");
}

TEST(InnerLayers, OfASequenceInAChainOfASequenceAreNamedByTheirPath) {
    const LayerSpec nested = sequence(
        "deep", {linear("x", 3), linear("y", 3, {"X"}), of_type(LayerType::Add, "z", {"x", "y"})});
    try {
        model_of({linear("a", 8), sequence("b", {linear("c", 5), sequence("d", {nested})})});
        FAIL() << "it has a fault";
    } catch (const LayerFaults& error) {
        ASSERT_EQ(error.faults().size(), 1U);
        EXPECT_EQ(error.place(), "model, layer 'b.d.deep.y'");
        EXPECT_EQ(error.faults().front().layer, 1);
        EXPECT_THAT(error.faults().front().inside, ElementsAre(1, 0, 1));
        EXPECT_EQ(error.hint(), "did you mean 'x'?");
    }
}

TEST(InnerLayers, TellWhichInputsABackwardReadsAgain) {
    const std::vector<SampleShape> one{two_rows(6)};
    const std::vector<SampleShape> two{two_rows(6), two_rows(6)};
    EXPECT_THAT(inputs_read_again(linear("a", 4), one), ElementsAre(true));
    EXPECT_THAT(inputs_read_again(of_type(LayerType::Dropout, "a"), one), ElementsAre(false));
    EXPECT_THAT(inputs_read_again(of_type(LayerType::Add, "a"), two), ElementsAre(false, false));
    const LayerSpec chain = sequence("a", {of_type(LayerType::Dropout, "b"), linear("c", 4)});
    EXPECT_THAT(inputs_read_again(chain, one), ElementsAre(false)) << "the first layer alone";
    const LayerSpec cell = sequence(
        "a", {linear("b", 6, {"input1"}), of_type(LayerType::Add, "c", {"b", "input0", "input1"})});
    EXPECT_THAT(inputs_read_again(cell, two), ElementsAre(false, true));
    const Model model = model_of(
        with_cell({linear("x", 8, {"input0"}), of_type(LayerType::Add, "out", {"x", "input1"})}));
    EXPECT_THAT(model.layer(2).keeps_input, ElementsAre(true, false));
    EXPECT_THAT(model.layer(0).keeps_input, ElementsAre(true));
}

}  // namespace inner_layers_test
}  // namespace pipetwin
