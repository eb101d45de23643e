// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "exec/cuda/kernels/real_of.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace elementwise_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaElementwise : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaElementwise, every_way(), ::testing::PrintToStringParamName());

TEST_P(CudaElementwise, AddAdds) {
    for (const std::int64_t size : {0, 1, 3, 8, 257, 5000}) {
        SCOPED_TRACE(size);
        const Numbers x = random(size, 1);
        Numbers expected = random(size, 2);
        const Numbers found = run([&] {
            const Operand from(way(), x);
            const Operand to(way(), expected);
            expect_ok(add(real(), size, from.data(), to.data(), nullptr));
            return to.numbers();
        });
        cpu().add(view(x, 1, size), view(expected, 1, size));
        EXPECT_TRUE(close(found, expected, way().bound()));
    }
}

TEST_P(CudaElementwise, ColumnsAreCopiedOrAddedToThoseOfAnotherMatrix) {
    struct Case {
        std::int64_t rows, x_width, y_width, from, to, count;
    };
    for (const Case& c : {Case{0, 4, 4, 0, 0, 4},
                          Case{1, 1, 1, 0, 0, 1},
                          Case{3, 5, 9, 0, 4, 5},
                          Case{300, 12, 7, 3, 0, 7},
                          Case{17, 40, 64, 8, 24, 32}}) {
        for (const bool adds : {false, true}) {
            SCOPED_TRACE(::testing::Message() << c.rows << " rows, adds " << adds);
            const Numbers x = random(c.rows * c.x_width, 1);
            Numbers expected = random(c.rows * c.y_width, 2);
            const std::size_t bytes = real() == Real::F32 ? 4 : 2;
            const auto at = [&](void* data, std::int64_t column) {
                return static_cast<std::byte*>(data) + static_cast<std::size_t>(column) * bytes;
            };
            const Numbers found = run([&] {
                const Operand from(way(), x);
                const Operand to(way(), expected);
                expect_ok(copy_columns(real(),
                                       {.rows = c.rows,
                                        .columns = c.count,
                                        .x_width = c.x_width,
                                        .y_width = c.y_width,
                                        .adds = adds ? 1 : 0},
                                       at(from.data(), c.from),
                                       at(to.data(), c.to),
                                       nullptr));
                return to.numbers();
            });
            for (std::int64_t row = 0; row < c.rows; ++row) {
                for (std::int64_t column = 0; column < c.count; ++column) {
                    const auto in_x = static_cast<std::size_t>(row * c.x_width + c.from + column);
                    const auto in_y = static_cast<std::size_t>(row * c.y_width + c.to + column);
                    expected[in_y] = adds ? expected[in_y] + x[in_x] : x[in_x];
                }
            }
            EXPECT_TRUE(close(found, expected, way().bound()));
        }
    }
}

// Numbers that have other sums in other orders.
TEST_P(CudaElementwise, SumsOfMembersAreAddedUpInTheirOrder) {
    constexpr std::int64_t stride = 700;
    for (const int members : {2, 3, 5}) {
        for (const std::int64_t size : {0, 1, 7, 640}) {
            std::vector<Numbers> all;
            for (int member = 0; member < members; ++member) {
                all.push_back(random_numbers(size, static_cast<std::uint64_t>(member) + 1));
                std::for_each(all.back().begin(), all.back().end(), [member](float& value) {
                    value *= member % 2 == 0 ? 1.0F : -1e4F;
                });
            }
            for (int own = 0; own < members; ++own) {
                Numbers others(index(stride * (members - 1)));
                Numbers expected = all[0];
                for (int member = 0; member < members; ++member) {
                    const Numbers& from = all[static_cast<std::size_t>(member)];
                    for (std::int64_t i = 0; i < size; ++i) {
                        if (member > 0) {
                            expected[index(i)] += from[index(i)];
                        }
                        if (member != own) {
                            const int place = member < own ? member : member - 1;
                            others[index(place * stride + i)] = from[index(i)];
                        }
                    }
                }
                const Numbers found = run([&] {
                    const Operand x(floats(), others);
                    const Operand y(floats(), all[static_cast<std::size_t>(own)]);
                    expect_ok(sum_members({.size = size,
                                           .members = members,
                                           .own = own,
                                           .stride = stride,
                                           .x = x.floats(),
                                           .y = y.floats()},
                                          nullptr));
                    return y.numbers();
                });
                EXPECT_EQ(found, expected) << members << " members, " << own;
            }
        }
    }
}

TEST_P(CudaElementwise, TermsAreAddedUpInTheirOrderAndRoundedOnce) {
    for (const std::int64_t size : {0, 1, 9, 257, 5000}) {
        for (const std::int64_t count : {1, 2, 5, 32}) {
            SCOPED_TRACE(size * 100 + count);
            std::vector<Numbers> all;
            for (std::int64_t term = 0; term < count; ++term) {
                all.push_back(random(size, static_cast<std::uint64_t>(term)));
            }
            const Numbers skip = random(size, 99);
            for (const bool with_skip : {false, true}) {
                Numbers expected = all[0];
                for (std::int64_t i = 0; i < size; ++i) {
                    for (std::int64_t term = 1; term < count; ++term) {
                        expected[index(i)] += all[index(term)][index(i)];
                    }
                    expected[index(i)] += with_skip ? skip[index(i)] : 0.0F;
                }
                const Numbers found = run([&] {
                    std::vector<Operand> operands;
                    operands.reserve(all.size());
                    Terms terms;
                    for (const Numbers& term : all) {
                        operands.emplace_back(way(), term);
                        terms.at[terms.count++] = operands.back().data();
                    }
                    const Operand of_skip(way(), skip);
                    const Operand& y = operands.back();  // which is one of the terms
                    expect_ok(add_up(real(),
                                     size,
                                     terms,
                                     with_skip ? of_skip.data() : nullptr,
                                     y.data(),
                                     nullptr));
                    return y.numbers();
                });
                EXPECT_EQ(found, rounded(real(), expected));
            }
        }
    }
}

TEST_P(CudaElementwise, ConversionsScaleAndRoundOnce) {
    for (const std::int64_t size : {0, 1, 3, 8, 257, 5000}) {
        SCOPED_TRACE(size);
        const Numbers x = random_numbers(size, 1);
        const Numbers found = run([&] {
            const Operand from(floats(), x);
            const Operand to(way(), size);
            expect_ok(convert_from_float(real(), size, 0.5F, from.floats(), to.data(), nullptr));
            return to.numbers();
        });
        Numbers halves = x;
        std::for_each(halves.begin(), halves.end(), [](float& value) { value *= 0.5F; });
        EXPECT_EQ(found, rounded(real(), halves));
    }
}

TEST_P(CudaElementwise, SwiGluAndItsGradient) {
    for (const Shape& shape :
         {Shape{0, 4}, {1, 1}, {3, 7}, {5, 32}, {70, 40}, {2, 999}, {3, 776}}) {
        SCOPED_TRACE(shape.text());
        Numbers x = random(2 * shape.size(), 1);
        std::for_each(x.begin(), x.end(), [](float& value) { value *= 4; });  // the tails, too
        const Numbers dy = random(shape.size(), 2);
        Numbers y(index(shape.size()));
        Numbers dx(index(2 * shape.size()));
        const exec::ConstView of_x = view(std::as_const(x), shape.rows, 2 * shape.width);
        cpu().swiglu_forward(of_x, view(y, shape.rows, shape.width));
        cpu().swiglu_backward(
            of_x, view(dy, shape.rows, shape.width), view(dx, shape.rows, 2 * shape.width));
        const Numbers found = run([&] {
            const Operand from(way(), x);
            const Operand of_dy(way(), dy);
            const Operand to(way(), shape.size());
            const Operand beside(way(), 2 * shape.size());
            expect_ok(
                swiglu_forward(real(), shape.rows, shape.width, from.data(), to.data(), nullptr));
            expect_ok(swiglu_backward(real(),
                                      shape.rows,
                                      shape.width,
                                      from.data(),
                                      of_dy.data(),
                                      beside.data(),
                                      nullptr));
            expect_ok(swiglu_backward(
                real(), shape.rows, shape.width, from.data(), of_dy.data(), from.data(), nullptr));
            return joined({to.numbers(), beside.numbers(), from.numbers()});
        });
        const std::vector<Numbers> parts =
            split(found, {shape.size(), 2 * shape.size(), 2 * shape.size()});
        EXPECT_TRUE(close(parts[0], y, way().bound()));
        EXPECT_TRUE(close(parts[1], dx, way().bound()));
        EXPECT_EQ(parts[2], parts[1]) << "in place";
    }
}

// exp(-g) is infinite below -88.7, and the sigmoid 0.
TEST_P(CudaElementwise, SwiGluOfGatesFarFromZeroHasNoNan) {
    const Numbers x{-1000, -100, 100, 1000, 1, 2, 3, 4};
    const Numbers found = run([&] {
        const Operand from(way(), x);
        const Operand dy(way(), Numbers{1, 1, 1, 1});
        const Operand to(way(), 4);
        expect_ok(swiglu_forward(real(), 1, 4, from.data(), to.data(), nullptr));
        expect_ok(swiglu_backward(real(), 1, 4, from.data(), dy.data(), from.data(), nullptr));
        return joined({to.numbers(), from.numbers()});
    });
    const Numbers expected = rounded(real(), {0, 0, 300, 4000, 0, 0, 3, 4, 0, 0, 100, 1000});
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
    }
}

TEST_P(CudaElementwise, GeluAndItsGradient) {
    for (const auto& [form, of_cpu] :
         {std::pair{Gelu::Exact, GeluForm::Exact}, {Gelu::Tanh, GeluForm::Tanh}}) {
        for (const std::int64_t size : {0, 1, 7, 8, 999, 4096}) {
            SCOPED_TRACE(size);
            Numbers x = random(size, 1);
            std::for_each(x.begin(), x.end(), [](float& value) { value *= 4; });  // the tails, too
            const Numbers dy = random(size, 2);
            Numbers y(index(size));
            Numbers dx(index(size));
            const exec::ConstView from = view(std::as_const(x), 1, size);
            cpu().gelu_forward(of_cpu, from, view(y, 1, size));
            cpu().gelu_backward(of_cpu, from, view(dy, 1, size), view(dx, 1, size));
            const Numbers found = run([&] {
                const Operand of_x(way(), x);
                const Operand of_dy(way(), dy);
                const Operand to(way(), size);
                expect_ok(gelu_forward(real(), form, size, of_x.data(), to.data(), nullptr));
                expect_ok(gelu_backward(  // in place
                    real(),
                    form,
                    size,
                    of_x.data(),
                    of_dy.data(),
                    of_x.data(),
                    nullptr));
                return joined({to.numbers(), of_x.numbers()});
            });
            const std::vector<Numbers> parts = split(found, {size, size});
            EXPECT_TRUE(close(parts[0], y, way().bound()));
            EXPECT_TRUE(close(parts[1], dx, way().bound()));
        }
    }
}

// The cube of numbers of this size is infinite; what they are multiplied with is not.
TEST_P(CudaElementwise, GeluOfNumbersFarFromZeroIsTheirPositivePart) {
    const Numbers x{-1e30F, -1e13F, -100, 100, 1e13F, 1e30F};
    const Numbers dy(x.size(), 1);
    const auto size = static_cast<std::int64_t>(x.size());
    for (const Gelu form : {Gelu::Exact, Gelu::Tanh}) {
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dy(way(), dy);
            const Operand y(way(), size);
            const Operand dx(way(), size);
            expect_ok(gelu_forward(real(), form, size, of_x.data(), y.data(), nullptr));
            expect_ok(
                gelu_backward(real(), form, size, of_x.data(), of_dy.data(), dx.data(), nullptr));
            return joined({y.numbers(), dx.numbers()});
        });
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float at = rounded(real(), {x[i]})[0];
            EXPECT_NEAR(found[i], std::max(at, 0.0F), 1e-7F * std::fabs(at)) << x[i];
            EXPECT_NEAR(found[x.size() + i], x[i] > 0 ? 1 : 0, 1e-6) << x[i];
        }
    }
}

/// Also the same bits in fp32: masks are those of the CPU, and each result is rounded as there.
TEST_P(CudaElementwise, DropoutHasTheMasksOfTheCpu) {
    struct Case {
        Shape shape;             // samples
        std::int64_t first = 0;  // numbers that another device has before these
        std::int64_t size = 0;   // numbers that are here; 0: all
    };
    for (const auto& [shape, first, held] : {Case{{1, 1}},
                                             Case{{3, 1}},
                                             Case{{2, 7}},
                                             Case{{5, 64}},
                                             Case{{3, 1025}},
                                             Case{{2, 7}, 5, 4},
                                             Case{{4, 65}, 130, 130},
                                             Case{{3, 64}, 1, 100}}) {
        SCOPED_TRACE(shape.text());
        const std::int64_t size = held == 0 ? shape.size() : held;
        const exec::DropoutMask mask{.key = 0x1234'5678'9abc'def0U,
                                     .first_sample = 3,
                                     .numbers_per_sample = shape.width,
                                     .probability = 0.3,
                                     .first_number = first};
        const Numbers x = random(size, 1);
        const Numbers skip = random(size, 2);
        for (const bool with_skip : {false, true}) {
            Numbers expected(index(size));
            cpu().dropout(mask,
                          view(x, 1, size),
                          with_skip ? view(skip, 1, size) : exec::ConstView{},
                          view(expected, 1, size));
            const Numbers found = run([&] {
                const DeviceArray<DropoutStep> step(
                    std::vector<DropoutStep>{dropout_step_of(mask)});
                const Operand y(way(), x);  // in place
                const Operand of_skip(way(), skip);
                const std::int64_t in_sample = first % shape.width;
                expect_ok(dropout(real(),
                                  {.step = step.data(),
                                   .first_sample = mask.first_sample + first / shape.width,
                                   .samples = (in_sample + size + shape.width - 1) / shape.width,
                                   .numbers_per_sample = shape.width,
                                   .first = in_sample,
                                   .size = size},
                                  y.data(),
                                  with_skip ? of_skip.data() : nullptr,
                                  y.data(),
                                  nullptr));
                return y.numbers();
            });
            EXPECT_EQ(found, rounded(real(), expected));
        }
    }
}

TEST(CudaElementwiseOfNothing, DoesNothing) {
    EXPECT_EQ(dropout(Real::F32, {}, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(add(Real::F32, 0, nullptr, nullptr, nullptr), cudaSuccess);
}

}  // namespace elementwise_test
}  // namespace pipetwin::cuda
