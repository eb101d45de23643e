// SPDX-License-Identifier: Apache-2.0
#include "sim/variation/jitter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/simd_targets.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "sim/explain/task_graph.h"
#include "sim/simulate/simulate.h"
#include "sim/stats/draws.h"
#include "sim/stats/log_normal.h"

namespace pipetwin::sim {

namespace {

/// Samples that are evaluated together: as many numbers as a vector register or two hold. Times are
/// whole nanoseconds in doubles: no step lasts longer than 2^53 of them, so their sums are exact.
constexpr std::size_t lanes = 8;
using Draws = std::uint32_t __attribute__((vector_size(lanes * sizeof(std::uint32_t))));
using Numbers = double __attribute__((vector_size(lanes * sizeof(double))));

/// One number for each sample of a block.
struct alignas(64) Lanes {
    Numbers of;
};

using Quantiles = std::array<double, quantile_count>;

Quantiles quantiles_of(double deviation) {
    Quantiles quantiles{};
    std::ranges::transform(
        log_normal_quantiles(deviation), quantiles.begin(), [](std::uint32_t factor) {
            return static_cast<double>(factor) / (1 << factor_bits);
        });
    return quantiles;
}

constexpr std::uint32_t bits_below_quantile = 32 - quantile_bits;

/// Factors of a task's cost: a table for each kind of cost, by the highest bits of a draw, and rare
/// spikes, by the other bits.
struct Factors {
    std::array<Quantiles, 3> tables;
    std::uint32_t spike_threshold = 0;
    double spike_factor = 1;
};

/// Index of a table.
constexpr std::uint32_t exact = 0;
constexpr std::uint32_t of_actions = 1;
constexpr std::uint32_t of_messages = 2;

Factors factors_of(const Jitter& jitter) {
    constexpr double whole = 1 << bits_below_quantile;
    return {
        .tables = {quantiles_of(0), quantiles_of(jitter.compute), quantiles_of(jitter.transfer)},
        .spike_threshold = static_cast<std::uint32_t>(jitter.spike_probability * whole + 0.5),
        .spike_factor = jitter.spike_factor};
}

/// A task, with the table that its factor is drawn from.
struct DrawnTask {
    std::uint32_t after = 0;
    std::uint32_t also = 0;
    std::uint32_t cost = 0;
    std::uint32_t table = exact;
    double lag = 0;
};

/// Draws of a rank's own factors in a sample.
std::vector<double> factors_of_ranks(const Quantiles& device, int rank_count, std::uint32_t key) {
    std::vector<double> factors;
    for (int rank = 0; rank < rank_count; ++rank) {
        const std::uint32_t draw = mixed(spread(static_cast<std::uint32_t>(rank)) ^ key);
        factors.push_back(device[draw >> bits_below_quantile]);
    }
    return factors;
}

/// A block of samples, task by task: the latest of what each waits for, and its cost times a drawn
/// factor.
PIPETWIN_SIMD_TARGETS
void evaluate_block(const std::vector<DrawnTask>& tasks,
                    const std::vector<Lanes>& costs,
                    const Factors& factors,
                    const std::array<std::uint32_t, lanes>& keys,
                    std::vector<Lanes>& ends) {
    // Adding and taking away 2^52 leaves the nearest whole number.
    constexpr double whole_numbers = 4503599627370496.0;
    constexpr std::uint32_t low_bits = (1U << bits_below_quantile) - 1;
    const bool spikes = factors.spike_threshold > 0;
    Draws key;
    std::memcpy(&key, keys.data(), sizeof key);
    ends.front().of = Numbers{};
    for (std::size_t i = 1; i < tasks.size(); ++i) {
        const DrawnTask& task = tasks[i];
        const double* const table = factors.tables[task.table].data();
        Draws draw = key ^ spread(static_cast<std::uint32_t>(i));
        mix(draw);
        const Draws index = draw >> bits_below_quantile;
        Numbers factor{table[index[0]],
                       table[index[1]],
                       table[index[2]],
                       table[index[3]],
                       table[index[4]],
                       table[index[5]],
                       table[index[6]],
                       table[index[7]]};
        if (spikes && task.table == of_actions) {
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const bool hit = (draw[lane] & low_bits) < factors.spike_threshold;
                factor[lane] *= hit ? factors.spike_factor : 1.0;
            }
        }
        const Numbers cost = costs[task.cost].of * factor + whole_numbers - whole_numbers;
        const Numbers after = ends[task.after].of;
        const Numbers came = ends[task.also].of + task.lag;
        ends[i].of = (after > came ? after : came) + cost;
    }
}

/// The tasks of a graph with the lags and the tables that go with them.
std::vector<DrawnTask> drawn_tasks(const TaskGraph& graph) {
    std::vector<DrawnTask> tasks;
    tasks.reserve(graph.tasks().size());
    for (std::size_t i = 0; i < graph.tasks().size(); ++i) {
        const Task& task = graph.tasks()[i];
        const TaskKind kind = graph.places()[i].kind;
        tasks.push_back({.after = task.after,
                         .also = task.also,
                         .cost = task.cost,
                         .table = kind == TaskKind::Action   ? of_actions
                                  : kind == TaskKind::Moment ? exact
                                                             : of_messages,
                         .lag = static_cast<double>(graph.lags()[task.lag].count())});
    }
    return tasks;
}

/// The rank that a cost belongs to; -1 for messages.
std::vector<int> rank_of_cost(const TaskGraph& graph) {
    std::vector<int> ranks(graph.costs().size(), -1);
    for (std::size_t i = 1; i < graph.tasks().size(); ++i) {
        if (graph.places()[i].kind == TaskKind::Action) {
            ranks[graph.tasks()[i].cost] = graph.places()[i].rank;
        }
    }
    return ranks;
}

class Sampler {
  public:
    Sampler(const TaskGraph& graph, int rank_count, const Jitter& jitter, std::uint64_t seed)
        : graph_(graph),
          seed_(seed),
          factors_(factors_of(jitter)),
          device_(quantiles_of(jitter.device)),
          tasks_(drawn_tasks(graph)),
          rank_of_cost_(rank_of_cost(graph)),
          rank_count_(rank_count),
          costs_(graph.costs().size()),
          ends_(graph.tasks().size()) {}

    /// Appends the step times of samples `first` to `first` + 7.
    void add_block(std::uint32_t first, std::vector<Duration>& steps) {
        std::array<std::uint32_t, lanes> keys{};
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const std::uint32_t sample = first + static_cast<std::uint32_t>(lane);
            keys[lane] = key_of(seed_, sample, 0);
            set_costs(lane, key_of(seed_, sample, 1));
        }
        evaluate_block(tasks_, costs_, factors_, keys, ends_);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            double step = 0;
            for (const std::uint32_t task : graph_.last_tasks()) {
                step = std::max(step, ends_[task].of[lane]);
            }
            steps.emplace_back(static_cast<std::int64_t>(step));
        }
    }

  private:
    /// The costs of one sample, with the factor that each rank keeps throughout.
    void set_costs(std::size_t lane, std::uint32_t key) {
        const std::vector<double> of_rank = factors_of_ranks(device_, rank_count_, key);
        for (std::size_t cost = 0; cost < costs_.size(); ++cost) {
            const int rank = rank_of_cost_[cost];
            const double factor = rank < 0 ? 1 : of_rank[as_index(rank)];
            costs_[cost].of[lane] = static_cast<double>(graph_.costs()[cost].count()) * factor;
        }
    }

    const TaskGraph& graph_;
    std::uint64_t seed_;
    Factors factors_;
    Quantiles device_;
    std::vector<DrawnTask> tasks_;
    std::vector<int> rank_of_cost_;
    int rank_count_;
    std::vector<Lanes> costs_;
    std::vector<Lanes> ends_;
};

/// One sample after the other, for steps in which ranks or messages share something: each is played
/// through with the draws that the tasks of the same step without sharing would have.
class SharingSampler {
  public:
    SharingSampler(const Plan& plan,
                   const Conditions& conditions,
                   const Jitter& jitter,
                   std::uint64_t seed)
        : plan_(plan),
          graph_(plan, alone(conditions)),
          tasks_(drawn_tasks(graph_)),
          seed_(seed),
          factors_(factors_of(jitter)),
          device_(quantiles_of(jitter.device)),
          drawn_(conditions) {
        for (const auto& row : plan->schedule.ranks) {
            drawn_.durations.emplace_back(row.size());
            drawn_.copy_factors.emplace_back(row.size(), 1);
        }
        drawn_.message_factors.assign(2 * plan->links.size(),
                                      std::vector<double>(as_index(plan.micro_batches()), 1));
    }

    Duration step(std::uint32_t sample) {
        const std::uint32_t key = key_of(seed_, sample, 0);
        const std::vector<double> of_rank =
            factors_of_ranks(device_, plan_.rank_count(), key_of(seed_, sample, 1));
        for (std::size_t i = 1; i < tasks_.size(); ++i) {
            const TaskPlace& place = graph_.places()[i];
            const std::size_t rank = as_index(place.rank);
            const std::size_t cell = as_index(place.cell);
            const double factor = drawn_factor(i, key);
            const Duration cost = graph_.costs()[tasks_[i].cost];
            if (place.kind == TaskKind::Action) {
                const double of_device = static_cast<double>(cost.count()) * of_rank[rank];
                drawn_.durations[rank][cell] =
                    Duration{static_cast<std::int64_t>(std::nearbyint(of_device * factor))};
            } else if (place.kind == TaskKind::Copy) {
                drawn_.copy_factors[rank][cell] = factor;
            } else if (place.kind == TaskKind::Message) {
                set_message(plan_->schedule.ranks[rank][cell], cost, factor);
            }
        }
        return replayed_step(plan_, drawn_);
    }

  private:
    static Conditions alone(Conditions conditions) {
        conditions.contention = {};
        return conditions;
    }

    double drawn_factor(std::size_t task, std::uint32_t key) const {
        constexpr std::uint32_t low_bits = (1U << bits_below_quantile) - 1;
        const std::uint32_t draw = mixed(key ^ spread(static_cast<std::uint32_t>(task)));
        const double factor = factors_.tables[tasks_[task].table][draw >> bits_below_quantile];
        const bool hit =
            tasks_[task].table == of_actions && (draw & low_bits) < factors_.spike_threshold;
        return hit ? factor * factors_.spike_factor : factor;
    }

    /// Sets the factor of a send, or of gradients on their way to the replicas.
    void set_message(const Action& action, Duration cost, double factor) {
        if (action.op == Op::ReduceGradient) {
            drawn_.overlapped_reductions[as_index(action.stage)] = times(cost, factor);
        } else {
            drawn_.message_factors[as_index(edge_of(plan_->schedule, action))]
                                  [as_index(action.micro_batch)] = factor;
        }
    }

    const Plan& plan_;
    TaskGraph graph_;
    std::vector<DrawnTask> tasks_;
    std::uint64_t seed_;
    Factors factors_;
    Quantiles device_;
    Conditions drawn_;
};

void require_between(double value,
                     double least,
                     double most,
                     std::string_view name,
                     std::string hint = "0.05 means that a duration varies by about 5 %") {
    if (!(value >= least && value <= most)) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} = {}: expected {} to {}", name, value, least, most),
                    std::move(hint));
    }
}

}  // namespace

void check_jitter(const Jitter& jitter) {
    constexpr double most_deviation = 2;
    require_between(jitter.compute, 0, most_deviation, "jitter of actions");
    require_between(jitter.transfer, 0, most_deviation, "jitter of transfers");
    require_between(jitter.device, 0, most_deviation, "jitter of devices");
    require_between(jitter.spike_probability,
                    0,
                    1,
                    "probability of a spike",
                    "0.001 means that one action in a thousand is a spike");
    require_between(jitter.spike_factor,
                    1,
                    1000,
                    "factor of a spike",
                    "4 means that a spike lasts four times as long");
}

Duration StepSamples::mean() const {
    double sum = 0;
    for (const Duration step : steps) {
        sum += static_cast<double>(step.count());
    }
    return Duration{steps.empty() ? 0 : std::llround(sum / static_cast<double>(steps.size()))};
}

Duration StepSamples::quantile(double share) const {
    PIPETWIN_EXPECT(!steps.empty() && share >= 0 && share <= 1, "a share of some samples");
    const double rank = std::ceil(share * static_cast<double>(steps.size()));
    return steps[as_index(std::max(1.0, rank)) - 1];
}

StepSamples sample_steps(const Plan& plan,
                         const Conditions& conditions,
                         const Jitter& jitter,
                         int samples,
                         std::uint64_t seed) {
    check_jitter(jitter);
    PIPETWIN_EXPECT(samples >= 1 && samples <= most_samples, "the number of samples is bounded");
    StepSamples result;
    if (conditions.contention.any()) {
        SharingSampler sampler(plan, conditions, jitter, seed);
        for (int sample = 0; sample < samples; ++sample) {
            result.steps.push_back(sampler.step(static_cast<std::uint32_t>(sample)));
        }
    } else {
        const TaskGraph graph(plan, conditions);
        Sampler sampler(graph, plan.rank_count(), jitter, seed);
        for (std::uint32_t first = 0; first < static_cast<std::uint32_t>(samples); first += lanes) {
            sampler.add_block(first, result.steps);
        }
        result.steps.resize(as_index(samples));
    }
    std::ranges::sort(result.steps);
    return result;
}

}  // namespace pipetwin::sim
