// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <utility>
#include <vector>

#include "tests/exec/layers/layer_run.h"

/// The formulas of the layers in plain loops and double precision, with nothing shared with the
/// code they check.
namespace pipetwin::testing {

struct NaiveInput {
    int samples = 0;
    int positions = 0;
    int inputs = 0;   ///< width of x
    int outputs = 0;  ///< width of y
    LayerSpec spec;
    Numbers x;  ///< (samples * positions, inputs)
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    std::vector<Numbers> parameters;  ///< in the layer's order

    int rows() const { return samples * positions; }
};

inline NaiveInput naive_input(LayerRun& run, const LayerSpec& spec) {
    NaiveInput input{.samples = run.batch.samples,
                     .positions = run.layer->input().positions,
                     .inputs = run.layer->input().width,
                     .outputs = run.layer->output().width,
                     .spec = spec,
                     .x = {},
                     .tokens = run.batch.tokens,
                     .targets = run.batch.targets,
                     .parameters = {}};
    if (!run.layer->input().token_ids) {
        input.x = numbers_of(run.x);
    }
    for (exec::Parameter* const parameter : run.layer->parameters()) {
        input.parameters.push_back(numbers_of(parameter->value));
    }
    return input;
}

/// Element (row, column) of a matrix with so many columns.
inline double at(const Numbers& matrix, int row, int columns, int column) {
    return matrix[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
                  static_cast<std::size_t>(column)];
}

inline Numbers naive_product(
    const Numbers& x, int rows, int inner, const Numbers& w, const Numbers* b) {
    const int columns = static_cast<int>(w.size()) / inner;
    Numbers y;
    for (int r = 0; r < rows; ++r) {
        for (int j = 0; j < columns; ++j) {
            double sum = b == nullptr ? 0 : (*b)[static_cast<std::size_t>(j)];
            for (int k = 0; k < inner; ++k) {
                sum += at(x, r, inner, k) * at(w, k, columns, j);
            }
            y.push_back(sum);
        }
    }
    return y;
}

inline Numbers naive_embedding(const NaiveInput& in) {
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        for (int j = 0; j < in.outputs; ++j) {
            const int position = r % in.positions;
            const bool is_source = position < in.spec.source_positions;
            const Numbers& table = in.parameters[is_source && in.spec.source_table ? 1 : 0];
            double sum = at(table, in.tokens[static_cast<std::size_t>(r)], in.outputs, j);
            sum *= in.spec.scaled ? std::sqrt(in.outputs) : 1;
            if (in.spec.learned_positions && in.spec.context > 0) {
                sum += at(in.parameters.back(), position, in.outputs, j);
            }
            if (in.spec.sinusoids) {
                const int half = (in.outputs + 1) / 2;
                const int place = position - (is_source ? 0 : in.spec.source_positions);
                const double angle = place * std::pow(10000.0, -1.0 * (j % half) / half);
                sum += j < half ? std::sin(angle) : std::cos(angle);
            }
            y.push_back(sum);
        }
    }
    return y;
}

inline Numbers naive_layer_norm(const NaiveInput& in) {
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        double mean = 0;
        double variance = 0;
        for (int j = 0; j < in.inputs; ++j) {
            mean += at(in.x, r, in.inputs, j) / in.inputs;
        }
        for (int j = 0; j < in.inputs; ++j) {
            variance += std::pow(at(in.x, r, in.inputs, j) - mean, 2) / in.inputs;
        }
        for (int j = 0; j < in.inputs; ++j) {
            const auto column = static_cast<std::size_t>(j);
            y.push_back(in.parameters[0][column] * (at(in.x, r, in.inputs, j) - mean) /
                            std::sqrt(variance + 1e-5) +
                        in.parameters[1][column]);
        }
    }
    return y;
}

/// The numbers of which number (row, column) of x is one, as a norm takes them together.
inline std::vector<double> part_of(
    const NaiveInput& in, int row, int column, bool whole_batch, int groups) {
    const int first_row = whole_batch ? 0 : row / in.positions * in.positions;
    const int rows = whole_batch ? in.rows() : in.positions;
    const int columns = in.inputs / groups;
    const int first_column = column / columns * columns;
    std::vector<double> part;
    for (int r = first_row; r < first_row + rows; ++r) {
        for (int j = first_column; j < first_column + columns; ++j) {
            part.push_back(at(in.x, r, in.inputs, j));
        }
    }
    return part;
}

inline Numbers naive_norm(const NaiveInput& in, bool whole_batch, int groups) {
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        for (int j = 0; j < in.inputs; ++j) {
            const std::vector<double> part = part_of(in, r, j, whole_batch, groups);
            double mean = 0;
            for (const double x : part) {
                mean += x / static_cast<double>(part.size());
            }
            double variance = 0;
            for (const double x : part) {
                variance += (x - mean) * (x - mean) / static_cast<double>(part.size());
            }
            const auto column = static_cast<std::size_t>(j);
            const double gain = in.parameters.empty() ? 1 : in.parameters[0][column];
            const double bias = in.parameters.empty() ? 0 : in.parameters[1][column];
            y.push_back(gain * (at(in.x, r, in.inputs, j) - mean) / std::sqrt(variance + 1e-5) +
                        bias);
        }
    }
    return y;
}

inline Numbers naive_batch_norm(const NaiveInput& in) {
    return naive_norm(in, true, in.inputs);
}

inline Numbers naive_instance_norm(const NaiveInput& in) {
    return naive_norm(in, false, in.inputs);
}

inline Numbers naive_norm_of_three_groups(const NaiveInput& in) {
    return naive_norm(in, false, 3);
}

inline Numbers naive_relu(const NaiveInput& in) {
    Numbers y;
    for (const double x : in.x) {
        y.push_back(std::fmax(x, 0.0));
    }
    return y;
}

inline Numbers naive_leaky_relu(const NaiveInput& in) {
    Numbers y;
    for (const double x : in.x) {
        y.push_back(x > 0 ? x : 0.01 * x);
    }
    return y;
}

inline Numbers naive_identity(const NaiveInput& in) {
    return in.x;
}

inline Numbers naive_pad_channels(const NaiveInput& in) {
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        for (int j = 0; j < in.outputs; ++j) {
            y.push_back(j < in.inputs ? at(in.x, r, in.inputs, j) : 0);
        }
    }
    return y;
}

inline Numbers naive_linear(const NaiveInput& in) {
    const Numbers* const bias = in.parameters.size() > 1 ? &in.parameters[1] : nullptr;
    return naive_product(in.x, in.rows(), in.inputs, in.parameters[0], bias);
}

inline Numbers naive_gelu(const NaiveInput& in) {
    Numbers y;
    for (const double x : in.x) {
        const double odd =
            in.spec.gelu == GeluForm::Tanh
                ? std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * std::pow(x, 3)))
                : std::erf(x / std::sqrt(2.0));
        y.push_back(0.5 * x * (1 + odd));
    }
    return y;
}

inline Numbers naive_rms_norm(const NaiveInput& in) {
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        double mean_square = 0;
        for (int j = 0; j < in.inputs; ++j) {
            mean_square += std::pow(at(in.x, r, in.inputs, j), 2) / in.inputs;
        }
        for (int j = 0; j < in.inputs; ++j) {
            y.push_back(in.parameters[0][static_cast<std::size_t>(j)] * at(in.x, r, in.inputs, j) /
                        std::sqrt(mean_square + in.spec.epsilon));
        }
    }
    return y;
}

inline Numbers naive_swiglu(const NaiveInput& in) {
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        for (int j = 0; j < in.outputs; ++j) {
            const double gate = at(in.x, r, in.inputs, j);
            y.push_back(at(in.x, r, in.inputs, in.outputs + j) * gate / (1 + std::exp(-gate)));
        }
    }
    return y;
}

/// Experts of a row in plain words: every score of the model's rule, the best groups, the best
/// experts in them, and the weighted sum of what each makes of the whole row.
inline Numbers naive_experts(const NaiveInput& in) {
    const Routing& rule = in.spec.routing;
    const Numbers logits = naive_product(in.x, in.rows(), in.inputs, in.parameters[0], nullptr);
    Numbers y;
    for (int r = 0; r < in.rows(); ++r) {
        std::vector<double> scores;
        double sum_of_exponentials = 0;
        for (int e = 0; e < rule.experts; ++e) {
            sum_of_exponentials += std::exp(at(logits, r, rule.experts, e));
        }
        for (int e = 0; e < rule.experts; ++e) {
            const double logit = at(logits, r, rule.experts, e);
            scores.push_back(rule.scores == RouterScores::Sigmoid
                                 ? 1 / (1 + std::exp(-logit))
                                 : std::exp(logit) / sum_of_exponentials);
        }
        const int per_group = rule.experts / rule.groups;
        std::vector<std::pair<double, int>> groups;
        for (int g = 0; g < rule.groups; ++g) {
            std::vector<double> own(scores.begin() + g * per_group,
                                    scores.begin() + (g + 1) * per_group);
            std::ranges::sort(own, std::greater());
            const bool two = rule.scores == RouterScores::Sigmoid && own.size() > 1;
            groups.emplace_back(-(two ? own[0] + own[1] : own[0]), g);
        }
        std::ranges::sort(groups);
        std::vector<std::pair<double, int>> best;
        for (int i = 0; i < rule.chosen_groups; ++i) {
            for (int e = 0; e < per_group; ++e) {
                const int expert = groups[static_cast<std::size_t>(i)].second * per_group + e;
                best.emplace_back(-scores[static_cast<std::size_t>(expert)], expert);
            }
        }
        std::ranges::sort(best);
        best.resize(static_cast<std::size_t>(rule.per_row));
        double sum = 0;
        for (const auto& [score, expert] : best) {
            sum -= score;
        }
        Numbers row(static_cast<std::size_t>(in.inputs));
        const Numbers x(in.x.begin() + std::ptrdiff_t{r} * in.inputs,
                        in.x.begin() + std::ptrdiff_t{r + 1} * in.inputs);
        for (const auto& [score, expert] : best) {
            const auto number = static_cast<std::size_t>(expert);
            const Numbers gates =
                naive_product(x, 1, in.inputs, in.parameters[1 + 2 * number], nullptr);
            Numbers inner;
            const auto width = static_cast<std::size_t>(in.spec.inner_width);
            for (std::size_t j = 0; j < width; ++j) {
                inner.push_back(gates[width + j] * gates[j] / (1 + std::exp(-gates[j])));
            }
            const Numbers made = naive_product(
                inner, 1, in.spec.inner_width, in.parameters[2 + 2 * number], nullptr);
            const double weight = rule.scale * -score / (rule.normalised ? sum : 1);
            for (std::size_t j = 0; j < row.size(); ++j) {
                row[j] += weight * made[j];
            }
        }
        y.insert(y.end(), row.begin(), row.end());
    }
    return y;
}

/// Turns the pairs (i, i + half) of every head of queries and keys, as complex numbers.
inline void naive_rotate(Numbers& qkv, const NaiveInput& in, int heads, int size, int columns) {
    for (int r = 0; r < in.rows(); ++r) {
        for (int h = 0; h < heads; ++h) {
            for (int i = 0; i < size / 2; ++i) {
                const double angle =
                    r % in.positions * std::pow(in.spec.rotary.base, -2.0 * i / size);
                const auto first = static_cast<std::size_t>(r * columns + h * size + i);
                const auto second = first + static_cast<std::size_t>(size / 2);
                const std::complex<double> turned =
                    std::complex<double>(qkv[first], qkv[second]) * std::polar(1.0, angle);
                qkv[first] = turned.real();
                qkv[second] = turned.imag();
            }
        }
    }
}

inline Numbers naive_attention(const NaiveInput& in) {
    const int heads = in.spec.heads;
    const int groups = in.spec.key_value_heads == 0 ? heads : in.spec.key_value_heads;
    const int size = in.spec.head_size == 0 ? in.inputs / heads : in.spec.head_size;
    const int width = heads * size;
    const int columns = (heads + 2 * groups) * size;
    const bool bias = in.spec.bias;
    Numbers qkv = naive_product(
        in.x, in.rows(), in.inputs, in.parameters[0], bias ? &in.parameters[1] : nullptr);
    if (in.spec.rotary.base > 0) {
        naive_rotate(qkv, in, heads + groups, size, columns);
    }
    Numbers context(static_cast<std::size_t>(in.rows() * width));
    for (int s = 0; s < in.samples; ++s) {
        for (int h = 0; h < heads; ++h) {
            const int key = (heads + h * groups / heads) * size;
            const int value_of = key + groups * size;
            for (int t = 0; t < in.positions; ++t) {
                const int row = s * in.positions + t;
                const int seen = in.spec.causal ? t + 1 : LayerRun::length_of(s, in.positions);
                Numbers weights;
                double sum = 0;
                for (int u = 0; u < seen; ++u) {
                    double score = 0;
                    for (int k = 0; k < size; ++k) {
                        score += at(qkv, row, columns, h * size + k) *
                                 at(qkv, s * in.positions + u, columns, key + k);
                    }
                    weights.push_back(std::exp(score / std::sqrt(size)));
                    sum += weights.back();
                }
                for (int k = 0; k < size; ++k) {
                    double value = 0;
                    for (int u = 0; u < seen; ++u) {
                        value += weights[static_cast<std::size_t>(u)] / sum *
                                 at(qkv, s * in.positions + u, columns, value_of + k);
                    }
                    context[static_cast<std::size_t>(row * width + h * size + k)] = value;
                }
            }
        }
    }
    return naive_product(
        context, in.rows(), width, in.parameters[bias ? 2 : 1], bias ? &in.parameters[3] : nullptr);
}

inline Numbers naive_cross_entropy(const NaiveInput& in) {
    double loss = 0;
    for (int r = 0; r < in.rows(); ++r) {
        double sum = 0;
        for (int j = 0; j < in.inputs; ++j) {
            sum += std::exp(at(in.x, r, in.inputs, j));
        }
        loss += std::log(sum) - at(in.x, r, in.inputs, in.targets[static_cast<std::size_t>(r)]);
    }
    return {loss / in.rows()};
}

}  // namespace pipetwin::testing
