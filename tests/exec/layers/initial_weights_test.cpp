// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "exec/base/divided_work.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/device/device.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {
namespace initial_weights_test {

using Role = ParameterMaker::Role;
using Style = ParameterMaker::Style;

constexpr std::int64_t rows = 641;  // more than one piece of what is drawn at a time
constexpr std::int64_t columns = 515;
constexpr int inputs = 50;
constexpr std::uint64_t seed = 7;
constexpr int layer = 3;
constexpr double residual_scale = 0.25;

/// The parameter number 1 of its unit.
Parameter make(Arena& arena, ParameterMaker::Settings settings, Role role) {
    settings.residual_scale = residual_scale;
    settings.seed = seed;
    settings.layer = layer;
    ParameterMaker maker(arena, cpu_kernels(), settings);
    maker.make("first", 1, 1, Role::Ones);
    return maker.make("second", rows, columns, role, inputs);
}

/// What docs/internals/executor.md says of initial weights, element by element.
double expected(Style style, Role role, std::uint64_t n) {
    const RandomStream stream = RandomStream(seed).of(layer).of(1);
    const auto normal = [&] {
        const std::uint64_t pair = n / 2 * 2;
        const double radius = std::sqrt(-2.0 * std::log(1.0 - stream.uniform(pair)));
        const double angle = 2.0 * std::numbers::pi * stream.uniform(pair + 1);
        return radius * (n % 2 == 0 ? std::cos(angle) : std::sin(angle));
    };
    const double uniform = 2 * stream.uniform(n) - 1;
    const bool is_weight = role == Role::Weight || role == Role::ResidualWeight;
    const double branch = role == Role::ResidualWeight ? residual_scale : 1;
    switch (role) {
        case Role::Ones:
            return 1;
        case Role::Zeros:
            return 0;
        case Role::HeWeight:
            return std::sqrt(2.0 / inputs) * normal();
        case Role::Table:
            return normal() * (style == Style::Transformer ? 1 / std::sqrt(double{columns}) : 0.02);
        default:
            break;
    }
    if (style == Style::Linear) {
        return uniform / std::sqrt(inputs);
    }
    if (!is_weight) {
        return 0;
    }
    return style == Style::Gpt ? 0.02 * branch * normal()
                               : uniform * std::sqrt(6 / double{rows + columns});
}

constexpr Style styles[] = {Style::Gpt, Style::Linear, Style::Transformer};
constexpr Role roles[] = {Role::Weight,
                          Role::ResidualWeight,
                          Role::Bias,
                          Role::Zeros,
                          Role::Ones,
                          Role::Table,
                          Role::HeWeight};

template <class Number>
void expect_equal(const Tensor& tensor, Style style, Role role, std::int64_t first = 0) {
    const auto* const numbers = static_cast<const Number*>(tensor.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const double number = expected(style, role, static_cast<std::uint64_t>(first + i));
        const auto rounded = stored<Number>(static_cast<Computed<Number>>(number));
        wrong += computed(numbers[i]) == computed(rounded) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << "style " << static_cast<int>(style) << ", role "
                        << static_cast<int>(role);
}

TEST(InitialWeights, AreTheFormulasOfTheirRolesInEveryPrecisionOnAnyNumberOfThreads) {
    for (const std::size_t threads : {1U, 3U}) {
        const WorkDivision division(threads);
        for (const Style style : styles) {
            for (const Role role : roles) {
                Arena arena;
                const Parameter fp64 = make(arena, {.style = style, .format = DType::F64}, role);
                expect_equal<double>(fp64.value, style, role);
                const Parameter fp32 = make(arena, {.style = style, .format = DType::F32}, role);
                expect_equal<float>(fp32.value, style, role);
                const Parameter bf16 = make(
                    arena, {.style = style, .averages_weights = true, .format = DType::BF16}, role);
                expect_equal<BFloat16>(bf16.value, style, role);
                expect_equal<float>(bf16.master, style, role);
                expect_equal<float>(bf16.average, style, role);
            }
        }
    }
}

/// The first pair, the next number and the last one of a matrix of 200 x 100, as version 1 drew
/// them, in fp32: a change would give every training another start.
TEST(InitialWeights, AreThoseOfEarlierVersions) {
    struct Drawn {
        Style style;
        Role role;
        float numbers[4];
    };
    constexpr Drawn all[] = {
        {Style::Gpt,
         Role::Weight,
         {-0x1.a60b0cp-6F, 0x1.d2ba36p-8F, -0x1.51da42p-7F, -0x1.2d101ap-7F}},
        {Style::Gpt,
         Role::ResidualWeight,
         {-0x1.a60b0cp-8F, 0x1.d2ba36p-10F, -0x1.51da42p-9F, -0x1.2d101ap-9F}},
        {Style::Gpt, Role::Bias, {0, 0, 0, 0}},
        {Style::Gpt,
         Role::Table,
         {-0x1.a60b0cp-6F, 0x1.d2ba36p-8F, -0x1.51da42p-7F, -0x1.2d101ap-7F}},
        {Style::Gpt,
         Role::HeWeight,
         {-0x1.07c6e8p-2F, 0x1.23b462p-4F, -0x1.a650d2p-4F, -0x1.785420p-4F}},
        {Style::Linear,
         Role::Weight,
         {0x1.a36b4ep-6F, -0x1.8ddffcp-7F, -0x1.563f94p-5F, 0x1.0d65a2p-3F}},
        {Style::Linear,
         Role::ResidualWeight,
         {0x1.a36b4ep-6F, -0x1.8ddffcp-7F, -0x1.563f94p-5F, 0x1.0d65a2p-3F}},
        {Style::Linear,
         Role::Bias,
         {0x1.a36b4ep-6F, -0x1.8ddffcp-7F, -0x1.563f94p-5F, 0x1.0d65a2p-3F}},
        {Style::Transformer,
         Role::Weight,
         {0x1.a36b4ep-6F, -0x1.8ddffcp-7F, -0x1.563f94p-5F, 0x1.0d65a2p-3F}},
        {Style::Transformer, Role::Bias, {0, 0, 0, 0}},
        {Style::Transformer,
         Role::Table,
         {-0x1.07c6e8p-3F, 0x1.23b462p-5F, -0x1.a650d2p-5F, -0x1.785420p-5F}},
    };
    for (const Drawn& drawn : all) {
        Arena arena;
        ParameterMaker maker(arena,
                             cpu_kernels(),
                             {.style = drawn.style,
                              .residual_scale = residual_scale,
                              .seed = seed,
                              .layer = layer,
                              .format = DType::F32});
        maker.make("first", 1, 1, Role::Ones);
        const Parameter parameter = maker.make("second", 200, 100, drawn.role, inputs);
        const float* const numbers = parameter.value.as<float>();
        const float found[] = {numbers[0], numbers[1], numbers[2], numbers[19'999]};
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(found[i], drawn.numbers[i]) << "style " << static_cast<int>(drawn.style)
                                                  << ", role " << static_cast<int>(drawn.role);
        }
    }
}

/// A device may keep more rows or columns than the model has: with zeros, and all others as they
/// are.
TEST(InitialWeights, AreTheSameWithPadding) {
    for (const MatrixPadding& padding : {MatrixPadding{.rows = 47},
                                         MatrixPadding{.columns = 61},
                                         MatrixPadding{.rows = 2, .columns = 3}}) {
        for (const Role role : {Role::Weight, Role::Table, Role::Bias}) {
            for (const DType type : {DType::F64, DType::BF16}) {
                Arena arena;
                const auto made = [&](const MatrixPadding& with) {
                    ParameterMaker maker(
                        arena, cpu_kernels(), {.averages_weights = true, .format = type});
                    return maker.make(
                        "weight", rows, columns, role, inputs, ParameterMaker::Uses::One, with);
                };
                const Parameter alone = made({});
                const Parameter padded = made(padding);
                EXPECT_EQ(padded.matrix().size(), alone.value.size());
                for (const Tensor Parameter::*const part :
                     {&Parameter::value, &Parameter::master, &Parameter::average}) {
                    if ((alone.*part).empty()) {
                        continue;
                    }
                    const std::vector<double> found = values(cpu_kernels(), padded.*part);
                    const std::vector<double> numbers = values(cpu_kernels(), alone.*part);
                    std::vector<double> expected(found.size());
                    for (std::int64_t i = 0; i < rows * columns; ++i) {
                        const auto place = i / columns * (columns + padding.columns) + i % columns;
                        expected[as_index(place)] = numbers[as_index(i)];
                    }
                    EXPECT_TRUE(found == expected);
                }
            }
        }
    }
}

/// Replicas that share the optimizer's state out have the whole value each, and their shares of the
/// exact copies.
TEST(InitialWeights, OfAShareAreThoseOfTheWhole) {
    const std::int64_t all = 1 + rows * columns;
    struct Share {
        int replica;
        int replicas;
    };
    for (const Share share : {Share{0, 2}, Share{1, 2}, Share{2, 7}}) {
        Arena arena;
        ShareCut cut(share.replicas, all);
        const Parameter parameter = make(arena,
                                         {.style = Style::Gpt,
                                          .optimizer_slots = 1,
                                          .first_begins_at = 1,
                                          .averages_weights = true,
                                          .format = DType::BF16,
                                          .cut = &cut,
                                          .replica = share.replica},
                                         Role::Weight);
        ASSERT_TRUE(parameter.share);
        const ElementRange second{.begin = 1, .size = rows * columns};
        EXPECT_EQ(parameter.share->size,
                  common(share_of(all, share.replica, share.replicas), second).size);
        expect_equal<BFloat16>(parameter.value, Style::Gpt, Role::Weight);
        for (const Tensor* const copy : {&parameter.master, &parameter.average}) {
            EXPECT_EQ(copy->size(), parameter.share->size);
            expect_equal<float>(*copy, Style::Gpt, Role::Weight, parameter.share->begin);
        }
        for (std::int64_t i = 0; i < parameter.first.size(); ++i) {
            EXPECT_EQ(parameter.first.as<float>()[i], 1);
        }
    }
}

}  // namespace initial_weights_test
}  // namespace pipetwin::exec
