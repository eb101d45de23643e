// SPDX-License-Identifier: Apache-2.0
#include "exec/device/expert_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"

namespace pipetwin::exec {
namespace {

/// Numbers of the calling thread, which keeps them: a step asks for no memory. Each use has its
/// own.
template <class Number, int use>
std::span<Number> kept_room(std::size_t count) {
    thread_local std::vector<Number> room;
    if (room.size() < count) {
        room.resize(count);
    }
    return std::span(room).first(count);
}

/// The router of one row at a time.
template <class C>
class Router {
  public:
    explicit Router(const Routing& rule)
        : rule_(rule),
          scores_(kept_room<C, 0>(as_index(rule.experts))),
          keys_(kept_room<C, 1>(scores_.size())),
          group_keys_(kept_room<C, 2>(as_index(rule.groups))) {}

    /// Finds the scores of a row.
    template <class T>
    void score(const T* logits) {
        if (rule_.scores == RouterScores::Sigmoid) {
            for (std::size_t i = 0; i < scores_.size(); ++i) {
                scores_[i] = 1 / (1 + std::exp(-computed(logits[i])));
            }
            return;
        }
        C most = computed(logits[0]);
        for (std::size_t i = 1; i < scores_.size(); ++i) {
            most = std::max(most, computed(logits[i]));
        }
        C sum = 0;
        for (std::size_t i = 0; i < scores_.size(); ++i) {
            scores_[i] = std::exp(computed(logits[i]) - most);
            sum += scores_[i];
        }
        for (C& score : scores_) {
            score /= sum;
        }
    }

    /// Chooses experts by their scores, and by `bias`, if there is one. What is no number comes
    /// first, so that the row's result is none, too.
    void choose(const C* bias, std::int32_t* choice) {
        for (std::size_t i = 0; i < keys_.size(); ++i) {
            const C key = bias == nullptr ? scores_[i] : scores_[i] + bias[i];
            keys_[i] = std::isnan(key) ? std::numeric_limits<C>::infinity() : key;
        }
        leave_best_groups();
        for (int chosen = 0; chosen < rule_.per_row; ++chosen) {
            const auto best = std::ranges::max_element(keys_);  // the first of equal ones
            choice[chosen] = static_cast<std::int32_t>(best - keys_.begin());
            *best = never;
        }
    }

    void weigh(const std::int32_t* choice, C* weights) const {
        const C factor = factor_of(choice);
        for (int i = 0; i < rule_.per_row; ++i) {
            weights[i] = score_of(choice[i]) * factor;
        }
    }

    /// The gradients of the scores become those of the logits, from the gradients of the weights
    /// and of all scores' shares in the loss of unequal loads.
    template <class T>
    void backward(const std::int32_t* choice,
                  const C* dweights,
                  std::span<const std::int32_t> copies,
                  C load_factor,
                  T* dlogits) {
        const std::span<C> dscores = keys_;
        load_gradient(copies, load_factor, dscores);
        const C factor = factor_of(choice);
        C common = 0;  // what each chosen score has lost to the sum
        if (rule_.normalised) {
            for (int i = 0; i < rule_.per_row; ++i) {
                common += dweights[i] * score_of(choice[i]) * factor / static_cast<C>(rule_.scale);
            }
        }
        for (int i = 0; i < rule_.per_row; ++i) {
            dscores[as_index(choice[i])] += factor * (dweights[i] - common);
        }
        if (rule_.scores == RouterScores::Sigmoid) {
            for (std::size_t i = 0; i < scores_.size(); ++i) {
                dlogits[i] = stored<T>(dscores[i] * scores_[i] * (1 - scores_[i]));
            }
            return;
        }
        C mean = 0;
        for (std::size_t i = 0; i < scores_.size(); ++i) {
            mean += dscores[i] * scores_[i];
        }
        for (std::size_t i = 0; i < scores_.size(); ++i) {
            dlogits[i] = stored<T>(scores_[i] * (dscores[i] - mean));
        }
    }

  private:
    static constexpr C never = -std::numeric_limits<C>::infinity();

    C score_of(std::int32_t expert) const { return scores_[as_index(expert)]; }

    /// By which the scores of a row's experts become their weights.
    C factor_of(const std::int32_t* choice) const {
        const C scale = static_cast<C>(rule_.scale);
        if (!rule_.normalised) {
            return scale;
        }
        C sum = 0;
        for (int i = 0; i < rule_.per_row; ++i) {
            sum += score_of(choice[i]);
        }
        // All may be 0, where PyTorch's DeepSeek-V3 has the same number below the line.
        return scale / (sum + rule_least());
    }
    static constexpr C rule_least() { return static_cast<C>(1e-20); }

    void leave_best_groups() {
        if (rule_.groups == 1) {
            return;
        }
        const std::size_t size = keys_.size() / group_keys_.size();
        for (std::size_t group = 0; group < group_keys_.size(); ++group) {
            const std::span<const C> keys = std::span(keys_).subspan(group * size, size);
            C best = never;
            C second = never;
            for (const C key : keys) {
                second = std::max(second, std::min(best, key));
                best = std::max(best, key);
            }
            const bool adds = rule_.scores == RouterScores::Sigmoid && size > 1;
            group_keys_[group] = adds ? best + second : best;
        }
        for (int left = rule_.groups - rule_.chosen_groups; left > 0; --left) {
            // The last of equal ones goes first.
            const auto worst = std::min_element(group_keys_.rbegin(), group_keys_.rend());
            const auto group = static_cast<std::size_t>(group_keys_.rend() - worst - 1);
            std::fill_n(keys_.begin() + static_cast<std::ptrdiff_t>(group * size), size, never);
            *worst = std::numeric_limits<C>::infinity();
        }
    }

    /// The gradient of `load_factor` * sum over experts of copies * (share of the row's scores).
    void load_gradient(std::span<const std::int32_t> copies, C load_factor, std::span<C> to) {
        if (load_factor == 0) {
            std::ranges::fill(to, C{0});
            return;
        }
        const bool shares = rule_.scores == RouterScores::Sigmoid;  // softmax has shares already
        const C sum = shares ? std::accumulate(scores_.begin(), scores_.end(), rule_least()) : C{1};
        C mean = 0;
        for (std::size_t i = 0; i < to.size(); ++i) {
            mean += scores_[i] / sum * static_cast<C>(copies[i]);
        }
        for (std::size_t i = 0; i < to.size(); ++i) {
            to[i] = load_factor * (static_cast<C>(copies[i]) - (shares ? mean : 0)) / sum;
        }
    }

    const Routing& rule_;
    std::span<C> scores_;
    std::span<C> keys_;
    std::span<C> group_keys_;
};

/// The mathematics of experts on the CPU.
class CpuExpertKernels final : public ExpertKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/expert_kernel_list.h"
};

void CpuExpertKernels::route(
    const Routing& rule, ConstView logits, ConstView bias, View choice, View weights) const {
    with_type(logits.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Computed<T>;
        Router<C> router(rule);
        for (std::int64_t row = 0; row < logits.rows; ++row) {
            router.score(logits.as<T>() + row * logits.columns);
            std::int32_t* const chosen = choice.as<std::int32_t>() + row * choice.columns;
            router.choose(bias.empty() ? nullptr : bias.as<C>(), chosen);
            router.weigh(chosen, weights.as<C>() + row * weights.columns);
        }
    });
}

void CpuExpertKernels::route_backward(const Routing& rule,
                                      ConstView logits,
                                      ConstView choice,
                                      ConstView dweights,
                                      std::span<const std::int32_t> copies,
                                      double load_factor,
                                      View dlogits) const {
    with_type(logits.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Computed<T>;
        Router<C> router(rule);
        for (std::int64_t row = 0; row < logits.rows; ++row) {
            router.score(logits.as<T>() + row * logits.columns);
            router.backward(choice.as<std::int32_t>() + row * choice.columns,
                            dweights.as<C>() + row * dweights.columns,
                            copies,
                            static_cast<C>(load_factor),
                            dlogits.as<T>() + row * dlogits.columns);
        }
    });
}

void CpuExpertKernels::count_copies(ConstView choice, std::span<std::int32_t> copies) const {
    std::ranges::fill(copies, 0);
    for (std::int64_t i = 0; i < choice.size(); ++i) {
        ++copies[as_index(choice.as<std::int32_t>()[i])];
    }
}

void CpuExpertKernels::sort_copies(ConstView choice,
                                   std::span<const std::int32_t> copies,
                                   View places) const {
    const std::span<std::int32_t> next = kept_room<std::int32_t, 0>(copies.size());
    std::exclusive_scan(copies.begin(), copies.end(), next.begin(), 0);
    for (std::int64_t i = 0; i < choice.size(); ++i) {
        places.as<std::int32_t>()[i] = next[as_index(choice.as<std::int32_t>()[i])]++;
    }
}

void CpuExpertKernels::copy_rows(ConstView x, ConstView places, View y) const {
    const std::size_t bytes = as_index(x.columns) * size_of(x.dtype);
    const auto* const from = static_cast<const std::byte*>(x.data);
    auto* const to = static_cast<std::byte*>(y.data);
    for (std::int64_t i = 0; i < places.size(); ++i) {
        std::memcpy(to + as_index(places.as<std::int32_t>()[i]) * bytes,
                    from + as_index(i / places.columns) * bytes,
                    bytes);
    }
}

void CpuExpertKernels::add_copies(ConstView x, ConstView places, ConstView skip, View y) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Computed<T>;
        const std::size_t width = as_index(y.columns);
        const std::span<C> sums = kept_room<C, 3>(width);
        for (std::int64_t row = 0; row < y.rows; ++row) {
            const std::size_t begin = as_index(row) * width;
            for (std::size_t j = 0; j < width; ++j) {
                sums[j] = skip.empty() ? C{0} : computed(skip.as<T>()[begin + j]);
            }
            for (std::int64_t i = 0; i < places.columns; ++i) {
                const std::int32_t place = places.as<std::int32_t>()[row * places.columns + i];
                const T* const copy = x.as<T>() + as_index(place) * width;
                for (std::size_t j = 0; j < width; ++j) {
                    sums[j] += computed(copy[j]);
                }
            }
            for (std::size_t j = 0; j < width; ++j) {
                y.as<T>()[begin + j] = stored<T>(sums[j]);
            }
        }
    });
}

void CpuExpertKernels::weigh_copies(ConstView x,
                                    ConstView places,
                                    ConstView weights,
                                    View y) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::size_t width = as_index(x.columns);
        for (std::int64_t i = 0; i < places.size(); ++i) {
            const auto weight = weights.as<Computed<T>>()[i];
            const std::size_t begin = as_index(places.as<std::int32_t>()[i]) * width;
            for (std::size_t j = begin; j < begin + width; ++j) {
                y.as<T>()[j] = stored<T>(weight * computed(x.as<T>()[j]));
            }
        }
    });
}

void CpuExpertKernels::weigh_copies_backward(ConstView x,
                                             ConstView dy,
                                             ConstView places,
                                             View dweights) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Computed<T>;
        const std::size_t width = as_index(x.columns);
        for (std::int64_t i = 0; i < places.size(); ++i) {
            const std::size_t begin = as_index(places.as<std::int32_t>()[i]) * width;
            C sum = 0;
            for (std::size_t j = begin; j < begin + width; ++j) {
                sum += computed(x.as<T>()[j]) * computed(dy.as<T>()[j]);
            }
            dweights.as<C>()[i] = sum;
        }
    });
}

void CpuExpertKernels::move_bias(double step, ConstView copies, View bias) const {
    const std::span<const double> counts(copies.as<double>(), as_index(copies.size()));
    const double mean =
        std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
    with_type(bias.dtype, [&](auto zero) {
        using T = decltype(zero);
        for (std::size_t expert = 0; expert < counts.size(); ++expert) {
            const int sign = (counts[expert] < mean ? 1 : 0) - (counts[expert] > mean ? 1 : 0);
            T& own = bias.as<T>()[expert];
            own = stored<T>(computed(own) + static_cast<Computed<T>>(sign * step));
        }
    });
}

}  // namespace

const ExpertKernels& cpu_expert_kernels() {
    static const CpuExpertKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
