#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/metrics.h"
#include "core/validate.h"
#include "sim/simulate.h"
#include "tests/support/critical_path.h"
#include "tests/support/plain_plan.h"
#include "tests/support/relation.h"

/// What holds exactly for every kind of schedule and whatever its actions cost: random shapes,
/// random integer costs per stage.
namespace pipetwin::sim {
namespace {

using testing::expect_relation;
using testing::milliseconds;

constexpr int cases = 100;  // per relation; in all about a thousand

// --- Random pipelines. ---

/// A shape and its costs: integers, in milliseconds.
struct Pipeline {
    ScheduleKind kind = ScheduleKind::GPipe;
    ScheduleShape shape;
    std::vector<int> forward;  ///< per piece of the model
    std::vector<int> backward_input;
    std::vector<int> backward_weight;
    std::vector<int> recompute;
    std::vector<int> latency;  ///< per boundary, both directions alike
    /// A message and the size at which links reach half of their rate, in MB at 1 GB/s; empty: no
    /// time.
    std::vector<int> transfer;
    Recompute mode = Recompute::None;
    RecomputeTiming timing = RecomputeTiming::Eager;
};

std::ostream& operator<<(std::ostream& out, const Pipeline& x) {
    return out << fmt::format(
               "{} p {} v {} m {}, F {} I {} W {} R {}, latency {}, transfer {}, recompute {} {}",
               to_string(x.kind),
               x.shape.ranks,
               x.shape.chunks,
               x.shape.micro_batches,
               x.forward,
               x.backward_input,
               x.backward_weight,
               x.recompute,
               x.latency,
               x.transfer,
               to_string(x.mode),
               to_string(x.timing));
}

bool exists(ScheduleKind kind, const ScheduleShape& shape) {
    try {
        generate(kind, shape);
        return true;
    } catch (const Error&) {
        return false;
    }
}

/// The shapes up to 6 ranks, 3 chunks and 12 micro-batches that a kind accepts, small ones first:
/// so they are what a failing case shrinks to.
std::vector<ScheduleShape> find_shapes(ScheduleKind kind) {
    std::vector<ScheduleShape> shapes;
    for (int m = 1; m <= 12; ++m) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int chunks = 1; chunks <= 3; ++chunks) {
                shapes.push_back({.ranks = ranks, .chunks = chunks, .micro_batches = m});
            }
        }
    }
    std::erase_if(shapes, [kind](const ScheduleShape& shape) { return !exists(kind, shape); });
    std::ranges::stable_sort(shapes, {}, [](const ScheduleShape& shape) {
        return shape.ranks * shape.chunks * shape.micro_batches;
    });
    return shapes;
}

const std::vector<ScheduleShape>& shapes_of(ScheduleKind kind) {
    static std::map<ScheduleKind, std::vector<ScheduleShape>> known;
    const auto entry = known.find(kind);
    return entry != known.end() ? entry->second
                                : known.emplace(kind, find_shapes(kind)).first->second;
}

// RapidCheck lets numbers grow with the progress of a test; here all are wanted from the start.
template <class T>
T drawn(const rc::Gen<T>& generator) {
    return *rc::gen::resize(rc::kNominalSize, generator);
}

int number(int lowest, int highest) {
    return drawn(rc::gen::inRange(lowest, highest + 1));
}

std::vector<int> numbers(std::size_t count, int lowest, int highest) {
    return drawn(
        rc::gen::container<std::vector<int>>(count, rc::gen::inRange(lowest, highest + 1)));
}

Pipeline drawn_pipeline(ScheduleKind kind) {
    const auto& shapes = shapes_of(kind);
    Pipeline x;
    x.kind = kind;
    x.shape = shapes[static_cast<std::size_t>(number(0, static_cast<int>(shapes.size()) - 1))];
    const auto pieces =
        static_cast<std::size_t>(x.shape.ranks) * static_cast<std::size_t>(x.shape.chunks);
    for (auto* list : {&x.forward, &x.backward_input, &x.backward_weight, &x.recompute}) {
        *list = numbers(pieces, 0, 9);
    }
    x.latency = numbers(2 * pieces, 0, 9);
    if (number(0, 1) == 1) {
        x.transfer = numbers(2, 0, 5);
    }
    x.mode = static_cast<Recompute>(number(0, 2));
    x.timing = static_cast<RecomputeTiming>(number(0, 1));
    return x;
}

/// One drawn value, which a report shows as a whole.
Pipeline random_pipeline(ScheduleKind kind) {
    return *rc::gen::exec([kind] { return drawn_pipeline(kind); });
}

/// Of any kind.
Pipeline random_pipeline() {
    const auto kinds = known_schedules();
    const int last = static_cast<int>(kinds.size()) - 1;
    return random_pipeline(kinds[static_cast<std::size_t>(number(0, last))].kind);
}

std::vector<Duration> in_milliseconds(const std::vector<int>& numbers) {
    std::vector<Duration> result(numbers.size());
    std::ranges::transform(numbers, result.begin(), [](int ms) { return milliseconds(ms); });
    return result;
}

Plan plan_of(const Pipeline& x, std::optional<int> capacity = std::nullopt) {
    PlainCosts costs;
    costs.schedule = x.kind;
    costs.schedule_name = to_string(x.kind);
    costs.shape = x.shape;
    costs.forward = in_milliseconds(x.forward);
    costs.backward_input = in_milliseconds(x.backward_input);
    costs.backward_weight = in_milliseconds(x.backward_weight);
    costs.recompute_cost = in_milliseconds(x.recompute);
    costs.recompute = x.mode;
    costs.recompute_timing = x.timing;
    costs.channel_capacity = capacity;
    if (!x.transfer.empty()) {
        costs.link.bytes_per_second = 1e9;
        costs.boundary = Bytes{x.transfer[0] * 1'000'000LL};
        costs.link.half_bandwidth = Bytes{x.transfer[1] * 1'000'000LL};
    }
    const Plan plan = make_plan(costs);
    std::vector<LinkCost> links = plan->links;
    for (std::size_t boundary = 0; boundary < links.size(); ++boundary) {
        links[boundary].latency = milliseconds(x.latency[boundary]);
    }
    return plan.with_costs(plan->costs, links);
}

Duration time_of(const Plan& plan) {
    return pipeline_time(simulate(plan));
}

// --- The relations. ---

TEST(Relations, GPipeTakesTheTimeOfItsClosedForm) {
    expect_relation(cases, [] {
        Pipeline x = random_pipeline(ScheduleKind::GPipe);
        x.mode = Recompute::None;
        x.transfer.clear();
        const auto sum = [](const std::vector<int>& list, std::size_t count) {
            return std::accumulate(
                list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count), 0);
        };
        std::vector<int> backward = x.backward_input;
        for (std::size_t stage = 0; stage < backward.size(); ++stage) {
            backward[stage] += x.backward_weight[stage];
        }
        const std::size_t stages = x.forward.size();
        const int expected = sum(x.forward, stages) + sum(backward, stages) +
                             (x.shape.micro_batches - 1) *
                                 (std::ranges::max(x.forward) + std::ranges::max(backward)) +
                             2 * sum(x.latency, stages - 1);
        RC_ASSERT(time_of(plan_of(x)) == milliseconds(expected));
    });
}

TEST(Relations, TheEventQueueGivesTheLongestPath) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        RC_ASSERT(simulate(plan) == testing::longest_path(plan));
    });
}

TEST(Relations, TheEventQueueGivesTheLongestPathUnderBackPressure) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int smallest = smallest_capacity(plan_of(x)->schedule);
        const Plan plan = plan_of(x, smallest + number(0, 2));
        RC_ASSERT(simulate(plan) == testing::longest_path(plan));
    });
}

TEST(Relations, TheEventQueueGivesTheLongestPathOfAStepWithUpdates) {
    expect_relation(cases, [] {
        PlanParts parts = plan_of(random_pipeline()).parts();
        parts.schedule = add_optimizer(add_reduction(std::move(parts.schedule)));
        for (StageState& state : parts.states) {
            state.optimizer = milliseconds(number(0, 4));
            state.weights = Bytes{number(0, 4'000'000)};
        }
        const Plan plan = Plan::make(std::move(parts));
        RC_ASSERT(simulate(plan) == testing::longest_path(plan));
    });
}

TEST(Relations, NoStepIsShorterThanTheWorkOfItsBusiestRank) {
    expect_relation(cases, [] {
        const Timeline timeline = simulate(plan_of(random_pipeline()));
        for (const auto& row : timeline.ranks) {
            Duration work{};
            for (const Span& span : row) {
                work += is_compute(span.action.op) ? span.end - span.begin : Duration{};
            }
            RC_ASSERT(pipeline_time(timeline) >= work);
        }
    });
}

TEST(Relations, BusyAndIdleTimeFillTheWholeArea) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        const Metrics metrics = measure(plan, simulate(plan));
        Duration covered{};
        for (const DeviceMetrics& device : metrics.devices) {
            RC_ASSERT(device.idle >= Duration{});
            covered += device.busy + device.idle;
        }
        RC_ASSERT(covered == metrics.makespan * plan.rank_count());
    });
}

TEST(Relations, ScalingEveryDurationScalesTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        const int factor = number(0, 5);
        Pipeline scaled = x;
        for (auto* list : {&scaled.forward,
                           &scaled.backward_input,
                           &scaled.backward_weight,
                           &scaled.recompute,
                           &scaled.latency,
                           &scaled.transfer}) {
            for (int& value : *list) {
                value *= factor;
            }
        }
        RC_ASSERT(time_of(plan_of(scaled)) == factor * time_of(plan_of(x)));
    });
}

/// How many durations the plan's rows have.
std::size_t action_count(const Plan& plan) {
    std::size_t count = 0;
    for (const auto& row : plan->schedule.ranks) {
        count += row.size();
    }
    return count;
}

/// The plan's rows with a duration of its own for every action.
Duration time_with(const Plan& plan, const std::vector<int>& durations) {
    Conditions conditions = conditions_of(plan, simulate(plan));
    auto next = durations.begin();
    for (auto& row : conditions.durations) {
        for (Duration& duration : row) {
            duration = milliseconds(*next++);
        }
    }
    return pipeline_time(replay(plan, conditions));
}

/// a x + b y, element by element.
std::vector<int> combined(int a, const std::vector<int>& x, int b, const std::vector<int>& y) {
    std::vector<int> result(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        result[i] = a * x[i] + b * y[i];
    }
    return result;
}

TEST(Relations, ForAFixedOrderLongerActionsNeverShortenTheStep) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        const std::vector<int> before = numbers(action_count(plan), 0, 9);
        const std::vector<int> added = numbers(action_count(plan), 0, 3);
        RC_ASSERT(time_with(plan, combined(1, before, 1, added)) >= time_with(plan, before));
    });
}

TEST(Relations, ForAFixedOrderLongerLatenciesNeverShortenTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        Pipeline slower = x;
        slower.latency = combined(1, x.latency, 1, numbers(x.latency.size(), 0, 5));
        RC_ASSERT(time_of(plan_of(slower)) >= time_of(plan_of(x)));
    });
}

/// The longest of many sums is convex in what is summed. In integers: x and y are multiples of n,
/// and so every mean in n-ths between them is whole.
TEST(Relations, ForAFixedOrderTheStepIsConvexInTheDurations) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        constexpr int n = 4;
        const std::vector<int> x = numbers(action_count(plan), 0, 9);
        const std::vector<int> y = numbers(action_count(plan), 0, 9);
        const int share = number(1, n - 1);
        RC_ASSERT(n * time_with(plan, combined(share, x, n - share, y)) <=
                  share * time_with(plan, combined(n, x, 0, y)) +
                      (n - share) * time_with(plan, combined(0, x, n, y)));
    });
}

TEST(Relations, ForAFixedOrderTheStepChangesByNoMoreThanItsActions) {
    expect_relation(cases, [] {
        const Plan plan = plan_of(random_pipeline());
        const std::vector<int> x = numbers(action_count(plan), 0, 9);
        std::vector<int> y = x;
        int distance = 0;
        for (int changes = number(1, 4); changes > 0; --changes) {  // many would hide one too many
            int& value = y[static_cast<std::size_t>(number(0, static_cast<int>(y.size()) - 1))];
            value = number(0, 9);
        }
        for (std::size_t i = 0; i < x.size(); ++i) {
            distance += std::abs(x[i] - y[i]);
        }
        const Duration change = time_with(plan, x) - time_with(plan, y);
        RC_ASSERT(std::chrono::abs(change) <= milliseconds(distance));
    });
}

/// One, or one for every rank where the schedule goes through the chunks in groups. Naive, chimera
/// and hanayo have one number only. zb-auto looks for the least span anew for each number, and its
/// step may well be shorter with one micro-batch more.
TEST(Relations, AddingMicroBatchesNeverShortensTheStep) {
    expect_relation(cases, [] {
        const Pipeline x = random_pipeline();
        RC_PRE(x.kind != ScheduleKind::ZbAuto);
        const bool grouped =
            x.kind == ScheduleKind::Interleaved1F1B || x.kind == ScheduleKind::InterleavedZb;
        Pipeline more = x;
        more.shape.micro_batches += grouped ? x.shape.ranks : 1;
        RC_PRE(exists(more.kind, more.shape));
        RC_ASSERT(time_of(plan_of(more)) >= time_of(plan_of(x)));
    });
}

}  // namespace
}  // namespace pipetwin::sim
