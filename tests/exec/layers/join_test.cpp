// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/exec/layers/layer_run.h"

namespace pipetwin::exec {
namespace join_test {

using testing::Numbers;
using testing::numbers_of;

constexpr int samples = 2;
constexpr std::int64_t rows = samples;  // of one position each

Tensor tensor_of(Arena& arena, const Numbers& numbers, DType type) {
    Tensor tensor = arena.allocate(
        type, rows, static_cast<std::int64_t>(numbers.size()) / rows, MemoryKind::Stash);
    cpu_kernels().upload(numbers, tensor);
    return tensor;
}

LayerCall call_in(Arena& arena) {
    return {.kernels = cpu_kernels(), .arena = arena, .samples = samples};
}

std::unique_ptr<ExecutableLayer> join_of(LayerType type,
                                         const std::vector<SampleShape>& inputs,
                                         DType real) {
    return make_layer({.type = type}, inputs, real);
}

class EveryType : public ::testing::TestWithParam<DType> {
  protected:
    Arena arena;
    const DType type = GetParam();
};
INSTANTIATE_TEST_SUITE_P(Join,
                         EveryType,
                         ::testing::Values(DType::F32, DType::F64, DType::BF16),
                         [](const auto& named) { return std::string(to_string(named.param)); });

TEST_P(EveryType, AConcatPutsItsInputsSideBySideAndGivesEachItsColumns) {
    const auto made = join_of(LayerType::Concat, {{.width = 2}, {.width = 1}}, type);
    auto& concat = dynamic_cast<JoiningLayer&>(*made);
    EXPECT_EQ(concat.output(), (SampleShape{.width = 3}));
    const Tensor left = tensor_of(arena, {1, 2, 3, 4}, type);
    const Tensor right = tensor_of(arena, {5, 6}, type);
    const std::vector<ConstView> inputs{left, right};
    LayerCall call = call_in(arena);
    Kept kept;
    Tensor y = tensor_of(arena, Numbers(6), type);
    concat.join(call, inputs, y, kept);
    EXPECT_EQ(numbers_of(y), (Numbers{1, 2, 5, 3, 4, 6}));
    Tensor of_left = tensor_of(arena, {10, 20, 30, 40}, type);
    Tensor of_right = tensor_of(arena, {50, 60}, type);
    const std::vector<JoiningLayer::InputGradient> places{{.dx = of_left, .adds = true},
                                                          {.dx = of_right}};
    concat.join_backward(call, kept, inputs, y, places);
    EXPECT_EQ(numbers_of(of_left), (Numbers{11, 22, 33, 44}));
    EXPECT_EQ(numbers_of(of_right), (Numbers{5, 6}));
    EXPECT_EQ(concat.kept_bytes(samples), Bytes{});
}

TEST_P(EveryType, AnAddSumsItsInputsAndGivesEachTheGradient) {
    const auto made = join_of(LayerType::Add, {{.width = 2}, {.width = 2}, {.width = 2}}, type);
    auto& add = dynamic_cast<JoiningLayer&>(*made);
    EXPECT_EQ(add.output(), (SampleShape{.width = 2}));
    const Tensor x = tensor_of(arena, {1, 2, 3, 4}, type);
    const std::vector<ConstView> inputs{x, x, x};
    LayerCall call = call_in(arena);
    Kept kept;
    Tensor y = tensor_of(arena, Numbers(4), type);
    add.join(call, inputs, y, kept);
    EXPECT_EQ(numbers_of(y), (Numbers{3, 6, 9, 12}));
    Tensor added = tensor_of(arena, {10, 20, 30, 40}, type);
    Tensor written = tensor_of(arena, {10, 20, 30, 40}, type);
    const std::vector<JoiningLayer::InputGradient> places{
        {.dx = written}, {}, {.dx = added, .adds = true}};
    add.join_backward_input(call, kept, inputs, y, places);
    EXPECT_EQ(numbers_of(added), (Numbers{13, 26, 39, 52}));
    EXPECT_EQ(numbers_of(written), numbers_of(y));
}

}  // namespace join_test
}  // namespace pipetwin::exec
