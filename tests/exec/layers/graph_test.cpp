// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/graph.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/compare_tensors.h"
#include "tests/support/finite_difference.h"

/// A layer with branches inside that reads two outputs.
namespace pipetwin::exec {
namespace graph_test {

using testing::agree;
using testing::finite_difference;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

constexpr int samples = 3;
constexpr int positions = 2;
const std::vector<SampleShape> two_inputs{{.positions = positions, .width = 4},
                                          {.positions = positions, .width = 5}};

LayerSpec linear(std::string name, int outputs, std::vector<std::string> inputs = {}) {
    return {.name = std::move(name),
            .type = LayerType::Linear,
            .outputs = outputs,
            .inputs = std::move(inputs)};
}

LayerSpec of_type(LayerType type, std::string name, std::vector<std::string> inputs) {
    return {.name = std::move(name), .type = type, .inputs = std::move(inputs)};
}

/// The shape of a cell of AmoebaNet: five sums, some of which are read again, and a concat. Each
/// input has three readers inside.
LayerSpec cell() {
    return {
        .name = "cell",
        .type = LayerType::Sequence,
        .inner = {
            of_type(LayerType::Gelu, "relu", {"input0"}),
            linear("state0", 3),
            linear("state1", 3, {"input1"}),
            of_type(LayerType::LayerNorm, "norm", {"state1"}),
            linear("left2", 3),
            of_type(LayerType::Add, "state2", {"left2", "state1"}),
            linear("left3", 3, {"state0"}),
            of_type(LayerType::Gelu, "right3", {"state0"}),
            of_type(LayerType::Add, "state3", {"left3", "right3"}),
            linear("left4", 3, {"input0"}),
            of_type(LayerType::LayerNorm, "norm4", {"input1"}),
            linear("right4", 3),
            of_type(LayerType::Add, "state4", {"left4", "right4"}),
            of_type(LayerType::Concat, "out", {"state2", "input1", "state3", "state4", "input0"})}};
}

/// A cell with what it needs to be called.
class CellRun {
  public:
    CellRun(const LayerSpec& spec, DType type) : layer(spec, two_inputs, type), type_(type) {
        ParameterMaker maker(arena, cpu_kernels(), {.seed = 3, .format = type});
        layer.create_parameters(maker, "cell", false);
        std::uint64_t stream = 100;
        for (Parameter* const parameter : layer.parameters()) {
            cpu_kernels().upload(random_numbers(as_index(parameter->value.size()), stream++),
                                 parameter->value);
        }
        for (std::size_t input = 0; input < two_inputs.size(); ++input) {
            x.push_back(matrix(two_inputs[input].width));
            cpu_kernels().upload(random_numbers(as_index(x.back().size()), input), x.back());
        }
        dy = matrix(layer.output().width);
        cpu_kernels().upload(random_numbers(as_index(dy.size()), 7), dy);
    }

    Tensor matrix(int columns) {
        return arena.allocate(
            type_, std::int64_t{samples} * positions, columns, MemoryKind::Boundary);
    }

    LayerCall call() {
        return {.kernels = cpu_kernels(),
                .arena = arena,
                .workspace = arena.workspace(layer.workspace_bytes(samples)),
                .samples = samples,
                .batch_samples = samples};
    }

    std::vector<ConstView> inputs() const { return {x[0], x[1]}; }

    Tensor forward() {
        kept.clear();
        LayerCall call = this->call();
        Tensor y = matrix(layer.output().width);
        layer.join(call, inputs(), y, kept);
        return y;
    }

    /// The sum of y * dy.
    double objective() {
        const Numbers y = numbers_of(forward());
        const Numbers weights = numbers_of(dy);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            sum += y[i] * weights[i];
        }
        return sum;
    }

    /// Gradients of both inputs, and of the weights, behind one forward.
    struct Gradients {
        std::vector<Numbers> inputs;
        std::vector<Numbers> weights;
        bool operator==(const Gradients&) const = default;
    };
    /// `before`: what is in the gradients of the inputs, and stays in the sum; empty: nothing.
    Gradients gradients(bool split, const std::vector<Numbers>& before = {}) {
        forward();
        for (Parameter* const parameter : layer.parameters()) {
            cpu_kernels().fill_zero(parameter->gradient);
        }
        std::vector<Tensor> dx;
        std::vector<JoiningLayer::InputGradient> places;
        for (std::size_t input = 0; input < x.size(); ++input) {
            dx.push_back(matrix(two_inputs[input].width));
            if (!before.empty()) {
                cpu_kernels().upload(before[input], dx.back());
            }
        }
        for (Tensor& place : dx) {
            places.push_back({.dx = place, .adds = !before.empty()});
        }
        LayerCall call = this->call();
        if (split) {
            layer.join_backward_input(call, kept, inputs(), dy, places);
            layer.free_unread(kept);
            layer.join_backward_weight(call, kept, inputs(), dy);
        } else {
            layer.join_backward(call, kept, inputs(), dy, places);
        }
        Gradients all;
        for (const Tensor& gradient : dx) {
            all.inputs.push_back(numbers_of(gradient));
        }
        for (Parameter* const parameter : layer.parameters()) {
            all.weights.push_back(numbers_of(parameter->gradient));
        }
        return all;
    }

    Bytes stash() const { return arena.live()[MemoryKind::Stash]; }

    Arena arena;
    Graph layer;
    std::vector<Tensor> x;
    Tensor dy;
    Kept kept;

  private:
    DType type_;
};

TEST(Graph, GradientsOfACellEqualFiniteDifferences) {
    constexpr double step = 3e-4;
    constexpr double bound = 1e-8;
    CellRun run(cell(), DType::F64);
    const CellRun::Gradients found = run.gradients(false);
    const auto value = [&] { return run.objective(); };
    const auto numbers = [](Tensor& tensor) {
        return std::span(tensor.as<double>(), as_index(tensor.size()));
    };
    for (std::size_t input = 0; input < 2; ++input) {
        EXPECT_TRUE(agree<double>(
            found.inputs[input], finite_difference(value, numbers(run.x[input]), step), bound))
            << "input " << input;
    }
    const std::vector<Parameter*> parameters = run.layer.parameters();
    ASSERT_EQ(parameters.size(), 2U * (6 + 2)) << "six products and two norms";
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_TRUE(agree<double>(
            found.weights[i], finite_difference(value, numbers(parameters[i]->value), step), bound))
            << parameters[i]->name;
    }
}

TEST(Graph, HasTheSameGradientsInTwoHalves) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        CellRun run(cell(), type);
        EXPECT_EQ(run.gradients(true), run.gradients(false)) << to_string(type);
    }
}

/// In fp64 a sum of three begins with what is there: (before + last) + first, where alone it is
/// last + first.
TEST(Graph, AddsToTheGradientsThatAreThere) {
    CellRun run(cell(), DType::F64);
    const CellRun::Gradients alone = run.gradients(false);
    std::vector<Numbers> before;
    for (const Numbers& gradient : alone.inputs) {
        before.push_back(random_numbers(gradient.size(), 50 + before.size()));
    }
    for (const bool split : {false, true}) {
        const CellRun::Gradients added = run.gradients(split, before);
        EXPECT_EQ(added.weights, alone.weights);
        for (std::size_t input = 0; input < 2; ++input) {
            Numbers expected = alone.inputs[input];
            std::ranges::transform(expected, before[input], expected.begin(), std::plus<>());
            EXPECT_TRUE(agree<double>(added.inputs[input], expected, 1e-13)) << "input " << input;
        }
    }
}

TEST(Graph, KeepsOnlyWhatABackwardReads) {
    for (const DType type : {DType::F64, DType::F32}) {
        CellRun run(cell(), type);
        const Bytes before = run.stash();
        run.forward();
        const std::int64_t rows = samples * positions;
        const auto width = static_cast<std::int64_t>(size_of(type));
        // What products and norms read: relu, state0, state1, norm, norm4; not the eight outputs
        // that sums and the concat read alone. Two numbers a row for each of the two norms.
        EXPECT_EQ(run.stash() - before, Bytes{rows * width * (4 + 3 + 3 + 3 + 5 + 2 * 2)});
        EXPECT_EQ(run.stash() - before, run.layer.kept_bytes(samples));
        EXPECT_EQ(run.arena.live()[MemoryKind::Workspace], run.layer.workspace_bytes(samples));
    }
}

TEST(Graph, HoldsBetweenItsHalvesTheBytesItTells) {
    CellRun run(cell(), DType::F32);
    const Bytes before = run.stash();
    run.forward();
    std::vector<Tensor> dx;
    dx.push_back(run.matrix(4));
    dx.push_back(run.matrix(5));
    const std::vector<JoiningLayer::InputGradient> places{{.dx = dx[0]}, {.dx = dx[1]}};
    LayerCall call = run.call();
    run.layer.join_backward_input(call, run.kept, run.inputs(), run.dy, places);
    const Bytes whole = run.layer.kept_bytes(samples) + run.layer.split_bytes(samples);
    EXPECT_EQ(run.stash() - before, whole);
    run.layer.free_unread(run.kept);
    EXPECT_EQ(run.stash() - before, whole - run.layer.unread_bytes(samples));
    EXPECT_GT(run.layer.unread_bytes(samples), Bytes{});
}

/// An input that only an add and a concat read is not there in the backward.
TEST(Graph, ReadsNoInputAgainThatNoBackwardInsideReads) {
    const LayerSpec spec{.name = "cell",
                         .type = LayerType::Sequence,
                         .inner = {linear("a", 5, {"input0"}),
                                   of_type(LayerType::Add, "b", {"a", "input1"}),
                                   of_type(LayerType::Concat, "c", {"b", "input1"})}};
    CellRun run(spec, DType::F64);
    EXPECT_TRUE(run.layer.backward_reads(0));
    EXPECT_TRUE(run.layer.weight_reads(0));
    EXPECT_FALSE(run.layer.backward_reads(1));
    EXPECT_FALSE(run.layer.weight_reads(1));
    EXPECT_EQ(run.layer.kept_bytes(samples), Bytes{});
    const CellRun::Gradients expected = run.gradients(false);
    run.forward();
    std::vector<Tensor> dx;
    dx.push_back(run.matrix(4));
    dx.push_back(run.matrix(5));
    const std::vector<JoiningLayer::InputGradient> places{{.dx = dx[0]}, {.dx = dx[1]}};
    LayerCall call = run.call();
    const std::vector<ConstView> left{run.x[0], ConstView()};
    run.layer.join_backward(call, run.kept, left, run.dy, places);
    EXPECT_EQ(numbers_of(dx[0]), expected.inputs[0]);
    EXPECT_EQ(numbers_of(dx[1]), expected.inputs[1]);
}

TEST(Graph, LeavesOutAGradientThatIsNotWanted) {
    CellRun run(cell(), DType::F64);
    const CellRun::Gradients expected = run.gradients(false);
    run.forward();
    for (Parameter* const parameter : run.layer.parameters()) {
        cpu_kernels().fill_zero(parameter->gradient);
    }
    Tensor dx = run.matrix(5);
    const std::vector<JoiningLayer::InputGradient> places{{}, {.dx = dx}};
    LayerCall call = run.call();
    run.layer.join_backward(call, run.kept, run.inputs(), run.dy, places);
    EXPECT_EQ(numbers_of(dx), expected.inputs[1]);
    std::size_t index = 0;
    for (Parameter* const parameter : run.layer.parameters()) {
        EXPECT_EQ(numbers_of(parameter->gradient), expected.weights[index++]) << parameter->name;
    }
}

/// A shape of layers that read one output each, and of sums.
GraphShape::Node layer(std::size_t operand, bool reads) {
    return {.operands = {operand}, .backward_reads = {reads}, .weight_reads = {false}};
}
GraphShape::Node sum(std::size_t left, std::size_t right) {
    return {.operands = {left, right},
            .backward_reads = {false, false},
            .weight_reads = {false, false},
            .adds_itself = true,
            .is_sum = true};
}

/// A value that no backward reads lies in a room from its layer to its last reader: two of five are
/// there at the same time, whatever their number.
TEST(GraphMemory, GivesValuesThatNoBackwardReadsRoomsInTurn) {
    // 0: x   1: a(x)   2: b(a)   3: c(b)   4: d(c)   5: out(d); none reads its input again
    const GraphMemory chain(
        {.inputs = 1,
         .nodes =
             {layer(0, false), layer(1, false), layer(2, false), layer(3, false), layer(4, false)},
         .numbers = {10, 20, 30, 40, 50, 60}});
    // a, c take one room, b, d the other.
    EXPECT_EQ(chain.forward_rooms().numbers, (std::vector<std::int64_t>{40, 50}));
    EXPECT_EQ(chain.forward_room(1), chain.forward_room(3));
    EXPECT_EQ(chain.forward_room(2), chain.forward_room(4));
    EXPECT_FALSE(chain.is_kept(1));
    // d's gradient, then c's, while d's is read, then b's where d's was.
    using Half = GraphMemory::Backward;
    EXPECT_EQ(chain.gradient(Half::Whole, 4).room, chain.gradient(Half::Whole, 2).room);
    EXPECT_EQ(chain.gradient(Half::Whole, 3).room, chain.gradient(Half::Whole, 1).room);
    // Rooms begin at multiples of 256 bytes: 5 samples of 40 numbers in fp32 are 800 bytes.
    EXPECT_EQ(chain.forward_rooms().bytes(5, 4), Bytes{1024 + 1024});
    EXPECT_EQ(chain.forward_rooms().offset(1, 5, 4), Bytes{1024});
}

/// The gradient of a summand is that of its sum, of a sum of sums, too; one that is read by another
/// layer as well is not.
TEST(GraphMemory, LetsSummandsShareTheGradientOfTheirSum) {
    // 0: x   1: a(x)   2: b(x)   3: s = a + b   4: c(x)   5: out = s + c
    const GraphMemory sums(
        {.inputs = 1,
         .nodes = {layer(0, true), layer(0, true), sum(1, 2), layer(0, true), sum(3, 4)},
         .numbers = {8, 8, 8, 8, 8, 8}});
    for (const std::size_t value : {1U, 2U, 3U, 4U}) {
        EXPECT_EQ(sums.root(value), 5U) << value;
    }
    // What is left is the room of a summand of x's gradient, which all three layers add to, and the
    // room for that gradient where it cannot lie in x's place.
    using Half = GraphMemory::Backward;
    EXPECT_TRUE(sums.needs_input_room(Half::Whole));
    EXPECT_EQ(sums.rooms(Half::Whole).numbers, (std::vector<std::int64_t>{8, 8}));
    // 0: x   1: a(x)   2: b(a)   3: out = a + b
    const GraphMemory twice({.inputs = 1,
                             .nodes = {layer(0, true), layer(1, true), sum(1, 2)},
                             .numbers = {8, 8, 8, 8}});
    EXPECT_EQ(twice.root(1), 1U) << "b reads it, too";
    EXPECT_EQ(twice.root(2), 3U);
    EXPECT_TRUE(twice.is_kept(1));
    // b reads a when the sum has begun a's gradient, which so cannot lie in a's place.
    EXPECT_EQ(twice.gradient(Half::Whole, 1).place, GraphMemory::Place::Room);
}

TEST(GraphMemory, PutsAGradientWhereTheOutputWasOnceNothingReadsThat) {
    using Half = GraphMemory::Backward;
    using Place = GraphMemory::Place;
    // 0: x   1: a(x)   2: out(a)
    GraphShape shape{.inputs = 1, .nodes = {layer(0, true), layer(1, true)}, .numbers = {8, 8, 8}};
    const GraphMemory plain(shape);
    EXPECT_EQ(plain.gradient(Half::Whole, 1).place, Place::OfOutput);
    EXPECT_EQ(plain.gradient(Half::InputHalf, 1).place, Place::OfOutput);
    shape.nodes[1].weight_reads = {true};
    const GraphMemory read_by_weight(shape);
    EXPECT_EQ(read_by_weight.gradient(Half::Whole, 1).place, Place::OfOutput);
    EXPECT_EQ(read_by_weight.gradient(Half::InputHalf, 1).place, Place::Room);
    shape.nodes[0].weight_reads_gradient = true;
    const GraphMemory both(shape);
    EXPECT_EQ(both.gradient(Half::InputHalf, 1).place, Place::Own);
}

}  // namespace graph_test
}  // namespace pipetwin::exec
