#include "exec/cuda/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/cuda/device_math.h"
#include "exec/device.h"
#include "exec/kernels.h"
#include "exec/random.h"
#include "tests/support/cuda_emulation/orders.h"

// Every kernel against the CPU's, in fp32 on the same inputs (for bf16: rounded to it), over shapes
// that fill packs, warps, blocks and slices and that do not, in several orders of threads, at
// addresses that are multiples of 16 bytes and at others. Outputs hold NaN before.

namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::DType;
using exec::RandomStream;
using exec::View;

using Numbers = std::vector<float>;

std::size_t index(std::int64_t n) {
    return static_cast<std::size_t>(n);
}

Numbers random_numbers(std::int64_t count, std::uint64_t stream) {
    Numbers numbers(index(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<float>(RandomStream(stream).normal(i));
    }
    return numbers;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below, std::uint64_t stream) {
    std::vector<std::int32_t> ids(index(count));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(
            RandomStream(stream).below(i, static_cast<std::uint64_t>(below)));
    }
    return ids;
}

Numbers rounded(Real real, Numbers numbers) {
    if (real == Real::BF16) {
        for (float& number : numbers) {
            number = to_float(from_float<Bf16>(number));
        }
    }
    return numbers;
}

/// How a kernel is called: the type, and by how many elements its operands miss a multiple of 16
/// bytes.
struct Way {
    Real real = Real::F32;
    std::size_t offset = 0;

    double bound() const { return real == Real::F32 ? 1e-5 : 1e-2; }
};

void PrintTo(const Way& way, std::ostream* out) {
    *out << (way.real == Real::F32 ? "F32" : "BF16") << (way.offset == 0 ? "" : "Misaligned");
}

/// A tensor on the "device": exactly as long as it should be, so that the address sanitizer finds
/// what reads or writes behind it.
class Memory {
  public:
    Memory(Way way, const Numbers& numbers) : way_(way), size_(numbers.size()) {
        const std::size_t all = size_ + way.offset;
        if (way.real == Real::F32) {
            floats_.assign(all, std::numeric_limits<float>::quiet_NaN());
            std::copy(numbers.begin(),
                      numbers.end(),
                      floats_.begin() + static_cast<std::ptrdiff_t>(way.offset));
        } else {
            halves_.assign(all, Bf16{0xffff});
            std::transform(numbers.begin(),
                           numbers.end(),
                           halves_.begin() + static_cast<std::ptrdiff_t>(way.offset),
                           [](float number) { return from_float<Bf16>(number); });
        }
    }
    Memory(Way way, std::int64_t size)
        : Memory(way, Numbers(index(size), std::numeric_limits<float>::quiet_NaN())) {}

    void* data() {
        return way_.real == Real::F32 ? static_cast<void*>(floats_.data() + way_.offset)
                                      : static_cast<void*>(halves_.data() + way_.offset);
    }
    Numbers numbers() const {
        Numbers result(size_);
        for (std::size_t i = 0; i < size_; ++i) {
            result[i] = way_.real == Real::F32 ? floats_[way_.offset + i]
                                               : to_float(halves_[way_.offset + i]);
        }
        return result;
    }

  private:
    Way way_;
    std::size_t size_;
    std::vector<float> floats_;
    std::vector<Bf16> halves_;
};

/// By the norm, and element by element against itself or the root mean square.
::testing::AssertionResult close(const Numbers& found, const Numbers& expected, double bound) {
    if (found.size() != expected.size()) {
        return ::testing::AssertionFailure() << found.size() << " against " << expected.size();
    }
    double off_squares = 0;
    double squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double off = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
        off_squares += off * off;
        squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    const double mean = std::sqrt(squares / std::max<double>(1, static_cast<double>(found.size())));
    if (!(std::sqrt(off_squares) <= bound * std::sqrt(squares))) {
        return ::testing::AssertionFailure() << fmt::format(
                   "off by {:.3g} of {:.3g}", std::sqrt(off_squares), std::sqrt(squares));
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double off =
            std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
        if (!(off <= bound * std::max(mean, std::fabs(static_cast<double>(expected[i]))))) {
            return ::testing::AssertionFailure()
                   << fmt::format("element {}: {:.9g} against {:.9g}", i, found[i], expected[i]);
        }
    }
    return ::testing::AssertionSuccess();
}

View view(Numbers& numbers, std::int64_t rows, std::int64_t columns) {
    return {numbers.data(), DType::F32, rows, columns};
}
/// Numbers that are not empty have an address; CPU kernels take a view without one as absent.
ConstView view(const Numbers& numbers, std::int64_t rows, std::int64_t columns) {
    return {numbers.data(), DType::F32, rows, columns};
}
ConstView view(const std::vector<std::int32_t>& ids) {
    return {ids.data(), DType::I32, static_cast<std::int64_t>(ids.size()), 1};
}

const exec::Kernels& cpu() {
    return exec::cpu_kernels();
}

struct Shape {
    std::int64_t rows = 0;
    std::int64_t width = 0;

    std::int64_t size() const { return rows * width; }
    std::string text() const { return fmt::format("({}, {})", rows, width); }
};

class CudaKernels : public ::testing::TestWithParam<Way> {
  protected:
    static Way way() { return GetParam(); }
    static Real real() { return way().real; }
    static Numbers random(std::int64_t count, std::uint64_t stream) {
        return rounded(real(), random_numbers(count, stream));
    }
    /// Calls the kernels in several orders; `call` returns what they have written.
    static Numbers run(const std::function<Numbers()>& call) {
        return emulation::in_every_order(call);
    }
    static void expect_ok(cudaError_t error) { EXPECT_EQ(error, cudaSuccess); }
};

INSTANTIATE_TEST_SUITE_P(
    Ways,
    CudaKernels,
    ::testing::Values(Way{Real::F32, 0}, Way{Real::F32, 1}, Way{Real::BF16, 0}, Way{Real::BF16, 1}),
    ::testing::PrintToStringParamName());

Numbers joined(std::initializer_list<Numbers> parts) {
    Numbers all;
    for (const Numbers& part : parts) {
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

TEST_P(CudaKernels, AddAdds) {
    for (const std::int64_t size : {0, 1, 3, 8, 257, 5000}) {
        SCOPED_TRACE(size);
        const Numbers x = random(size, 1);
        Numbers expected = random(size, 2);
        const Numbers found = run([&] {
            Memory from(way(), x);
            Memory to(way(), expected);
            expect_ok(add(real(), size, from.data(), to.data(), nullptr));
            return to.numbers();
        });
        cpu().add(view(x, 1, size), view(expected, 1, size));
        EXPECT_TRUE(close(found, expected, way().bound()));
    }
}

TEST_P(CudaKernels, ConversionsScaleAndRoundOnce) {
    for (const std::int64_t size : {0, 1, 3, 8, 257, 5000}) {
        SCOPED_TRACE(size);
        const Way floats{Real::F32, way().offset};
        const Numbers x = random_numbers(size, 1);
        const Numbers found = run([&] {
            Memory from(floats, x);
            Memory to(way(), size);
            Memory back(floats, size);
            expect_ok(convert_from_float(
                real(), size, 0.5F, static_cast<float*>(from.data()), to.data(), nullptr));
            expect_ok(convert_to_float(
                real(), size, to.data(), static_cast<float*>(back.data()), nullptr));
            return joined({to.numbers(), back.numbers()});
        });
        Numbers halves = x;
        std::for_each(halves.begin(), halves.end(), [](float& value) { value *= 0.5F; });
        halves = rounded(real(), halves);
        EXPECT_EQ(found, joined({halves, halves}));
    }
}

const std::vector<Shape> shapes = {{1, 1}, {1, 8}, {2, 7}, {5, 33}, {9, 64}, {70, 40}, {3, 776}};

TEST_P(CudaKernels, LayOutAddsTheBiasToEveryRow) {
    for (const Shape& shape : shapes) {
        SCOPED_TRACE(shape.text());
        const Numbers skip = random(shape.size(), 1);
        const Numbers bias = random(shape.width, 2);
        for (const auto& [with_skip, with_bias] :
             {std::pair{true, true}, {true, false}, {false, true}}) {
            Numbers expected(index(shape.size()));
            for (std::int64_t i = 0; i < shape.size(); ++i) {
                expected[index(i)] = (with_skip ? skip[index(i)] : 0) +
                                     (with_bias ? bias[index(i % shape.width)] : 0);
            }
            const Numbers found = run([&, s = with_skip, b = with_bias] {
                Memory of_skip(way(), skip);
                Memory of_bias(way(), bias);
                Memory y(way(), shape.size());
                expect_ok(lay_out(real(),
                                  shape.rows,
                                  shape.width,
                                  s ? of_skip.data() : nullptr,
                                  b ? of_bias.data() : nullptr,
                                  y.data(),
                                  nullptr));
                return y.numbers();
            });
            EXPECT_EQ(found, rounded(real(), expected));
        }
    }
}

TEST_P(CudaKernels, GeluAndItsGradient) {
    for (const std::int64_t size : {0, 1, 7, 8, 999, 4096}) {
        SCOPED_TRACE(size);
        Numbers x = random(size, 1);
        std::for_each(x.begin(), x.end(), [](float& value) { value *= 4; });  // the tails, too
        const Numbers dy = random(size, 2);
        Numbers y(index(size));
        Numbers dx(index(size));
        cpu().gelu_forward(view(std::as_const(x), 1, size), view(y, 1, size));
        cpu().gelu_backward(view(std::as_const(x), 1, size), view(dy, 1, size), view(dx, 1, size));
        const Numbers found = run([&] {
            Memory of_x(way(), x);
            Memory of_dy(way(), dy);
            Memory to(way(), size);
            expect_ok(gelu_forward(real(), size, of_x.data(), to.data(), nullptr));
            // In place.
            expect_ok(gelu_backward(real(), size, of_x.data(), of_dy.data(), of_x.data(), nullptr));
            return joined({to.numbers(), of_x.numbers()});
        });
        EXPECT_TRUE(close(Numbers(found.begin(), found.begin() + size), y, way().bound()));
        EXPECT_TRUE(close(Numbers(found.begin() + size, found.end()), dx, way().bound()));
    }
}

/// Widths on both sides of what a warp and what a block is given.
const std::vector<Shape> row_shapes = {{1, 1},
                                       {1, 8},
                                       {2, 7},
                                       {17, 33},
                                       {9, 64},
                                       {3, 776},
                                       {2, 2048},
                                       {2, 2049},
                                       {1, 2056},
                                       {2, 4104}};

struct LayerNormCase {
    Numbers x, gain, bias, dy, skip;
    Numbers y, statistics, dx, dx_without_skip, dgain, dbias;
};

/// With the CPU's results; gradients of weights begin as dgain, dbias = bias, gain.
LayerNormCase layer_norm_case(Real real, Shape shape) {
    const auto [n, width] = shape;
    LayerNormCase c;
    c.x = rounded(real, random_numbers(shape.size(), 1));
    c.gain = rounded(real, random_numbers(width, 2));
    c.bias = rounded(real, random_numbers(width, 3));
    c.dy = rounded(real, random_numbers(shape.size(), 4));
    c.skip = rounded(real, random_numbers(shape.size(), 5));
    c.y = c.dx = c.dx_without_skip = c.x;
    c.statistics = Numbers(index(2 * n));
    c.dgain = c.bias;
    c.dbias = c.gain;
    const ConstView x = view(std::as_const(c.x), n, width);
    const ConstView gain = view(std::as_const(c.gain), 1, width);
    const ConstView dy = view(std::as_const(c.dy), n, width);
    const View statistics = view(c.statistics, n, 2);
    cpu().layer_norm_forward(x, gain, view(c.bias, 1, width), view(c.y, n, width), statistics);
    cpu().layer_norm_backward_input(
        x, gain, statistics, dy, view(c.skip, n, width), view(c.dx, n, width));
    cpu().layer_norm_backward_input(x, gain, statistics, dy, {}, view(c.dx_without_skip, n, width));
    cpu().layer_norm_backward_weight(
        x, statistics, dy, view(c.dgain, 1, width), view(c.dbias, 1, width));
    return c;
}

TEST_P(CudaKernels, LayerNormForward) {
    for (const Shape& shape : row_shapes) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const Numbers found = run([&] {
            Memory x(way(), c.x);
            Memory gain(way(), c.gain);
            Memory bias(way(), c.bias);
            Memory y(way(), shape.size());
            Numbers statistics(index(2 * shape.rows));
            const LayerNorm norm{shape.rows, shape.width, x.data(), gain.data()};
            expect_ok(layer_norm_forward(
                real(), norm, bias.data(), y.data(), statistics.data(), nullptr));
            return joined({y.numbers(), statistics});
        });
        const auto end_of_y = found.begin() + shape.size();
        EXPECT_TRUE(close(Numbers(found.begin(), end_of_y), c.y, way().bound()));
        EXPECT_TRUE(close(Numbers(end_of_y, found.end()), c.statistics, 1e-5));
    }
}

TEST_P(CudaKernels, LayerNormBackwardOfTheInput) {
    for (const Shape& shape : row_shapes) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const auto backward = [&](bool with_skip, bool in_place) {
            return run([&, with_skip, in_place] {
                Memory x(way(), c.x);
                Memory gain(way(), c.gain);
                Memory dy(way(), c.dy);
                Memory skip(way(), c.skip);
                Memory dx(way(), shape.size());
                const LayerNorm norm{shape.rows, shape.width, x.data(), gain.data()};
                expect_ok(layer_norm_backward_input(real(),
                                                    norm,
                                                    c.statistics.data(),
                                                    dy.data(),
                                                    with_skip ? skip.data() : nullptr,
                                                    in_place ? x.data() : dx.data(),
                                                    nullptr));
                return in_place ? x.numbers() : dx.numbers();
            });
        };
        // Of one number the gradient is 0, and what is found is rounding error.
        if (shape.width > 1) {
            EXPECT_TRUE(close(backward(false, false), c.dx_without_skip, way().bound()));
        }
        EXPECT_TRUE(close(backward(true, false), c.dx, way().bound()));
        EXPECT_TRUE(close(backward(true, true), c.dx, way().bound()));
    }
}

/// Several slices of rows, full and not; tiles of columns, full and not.
const std::vector<Shape> sum_shapes = {
    {1, 1}, {1, 8}, {31, 7}, {33, 40}, {70, 264}, {129, 33}, {260, 3}, {3, 776}};

TEST_P(CudaKernels, LayerNormBackwardOfTheWeights) {
    for (const Shape& shape : sum_shapes) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const Numbers found = run([&] {
            Memory x(way(), c.x);
            Memory dy(way(), c.dy);
            Numbers dgain = c.bias;
            Numbers dbias = c.gain;
            Numbers scratch(index(layer_norm_scratch(shape.rows, shape.width)),
                            std::numeric_limits<float>::quiet_NaN());
            const LayerNorm norm{shape.rows, shape.width, x.data(), nullptr};
            expect_ok(layer_norm_backward_weight(real(),
                                                 norm,
                                                 c.statistics.data(),
                                                 dy.data(),
                                                 dgain.data(),
                                                 dbias.data(),
                                                 scratch.data(),
                                                 nullptr));
            return joined({dgain, dbias});
        });
        const auto middle = found.begin() + shape.width;
        EXPECT_TRUE(close(Numbers(found.begin(), middle), c.dgain, 1e-5));
        EXPECT_TRUE(close(Numbers(middle, found.end()), c.dbias, 1e-5));
    }
}

TEST_P(CudaKernels, ColumnSumsAreAddedToTheBiasGradient) {
    for (const Shape& shape : sum_shapes) {
        SCOPED_TRACE(shape.text());
        const Numbers dy = random(shape.size(), 1);
        const Numbers before = random_numbers(shape.width, 2);
        Numbers expected = before;
        for (std::int64_t i = 0; i < shape.size(); ++i) {
            expected[index(i % shape.width)] += dy[index(i)];
        }
        const Numbers found = run([&] {
            Memory of_dy(way(), dy);
            Numbers db = before;
            Numbers scratch(index(column_sums_scratch(shape.rows, shape.width)),
                            std::numeric_limits<float>::quiet_NaN());
            expect_ok(column_sums(
                real(), shape.rows, shape.width, of_dy.data(), db.data(), scratch.data(), nullptr));
            return db;
        });
        EXPECT_TRUE(close(found, expected, 1e-5));
    }
}

struct EmbeddingCase {
    std::int64_t rows = 0;
    std::int64_t positions = 1;
    std::int64_t width = 0;
    std::int64_t vocabulary = 0;

    std::string text() const {
        return fmt::format("({}, {}) at {} positions, {} ids", rows, width, positions, vocabulary);
    }
};

/// Few ids for many rows and the reverse, a context that is longer than the samples, and (the last
/// and slowest) more rows than backward looks at in one go.
const std::vector<EmbeddingCase> embedding_cases = {{1, 1, 1, 1},
                                                    {6, 3, 8, 4},
                                                    {40, 10, 33, 1000},
                                                    {10, 20, 16, 5},
                                                    {6, 6, 2056, 3},
                                                    {1100, 400, 3, 700}};

TEST_P(CudaKernels, EmbeddingForwardIsThatOfTheCpu) {
    for (const EmbeddingCase& c : embedding_cases) {
        SCOPED_TRACE(c.text());
        const std::vector<std::int32_t> ids = random_ids(c.rows, c.vocabulary, 1);
        const Numbers tokens = random(c.vocabulary * c.width, 2);
        const Numbers places = random(c.positions * c.width, 3);
        const Embedding embedding{c.rows, c.positions, c.width, ids.data()};
        for (const bool with_places : {true, false}) {
            Numbers expected(index(c.rows * c.width));
            cpu().embedding_forward(view(ids),
                                    view(tokens, c.vocabulary, c.width),
                                    with_places ? view(places, c.positions, c.width) : ConstView(),
                                    static_cast<int>(c.positions),
                                    view(expected, c.rows, c.width));
            const Numbers found = run([&] {
                Memory of_tokens(way(), tokens);
                Memory of_places(way(), places);
                Memory y(way(), c.rows * c.width);
                expect_ok(embedding_forward(real(),
                                            embedding,
                                            of_tokens.data(),
                                            with_places ? of_places.data() : nullptr,
                                            y.data(),
                                            nullptr));
                return y.numbers();
            });
            EXPECT_EQ(found, rounded(real(), expected));
        }
    }
}

// Both add row after row, so the bits are equal.
TEST_P(CudaKernels, EmbeddingBackwardIsThatOfTheCpuBitForBit) {
    for (const EmbeddingCase& c : embedding_cases) {
        const bool is_slow = c.rows > 1000;
        if (is_slow && way().offset != 0) {
            continue;
        }
        SCOPED_TRACE(c.text());
        const std::vector<std::int32_t> ids = random_ids(c.rows, c.vocabulary, 1);
        const Numbers dy = random(c.rows * c.width, 2);
        const Numbers before_tokens = random_numbers(c.vocabulary * c.width, 3);
        const Numbers before_places = random_numbers(c.positions * c.width, 4);
        const Embedding embedding{c.rows, c.positions, c.width, ids.data()};
        for (const bool with_places : {true, false}) {
            if (is_slow && !with_places) {
                continue;
            }
            Numbers dtokens = before_tokens;
            Numbers dplaces = before_places;
            cpu().embedding_backward(view(ids),
                                     view(dy, c.rows, c.width),
                                     static_cast<int>(c.positions),
                                     view(dtokens, c.vocabulary, c.width),
                                     with_places ? view(dplaces, c.positions, c.width) : View());
            const Numbers found = run([&] {
                Memory of_dy(way(), dy);
                Numbers to_tokens = before_tokens;
                Numbers to_places = before_places;
                expect_ok(embedding_backward(real(),
                                             embedding,
                                             of_dy.data(),
                                             to_tokens.data(),
                                             with_places ? to_places.data() : nullptr,
                                             nullptr));
                return joined({to_tokens, to_places});
            });
            EXPECT_EQ(found, joined({dtokens, dplaces}));
        }
    }
}

TEST_P(CudaKernels, CrossEntropyAndItsGradient) {
    std::vector<Shape> all = row_shapes;
    all.push_back({1100, 3});  // more losses than the block that adds them up has threads
    for (const Shape& shape : all) {
        SCOPED_TRACE(shape.text());
        const auto [n, width] = shape;
        Numbers x = random(shape.size(), 1);
        std::for_each(x.begin(), x.end(), [](float& value) { value = 8 * value + 64; });
        x = rounded(real(), x);
        const std::vector<std::int32_t> targets = random_ids(n, width, 2);
        Numbers log_sums(index(n));
        Numbers dx(index(shape.size()));
        double sum = 0;
        cpu().cross_entropy_forward(
            view(std::as_const(x), n, width), view(targets), view(log_sums, n, 1), &sum);
        constexpr float scale = 0.25F;
        cpu().cross_entropy_backward(view(std::as_const(x), n, width),
                                     view(targets),
                                     view(std::as_const(log_sums), n, 1),
                                     scale,
                                     view(dx, n, width));
        double found_sum = 0;
        const auto both = [&](bool in_place) {
            return run([&, in_place] {
                Memory of_x(way(), x);
                Memory of_dx(way(), shape.size());
                Numbers sums(index(n), std::numeric_limits<float>::quiet_NaN());
                std::vector<double> row_losses(index(n));
                const CrossEntropy loss{n, width, of_x.data(), targets.data()};
                found_sum = std::numeric_limits<double>::quiet_NaN();
                expect_ok(cross_entropy_forward(
                    real(), loss, sums.data(), row_losses.data(), &found_sum, nullptr));
                expect_ok(cross_entropy_backward(real(),
                                                 loss,
                                                 sums.data(),
                                                 scale,
                                                 in_place ? of_x.data() : of_dx.data(),
                                                 nullptr));
                return joined({sums, in_place ? of_x.numbers() : of_dx.numbers()});
            });
        };
        const Numbers found = both(true);
        EXPECT_EQ(found, both(false));
        EXPECT_NEAR(found_sum, sum, 1e-5 * 64 * static_cast<double>(n));
        const auto middle = found.begin() + n;
        EXPECT_TRUE(close(Numbers(found.begin(), middle), log_sums, 1e-5));
        // The gradient of a class that is certain is 0, and what is found is rounding error.
        if (width > 1) {
            EXPECT_TRUE(close(Numbers(middle, found.end()), dx, way().bound()));
        }
    }
}

// A vocabulary of odd size whose logits lie far apart, one of them at minus infinity, and high or
// low.
TEST_P(CudaKernels, CrossEntropyOfLogitsWhoseExponentialsAreNoNumbers) {
    for (const float level : {3072.0F, 0.0F, -3072.0F}) {
        SCOPED_TRACE(level);
        constexpr float nowhere = -std::numeric_limits<float>::infinity();
        Numbers x = {-90, -900, 0, -16, nowhere, -200, -80, -3000, -70};
        std::for_each(x.begin(), x.end(), [=](float& value) { value += level; });
        x = rounded(real(), x);
        const std::vector<std::int32_t> targets = {3};
        Memory of_x(way(), x);
        Numbers log_sums(1);
        std::vector<double> row_losses(1);
        double sum = 0;
        const CrossEntropy loss{1, 9, of_x.data(), targets.data()};
        expect_ok(
            cross_entropy_forward(real(), loss, log_sums.data(), row_losses.data(), &sum, nullptr));
        EXPECT_NEAR(sum, std::log1p(std::exp(-16.0)) + 16, 1e-6);
    }
}

TEST(CudaKernelsOfNothing, DoNothingButToSayThatTheSumIsZero) {
    double sum = 1;
    EXPECT_EQ(cross_entropy_forward(Real::F32, {0, 5}, nullptr, nullptr, &sum, nullptr),
              cudaSuccess);
    EXPECT_EQ(sum, 0);
    EXPECT_EQ(cross_entropy_backward(Real::F32, {0, 5}, nullptr, 1, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(layer_norm_forward(Real::F32, {0, 5}, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(
        layer_norm_backward_input(Real::F32, {0, 5}, nullptr, nullptr, nullptr, nullptr, nullptr),
        cudaSuccess);
    EXPECT_EQ(layer_norm_scratch(0, 5), 0);
    EXPECT_EQ(layer_norm_backward_weight(
                  Real::F32, {0, 5}, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(column_sums(Real::F32, 0, 5, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(lay_out(Real::F32, 0, 5, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(embedding_forward(Real::F32, {0, 1, 5}, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(embedding_backward(Real::F32, {0, 1, 5}, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(update(Real::F32, UpdateRule::Adam, {}, nullptr), cudaSuccess);
}

/// A parameter with everything that an update touches.
struct Parameter {
    Numbers value, gradient, first, second;
};

Parameter random_parameter(std::int64_t size, std::uint64_t stream) {
    Parameter p{random_numbers(size, stream),
                random_numbers(size, stream + 1),
                random_numbers(size, stream + 2),
                random_numbers(size, stream + 3)};
    // The second moment, and RmsProp's first, are no less than 0.
    for (Numbers* const moments : {&p.first, &p.second}) {
        std::for_each(moments->begin(), moments->end(), [](float& m) { m = std::fabs(m); });
    }
    return p;
}

struct Rates {
    double rate = 0.1;
    double momentum = 0.9;
    double decay = 0.97;
    double epsilon = 0.01;  // large enough to show where it stands in a formula
    exec::AdamFactors adam{.beta1 = 0.9,
                           .beta2 = 0.999,
                           .epsilon = 0.01,
                           .rate = 0.001 / (1 - 0.9 * 0.9),
                           .root_scale = 1 / std::sqrt(1 - 0.999 * 0.999),
                           .decay_factor = 1 - 0.001 * 0.01};
};

/// The CPU's update; returns the sum of the squares.
double update_on_cpu(UpdateRule rule, const Rates& rates, Parameter& p) {
    const auto size = static_cast<std::int64_t>(p.value.size());
    double squares = 0;
    exec::UpdateView view_of_p;
    view_of_p.value = view(p.value, 1, size);
    view_of_p.gradient = view(p.gradient, 1, size);
    view_of_p.first = view(p.first, 1, size);
    view_of_p.second = view(p.second, 1, size);
    view_of_p.squares = &squares;
    const std::span<const exec::UpdateView> operands(&view_of_p, 1);
    switch (rule) {
        case UpdateRule::Sgd:
            cpu().sgd(operands, rates.rate);
            break;
        case UpdateRule::Momentum:
            cpu().momentum(operands, rates.rate, rates.momentum);
            break;
        case UpdateRule::RmsProp:
            cpu().rmsprop(operands, rates.rate, rates.decay, rates.epsilon);
            break;
        case UpdateRule::Adam:
            cpu().adam(operands, rates.adam);
            break;
    }
    return squares;
}

UpdateFactors factors_of(UpdateRule rule, const Rates& rates) {
    UpdateFactors f;
    f.rate = static_cast<float>(rule == UpdateRule::Adam ? rates.adam.rate : rates.rate);
    const double keep = rule == UpdateRule::Adam      ? rates.adam.beta1
                        : rule == UpdateRule::RmsProp ? rates.decay
                                                      : rates.momentum;
    f.keep_first = static_cast<float>(keep);
    f.take_first = static_cast<float>(1 - keep);
    f.keep_second = static_cast<float>(rates.adam.beta2);
    f.take_second = static_cast<float>(1 - rates.adam.beta2);
    f.epsilon = static_cast<float>(rates.epsilon);
    f.root_scale = static_cast<float>(rates.adam.root_scale);
    f.decay_factor = static_cast<float>(rates.adam.decay_factor);
    return f;
}

/// Parameters on the "device", updated in one go. In bf16 the masters are updated.
class Stage {
  public:
    Stage(Way way, const std::vector<Parameter>& parameters) : real_(way.real) {
        const Way floats{Real::F32, way.offset};
        for (const Parameter& p : parameters) {
            for (const Numbers* const numbers : {&p.value, &p.gradient, &p.first, &p.second}) {
                memories_.push_back(std::make_unique<Memory>(floats, *numbers));
            }
            memories_.push_back(std::make_unique<Memory>(
                Way{Real::BF16, way.offset}, static_cast<std::int64_t>(p.value.size())));
        }
        squares_.assign(parameters.size(), std::numeric_limits<double>::quiet_NaN());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const auto of = [&](std::size_t which) {
                return static_cast<float*>(memories_[5 * i + which]->data());
            };
            UpdateTensor tensor;
            tensor.value = real_ == Real::F32 ? of(0) : memories_[5 * i + 4]->data();
            tensor.master = real_ == Real::F32 ? nullptr : of(0);
            tensor.gradient = of(1);
            tensor.first = of(2);
            tensor.second = of(3);
            tensor.size = static_cast<std::int64_t>(parameters[i].value.size());
            tensor.squares = &squares_[i];
            tensors_.push_back(tensor);
        }
    }

    void update(UpdateRule rule, const UpdateFactors& factors) {
        const std::vector<UpdateChunk> chunks = update_chunks(tensors_);
        std::vector<double> scratch(chunks.size(), std::numeric_limits<double>::quiet_NaN());
        const Updates updates{tensors_.data(),
                              static_cast<std::int64_t>(tensors_.size()),
                              chunks.data(),
                              static_cast<std::int64_t>(chunks.size()),
                              &factors,
                              scratch.data()};
        EXPECT_EQ(cuda::update(real_, rule, updates, nullptr), cudaSuccess);
    }

    /// Value, gradient, first and second of one after the other.
    Numbers numbers(std::size_t parameter, std::size_t which) const {
        return memories_[5 * parameter + which]->numbers();
    }
    Numbers rounded_value(std::size_t parameter) const { return numbers(parameter, 4); }
    Numbers all() const {
        Numbers result;
        for (const auto& memory : memories_) {
            result = joined({result, memory->numbers()});
        }
        for (const double sum : squares_) {  // both halves of its bits
            Numbers halves(2);
            std::memcpy(halves.data(), &sum, sizeof sum);
            result = joined({result, halves});
        }
        return result;
    }
    double squares(std::size_t parameter) const { return squares_[parameter]; }

  private:
    Real real_;
    std::vector<std::unique_ptr<Memory>> memories_;
    std::vector<double> squares_;
    std::vector<UpdateTensor> tensors_;
};

void expect_updated(Way way, UpdateRule rule) {
    const Rates rates;
    std::vector<Parameter> parameters;
    for (const std::int64_t size :
         {1L, 5L, 0L, 64L, 3000L, update_chunk_size, update_chunk_size + 7}) {
        parameters.push_back(random_parameter(size, 10 * parameters.size()));
    }
    const UpdateFactors factors = factors_of(rule, rates);
    emulation::in_every_order([&] {
        Stage stage(way, parameters);
        stage.update(rule, factors);
        return stage.all();
    });
    Stage stage(way, parameters);
    stage.update(rule, factors);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        SCOPED_TRACE(parameters[i].value.size());
        Parameter expected = parameters[i];
        const double squares = update_on_cpu(rule, rates, expected);
        EXPECT_TRUE(close(stage.numbers(i, 0), expected.value, 1e-5));
        EXPECT_EQ(stage.numbers(i, 1), expected.gradient);
        EXPECT_TRUE(close(stage.numbers(i, 2), expected.first, 1e-5));
        EXPECT_TRUE(close(stage.numbers(i, 3), expected.second, 1e-5));
        EXPECT_NEAR(stage.squares(i), squares, 1e-12 * squares);
        if (way.real == Real::BF16) {
            EXPECT_EQ(stage.rounded_value(i), rounded(Real::BF16, stage.numbers(i, 0)));
        }
    }
}

TEST_P(CudaKernels, SgdUpdates) {
    expect_updated(way(), UpdateRule::Sgd);
}
TEST_P(CudaKernels, MomentumUpdates) {
    expect_updated(way(), UpdateRule::Momentum);
}
TEST_P(CudaKernels, RmsPropUpdates) {
    expect_updated(way(), UpdateRule::RmsProp);
}
TEST_P(CudaKernels, AdamUpdates) {
    expect_updated(way(), UpdateRule::Adam);
}

TEST(CudaUpdateChunks, CoverEveryTensorInOrder) {
    std::vector<UpdateTensor> tensors(3);
    tensors[0].size = update_chunk_size + 1;
    tensors[1].size = 0;
    tensors[2].size = 2 * update_chunk_size;
    const std::vector<UpdateChunk> chunks = update_chunks(tensors);
    ASSERT_EQ(chunks.size(), 4U);
    const std::vector<std::pair<int, int>> expected = {{0, 0}, {0, 1}, {2, 0}, {2, 1}};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(std::pair(chunks[i].tensor, chunks[i].index), expected[i]);
    }
    EXPECT_EQ(tensors[0].first_chunk, 0);
    EXPECT_EQ(tensors[1].first_chunk, 2);
    EXPECT_EQ(tensors[2].first_chunk, 2);
}

}  // namespace
}  // namespace pipetwin::cuda
