// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "exec/cuda/kernels/attention/attention.h"
#include "tests/exec/cuda/kernels/attention_oracle.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

// Kernels at the sizes of GPT-2 124M, a micro-batch of 16 x 1024, where that is quick; some rows,
// columns or heads of each against the CPU.
namespace pipetwin::cuda {
namespace gpt2_sizes_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

struct Model {
    std::int64_t samples, positions, heads, width, vocabulary;

    std::int64_t rows() const { return samples * positions; }
    std::int64_t hidden() const { return 4 * width; }
};

Model model() {
    return is_fast() ? Model{16, 1024, 12, 768, 50304} : Model{2, 70, 3, 192, 1601};
}

/// Random numbers that repeat after a prime count: a large matrix costs the host nothing.
class Pattern {
  public:
    Pattern(Real real, std::uint64_t stream)
        : numbers_(rounded(real, random_numbers(9973, stream))) {}

    float at(std::int64_t i) const { return numbers_[index(i) % numbers_.size()]; }
    Numbers part(std::int64_t first, std::int64_t count) const {
        Numbers result;
        for (std::int64_t i = first; i < first + count; ++i) {
            result.push_back(at(i));
        }
        return result;
    }
    Operand operand(Real real, std::int64_t size) const {
        Operand all({real}, size);
        all.repeat(numbers_);
        return all;
    }

  private:
    Numbers numbers_;
};

/// So many of 0 .. count - 1, with the first and the last.
std::vector<std::int64_t> some_of(std::int64_t count, std::int64_t wanted) {
    std::vector<std::int64_t> some;
    for (std::int64_t i = 0; i < wanted; ++i) {
        some.push_back(i * (count - 1) / (wanted - 1));
    }
    return some;
}

Numbers row_of(const Operand& matrix, std::int64_t row, std::int64_t width) {
    return matrix.numbers(index(row * width), index(width));
}

class CudaGpt2 : public ::testing::TestWithParam<Real> {
  protected:
    static Real real() { return GetParam(); }
    static double bound() { return Way{real()}.bound(); }
    static void expect_ok(cudaError_t error) { EXPECT_EQ(error, cudaSuccess); }
    const Model m = model();
    const Pattern x{real(), 1};
    const Pattern dy{real(), 2};
};
INSTANTIATE_TEST_SUITE_P(Reals,
                         CudaGpt2,
                         ::testing::Values(Real::F32, Real::BF16),
                         [](const auto& of) { return of.param == Real::F32 ? "F32" : "BF16"; });

TEST_P(CudaGpt2, GeluAndItsGradientInPlace) {
    const std::int64_t size = m.rows() * m.hidden();
    const Operand of_dy = dy.operand(real(), size);
    const Operand y({real()}, size);
    for (const auto& [form, of_cpu] :
         {std::pair{Gelu::Exact, GeluForm::Exact}, {Gelu::Tanh, GeluForm::Tanh}}) {
        const Operand of_x = x.operand(real(), size);
        expect_ok(gelu_forward(real(), form, size, of_x.data(), y.data(), nullptr));
        expect_ok(
            gelu_backward(real(), form, size, of_x.data(), of_dy.data(), of_x.data(), nullptr));
        for (const std::int64_t row : some_of(m.rows(), 9)) {
            const std::int64_t first = row * m.hidden();
            Numbers expected_y(index(m.hidden()));
            Numbers expected_dx(index(m.hidden()));
            const Numbers in = x.part(first, m.hidden());
            const Numbers gradient = dy.part(first, m.hidden());
            cpu().gelu_forward(of_cpu, view(in, 1, m.hidden()), view(expected_y, 1, m.hidden()));
            cpu().gelu_backward(of_cpu,
                                view(in, 1, m.hidden()),
                                view(gradient, 1, m.hidden()),
                                view(expected_dx, 1, m.hidden()));
            EXPECT_TRUE(close(row_of(y, row, m.hidden()), expected_y, bound()));
            EXPECT_TRUE(close(row_of(of_x, row, m.hidden()), expected_dx, bound()));
        }
    }
}

TEST_P(CudaGpt2, LayerNormAndTheGradientOfItsInput) {
    const std::int64_t size = m.rows() * m.width;
    const Operand of_x = x.operand(real(), size);
    const Operand of_dy = dy.operand(real(), size);
    const Numbers gain = Pattern(real(), 3).part(0, m.width);
    const Numbers bias = Pattern(real(), 4).part(0, m.width);
    const Operand of_gain({real()}, gain);
    const Operand of_bias({real()}, bias);
    const Operand y({real()}, size);
    const DeviceArray<float> statistics(index(2 * m.rows()));
    const RowNorm norm{m.rows(), m.width, of_x.data(), of_gain.data()};
    expect_ok(row_norm_forward(real(), norm, of_bias.data(), y.data(), statistics.data(), nullptr));
    expect_ok(row_norm_backward_input(
        real(), norm, statistics.data(), of_dy.data(), of_dy.data(), of_x.data(), nullptr));
    for (const std::int64_t row : some_of(m.rows(), 9)) {
        const Numbers in = x.part(row * m.width, m.width);
        const Numbers gradient = dy.part(row * m.width, m.width);
        Numbers expected_y(in.size());
        Numbers expected_dx(in.size());
        Numbers expected_statistics(2);
        const exec::ConstView of_row = view(in, 1, m.width);
        cpu().row_norm_forward({},
                               of_row,
                               view(gain, 1, m.width),
                               view(bias, 1, m.width),
                               view(expected_y, 1, m.width),
                               view(expected_statistics, 1, 2));
        cpu().row_norm_backward_input({},
                                      of_row,
                                      view(gain, 1, m.width),
                                      view(std::as_const(expected_statistics), 1, 2),
                                      view(gradient, 1, m.width),
                                      view(gradient, 1, m.width),
                                      view(expected_dx, 1, m.width));
        EXPECT_TRUE(close(row_of(y, row, m.width), expected_y, bound()));
        EXPECT_TRUE(close(statistics.elements(index(2 * row), 2), expected_statistics, 1e-5));
        EXPECT_TRUE(close(row_of(of_x, row, m.width), expected_dx, bound()));
    }
}

TEST_P(CudaGpt2, SumsOverRows) {
    const Operand of_x = x.operand(real(), m.rows() * m.hidden());
    const Operand of_dy = dy.operand(real(), m.rows() * m.hidden());
    const Pattern numbers(Real::F32, 3);
    const Operand statistics = numbers.operand(Real::F32, 2 * m.rows());
    const DeviceArray<float> dgain(Numbers(index(m.width), 1));
    const DeviceArray<float> dbias(Numbers(index(m.width), 2));
    const DeviceArray<float> db(Numbers(index(m.hidden()), 3));
    const DeviceArray<float> of_norm(index(2 * column_sums_scratch(m.rows(), m.width)));
    const DeviceArray<float> of_sums(index(column_sums_scratch(m.rows(), m.hidden())));
    expect_ok(row_norm_backward_weight(real(),
                                       {m.rows(), m.width, of_x.data(), nullptr},
                                       statistics.floats(),
                                       of_dy.data(),
                                       {dgain.data(), dbias.data()},
                                       of_norm.data(),
                                       nullptr));
    expect_ok(column_sums(
        real(), m.rows(), m.hidden(), of_dy.data(), {db.data()}, of_sums.data(), nullptr));
    // A sum of n normal numbers is about sqrt n; so is what it is held against.
    std::vector<Numbers> found(3);
    std::vector<Numbers> expected(3);
    for (const std::int64_t column : some_of(m.width, 9)) {
        double sums[3] = {1, 2, 3};  // NOLINT(modernize-avoid-c-arrays)
        for (std::int64_t row = 0; row < m.rows(); ++row) {
            const std::int64_t i = row * m.width + column;
            const double z =
                static_cast<double>((x.at(i) - numbers.at(2 * row)) * numbers.at(2 * row + 1));
            sums[0] += static_cast<double>(dy.at(i)) * z;
            sums[1] += static_cast<double>(dy.at(i));
            sums[2] += static_cast<double>(dy.at(row * m.hidden() + column));
        }
        for (std::size_t which = 0; which < 3; ++which) {
            expected[which].push_back(static_cast<float>(sums[which]));
        }
        found[0].push_back(dgain.elements(index(column), 1)[0]);
        found[1].push_back(dbias.elements(index(column), 1)[0]);
        found[2].push_back(db.elements(index(column), 1)[0]);
    }
    for (std::size_t which = 0; which < 3; ++which) {
        EXPECT_TRUE(close(found[which], expected[which], 1e-5)) << which;
    }
}

TEST_P(CudaGpt2, EmbeddingAndItsGradient) {
    const std::vector<std::int32_t> ids = random_ids(m.rows(), m.vocabulary, 7);
    const DeviceArray<std::int32_t> of_ids(ids);
    const Operand tokens = x.operand(real(), m.vocabulary * m.width);
    const Operand places = dy.operand(real(), m.positions * m.width);
    const Operand y({real()}, m.rows() * m.width);
    const Embedding embedding{m.rows(), m.positions, m.width, of_ids.data(), 0, m.positions};
    expect_ok(
        embedding_forward(real(), embedding, tokens.data(), places.data(), y.data(), nullptr));
    for (const std::int64_t row : some_of(m.rows(), 9)) {
        Numbers expected;
        for (std::int64_t j = 0; j < m.width; ++j) {
            expected.push_back(x.at(ids[index(row)] * m.width + j) +
                               dy.at(row % m.positions * m.width + j));
        }
        EXPECT_EQ(row_of(y, row, m.width), rounded(real(), expected));
    }

    const Operand of_dy = dy.operand(real(), m.rows() * m.width);
    const Pattern before(Real::F32, 3);
    const Operand dtokens = before.operand(Real::F32, m.vocabulary * m.width);
    const Operand dplaces = before.operand(Real::F32, m.positions * m.width);
    expect_ok(embedding_backward(
        real(), embedding, of_dy.data(), dtokens.floats(), dplaces.floats(), nullptr));
    const auto expected_sum = [&](std::int64_t target, const auto& is_of) {
        Numbers sum = before.part(target * m.width, m.width);
        for (std::int64_t row = 0; row < m.rows(); ++row) {
            for (std::int64_t j = 0; is_of(row) && j < m.width; ++j) {
                sum[index(j)] += dy.at(row * m.width + j);
            }
        }
        return sum;
    };
    for (const std::int64_t row : some_of(m.rows(), 5)) {
        const std::int32_t id = ids[index(row)];
        EXPECT_EQ(row_of(dtokens, id, m.width),
                  expected_sum(id, [&](std::int64_t r) { return ids[index(r)] == id; }));
        const std::int64_t place = row % m.positions;
        EXPECT_EQ(row_of(dplaces, place, m.width),
                  expected_sum(place, [&](std::int64_t r) { return r % m.positions == place; }));
    }
}

TEST_P(CudaGpt2, CrossEntropyAndItsGradientInPlace) {
    const std::vector<std::int32_t> targets = random_ids(m.rows(), m.vocabulary, 7);
    const DeviceArray<std::int32_t> of_targets(targets);
    for (const bool in_one_pass : {true, false}) {
        SCOPED_TRACE(in_one_pass ? "in one pass" : "one after the other");
        const Operand of_x = x.operand(real(), m.rows() * m.vocabulary);
        const DeviceArray<float> log_sums(index(m.rows()));
        const DeviceArray<double> row_losses(index(m.rows()));
        const DeviceArray<double> sum(1);
        const CrossEntropy loss{m.rows(), m.vocabulary, of_x.data(), of_targets.data()};
        const auto scale = static_cast<float>(1.0 / static_cast<double>(m.rows()));
        const DeviceArray<float> factor(std::vector<float>{scale});
        const LossSums sums{.loss = sum.data(), .scratch = row_losses.data()};
        const LossGradient gradient{.scale = factor.data(), .dx = of_x.data()};
        if (in_one_pass) {
            expect_ok(cross_entropy_with_gradient(
                real(), loss, 0, log_sums.data(), sums, gradient, nullptr));
        } else {
            expect_ok(cross_entropy_forward(real(), loss, 0, log_sums.data(), sums, nullptr));
            expect_ok(cross_entropy_backward(real(), loss, log_sums.data(), 0, gradient, nullptr));
        }
        double expected_total = 0;
        for (const double row_loss : row_losses.elements()) {
            expected_total += row_loss;
        }
        EXPECT_NEAR(sum.elements()[0], expected_total, 1e-10 * expected_total);
        for (const std::int64_t row : some_of(m.rows(), 9)) {
            const Numbers in = x.part(row * m.vocabulary, m.vocabulary);
            const std::vector<std::int32_t> target = {targets[index(row)]};
            Numbers expected_log_sum(1);
            Numbers expected_dx(in.size());
            double expected_loss = 0;
            cpu().cross_entropy_forward(view(in, 1, m.vocabulary),
                                        view(target),
                                        {},
                                        view(expected_log_sum, 1, 1),
                                        {.loss = &expected_loss});
            cpu().cross_entropy_backward(view(in, 1, m.vocabulary),
                                         view(target),
                                         view(std::as_const(expected_log_sum), 1, 1),
                                         {},
                                         scale,
                                         view(expected_dx, 1, m.vocabulary));
            EXPECT_TRUE(close(log_sums.elements(index(row), 1), expected_log_sum, 1e-5));
            EXPECT_NEAR(row_losses.elements(index(row), 1)[0], expected_loss, 1e-5 * expected_loss);
            EXPECT_TRUE(close(row_of(of_x, row, m.vocabulary), expected_dx, bound()));
        }
    }
}

TEST_P(CudaGpt2, AdamOnTheLargestParameter) {
    const std::int64_t size = m.vocabulary * m.width;
    const Way floats{Real::F32};
    const Pattern value(Real::F32, 1);
    const Pattern gradient(Real::F32, 2);
    const Pattern first(Real::F32, 3);
    const Pattern second(Real::F32, 4);
    const Operand master = value.operand(Real::F32, size);
    const Operand of_gradient = gradient.operand(Real::F32, size);
    const Operand of_first = first.operand(Real::F32, size);
    Operand of_second(floats, size);
    const Operand halves({Real::BF16}, size);
    Numbers positive = second.part(0, 9973);
    std::for_each(positive.begin(), positive.end(), [](float& v) { v = v < 0 ? -v : v; });
    of_second.repeat(positive);
    const DeviceArray<double> squares(1);
    std::vector<UpdateTensor> tensors = {
        {.value = real() == Real::BF16 ? halves.data() : master.data(),
         .master = real() == Real::BF16 ? master.floats() : nullptr,
         .gradient = of_gradient.floats(),
         .first = of_first.floats(),
         .second = of_second.floats(),
         .size = size,
         .squares = squares.data()}};
    const DeviceArray<UpdateChunk> chunks(update_chunks(tensors));
    const DeviceArray<UpdateTensor> of_tensors(tensors);
    const UpdateFactors f{.rate = 1e-3F,
                          .keep_first = 0.9F,
                          .take_first = 0.1F,
                          .keep_second = 0.999F,
                          .take_second = 0.001F,
                          .epsilon = 1e-2F,
                          .root_scale = 2,
                          .decay_factor = 0.99F};
    const DeviceArray<UpdateFactors> factors(std::vector<UpdateFactors>{f});
    const DeviceArray<double> scratch(chunks.size());
    expect_ok(update(real(),
                     exec::UpdateRule::Adam,
                     WeightDecay::No,
                     {of_tensors.data(),
                      1,
                      chunks.data(),
                      static_cast<std::int64_t>(chunks.size()),
                      factors.data(),
                      scratch.data()},
                     nullptr));
    Numbers found;
    Numbers expected;
    for (const std::int64_t i : some_of(size, 1000)) {
        const float g = gradient.at(i);
        const float mean = f.keep_first * first.at(i) + f.take_first * g;
        const float square =
            f.keep_second * positive[index(i) % positive.size()] + f.take_second * g * g;
        expected.push_back(f.decay_factor * value.at(i) -
                           f.rate * mean / (std::sqrt(square) * f.root_scale + f.epsilon));
        found.push_back(master.numbers(index(i), 1)[0]);
        if (real() == Real::BF16) {
            EXPECT_EQ(halves.numbers(index(i), 1), rounded(Real::BF16, {found.back()}));
        }
    }
    EXPECT_TRUE(close(found, expected, 1e-5));
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
        sum += static_cast<double>(gradient.at(i)) * static_cast<double>(gradient.at(i));
    }
    EXPECT_NEAR(squares.elements()[0], sum, 1e-10 * sum);
}

TEST_P(CudaGpt2, AttentionAndItsGradient) {
    const auto of = [](std::int64_t n) { return static_cast<int>(n); };
    const AttentionShape shape{
        of(m.samples), of(m.positions), of(m.heads), of(m.heads), of(m.width / m.heads)};
    const Operand qkv = x.operand(real(), m.rows() * 3 * m.width);
    const Operand dcontext = dy.operand(real(), m.rows() * m.width);
    const Operand context({real()}, m.rows() * m.width);
    const Operand dqkv({real()}, m.rows() * 3 * m.width);
    const DeviceArray<float> log_sums(index(m.rows() * m.heads));
    const DeviceArray<float> scratch(index(attention_backward_scratch(shape)));
    const AttentionInputs inputs = inputs_in_one(real(), shape, qkv.data());
    expect_ok(attention_forward(real(), shape, inputs, context.data(), log_sums.data(), nullptr));
    expect_ok(attention_backward(real(),
                                 shape,
                                 inputs,
                                 context.data(),
                                 log_sums.data(),
                                 dcontext.data(),
                                 gradients_in_one(real(), shape, dqkv.data()),
                                 scratch.data(),
                                 nullptr));
    const std::int64_t size = m.width / m.heads;
    for (const std::int64_t head : some_of(m.samples * m.heads, 3)) {
        const std::int64_t first_row = head / m.heads * m.positions;
        const std::int64_t column = head % m.heads * size;
        // Of one head, matrices of `parts` * size columns.
        const auto cut = [&](std::int64_t parts, const auto& row_at) {
            Doubles all;
            for (std::int64_t t = first_row; t < first_row + m.positions; ++t) {
                const Numbers row = row_at(t, parts * m.width);
                for (std::int64_t part = 0; part < parts; ++part) {
                    const auto begin = row.begin() + part * m.width + column;
                    all.insert(all.end(), begin, begin + size);
                }
            }
            return all;
        };
        const auto of_pattern = [](const Pattern& pattern) {
            return [&](std::int64_t row, std::int64_t width) {
                return pattern.part(row * width, width);
            };
        };
        const auto of_operand = [](const Operand& operand) {
            return
                [&](std::int64_t row, std::int64_t width) { return row_of(operand, row, width); };
        };
        const Exact expected = exact(
            {1, of(m.positions), 1, 1, of(size)}, cut(3, of_pattern(x)), cut(1, of_pattern(dy)));
        const Numbers of_head = log_sums.elements(index(head * m.positions), index(m.positions));
        EXPECT_LE(relative_error(cut(1, of_operand(context)), expected.context), bound());
        EXPECT_LE(relative_error(cut(3, of_operand(dqkv)), expected.dqkv), bound());
        EXPECT_LE(relative_error(Doubles(of_head.begin(), of_head.end()), expected.log_sums), 1e-5);
    }
}

}  // namespace gpt2_sizes_test
}  // namespace pipetwin::cuda
