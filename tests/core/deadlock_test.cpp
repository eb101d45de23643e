#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/lower.h"
#include "core/validate.h"
#include "tests/support/builders.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::lowered;
using testing::schedule_of;

/// The table of smallest capacities: gpipe 0; 1f1b 1 as soon as two ranks exchange two
/// micro-batches.
TEST(SmallestCapacity, OfGPipeIsZero) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int m = 1; m <= 12; ++m) {
            EXPECT_EQ(smallest_capacity(
                          lowered(ScheduleKind::GPipe, {.ranks = ranks, .micro_batches = m})),
                      0);
        }
    }
}

TEST(SmallestCapacity, OfOneFOneBIsOneFromTwoMicroBatchesOn) {
    for (int ranks = 2; ranks <= 6; ++ranks) {
        for (int m = 1; m <= 12; ++m) {
            EXPECT_EQ(smallest_capacity(
                          lowered(ScheduleKind::OneFOneB, {.ranks = ranks, .micro_batches = m})),
                      m == 1 ? 0 : 1);
        }
    }
}

TEST(FindDeadlock, WhatRunsAtACapacityRunsAtALargerOne) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int m = 1; m <= 12; ++m) {
                const Schedule schedule =
                    lowered(kind, {.ranks = ranks, .micro_batches = m}, Recompute::Always);
                bool ran = false;
                for (int capacity = 0; capacity <= m; ++capacity) {
                    const bool runs = find_deadlock(schedule, capacity).deadlock_free;
                    EXPECT_TRUE(runs || !ran)
                        << "K=" << ranks << " M=" << m << " capacity " << capacity;
                    ran = runs;
                }
                EXPECT_TRUE(ran);
            }
        }
    }
}

TEST(FindDeadlock, NamesTheCycleOfWaitingActions) {
    const Schedule schedule =
        schedule_of({"0RECV_B0 0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"});
    const DeadlockReport report = find_deadlock(schedule, 5);
    EXPECT_FALSE(report.deadlock_free);
    EXPECT_THAT(
        report.waiting,
        ElementsAre(
            Violation{0,
                      0,
                      "0RECV_B0",
                      "waits for 1SEND_B0 on rank 1 (cell 3), which stands behind 1RECV_F0"},
            Violation{1,
                      0,
                      "1RECV_F0",
                      "waits for 0SEND_F0 on rank 0 (cell 2), which stands behind 0RECV_B0"}));
}

TEST(FindDeadlock, NamesTheSendsThatWaitForRoom) {
    const Schedule schedule = lowered(ScheduleKind::OneFOneB, {.ranks = 2, .micro_batches = 2});
    const DeadlockReport report = find_deadlock(schedule, 0);
    ASSERT_EQ(report.waiting.size(), 2U);
    EXPECT_EQ(report.waiting[0].action, "0SEND_F1");
    EXPECT_THAT(report.waiting[0].why, HasSubstr("waits for 1RECV_F1 on rank 1"));
    EXPECT_EQ(report.waiting[1].action, "1SEND_B0");
    EXPECT_THAT(report.waiting[1].why, HasSubstr("waits for 0RECV_B0 on rank 0"));
}

TEST(FindDeadlock, LeavesOutRanksThatOnlyWaitForTheCycle) {
    // Ranks 1 and 2 wait on each other; rank 0 waits for them, but is not to blame.
    const Schedule schedule = schedule_of({"0F0 0SEND_F0 0RECV_B0 0B0",
                                           "1RECV_F0 1RECV_B0 1F0 1SEND_F0 1B0 1SEND_B0",
                                           "2RECV_F0 2F0 2B0 2SEND_B0"});
    const DeadlockReport report = find_deadlock(schedule, 3);
    ASSERT_EQ(report.waiting.size(), 2U);
    EXPECT_EQ(report.waiting[0].rank, 1);
    EXPECT_EQ(report.waiting[1].rank, 2);
}

TEST(FindDeadlock, SaysSoWhereNobodySendsOrReceives) {
    const DeadlockReport unsent = find_deadlock(schedule_of({"0F0 0RECV_B0 0B0", "1F0 1B0"}), 1);
    ASSERT_EQ(unsent.waiting.size(), 1U);
    EXPECT_EQ(unsent.waiting[0].why, "waits for a message that nobody sends");
    const DeadlockReport unreceived =
        find_deadlock(schedule_of({"0F0 0SEND_F0 0B0", "1F0 1B0"}), 0);
    ASSERT_EQ(unreceived.waiting.size(), 1U);
    EXPECT_EQ(unreceived.waiting[0].why, "waits for room, but nobody receives this message");
    const DeadlockReport outside = find_deadlock(schedule_of({"0RECV_F0 0F0 0B0"}), 1);
    EXPECT_EQ(outside.waiting.size(), 1U);
}

TEST(SmallestCapacity, IsMinusOneWhereNoCapacityHelps) {
    EXPECT_EQ(
        smallest_capacity(schedule_of({"0RECV_B0 0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"})),
        -1);
}

TEST(RequireDeadlockFree, NamesTheSmallestCapacityThatWorks) {
    const Schedule schedule = lowered(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 4});
    EXPECT_NO_THROW(require_deadlock_free(schedule, std::nullopt, "x"));
    EXPECT_NO_THROW(require_deadlock_free(schedule, 1, "x"));
    try {
        require_deadlock_free(schedule, 0, "x");
        FAIL() << "capacity 0 was accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_THAT(error.text(), HasSubstr("deadlock at channel capacity 0"));
        EXPECT_THAT(error.text(), HasSubstr("waits for"));
        EXPECT_THAT(error.hint(), HasSubstr("works is 1"));
    }
}

/// The oracle: walks every interleaving of the ranks, remembering the states it has seen, and fails
/// if any of them gets stuck. It knows nothing of queues being first-in-first-out; counting
/// messages is all that blocking depends on.
class EveryInterleaving {
  public:
    EveryInterleaving(const Schedule& schedule, int capacity)
        : schedule_(schedule), capacity_(capacity) {}

    bool deadlock_free() { return reaches_the_end(State(schedule_.ranks.size(), 0)); }

  private:
    using State = std::vector<std::size_t>;  ///< per rank: how many actions it has done

    struct Edge {
        int from = 0;  ///< stage
        int to = 0;
        bool operator==(const Edge&) const = default;
    };

    static Edge edge_of(const Action& a) {
        const bool to_the_right = a.op == Op::SendForward || a.op == Op::RecvForward;
        const int neighbour = to_the_right == is_send(a.op) ? a.stage + 1 : a.stage - 1;
        return is_send(a.op) ? Edge{a.stage, neighbour} : Edge{neighbour, a.stage};
    }

    /// Messages on the edge: sends done minus receives done.
    int under_way(const State& state, const Edge& edge) const {
        int count = 0;
        for (std::size_t rank = 0; rank < state.size(); ++rank) {
            for (std::size_t i = 0; i < state[rank]; ++i) {
                const Action& a = schedule_.ranks[rank][i];
                if ((is_send(a.op) || is_receive(a.op)) && edge_of(a) == edge) {
                    count += is_send(a.op) ? 1 : -1;
                }
            }
        }
        return count;
    }

    const Action* current(const State& state, std::size_t rank) const {
        return state[rank] < schedule_.ranks[rank].size() ? &schedule_.ranks[rank][state[rank]]
                                                          : nullptr;
    }

    /// Every state that one move leads to; at capacity 0 a send and its receive are one move of two
    /// ranks.
    std::vector<State> moves(const State& state) const {
        std::vector<State> result;
        for (std::size_t rank = 0; rank < state.size(); ++rank) {
            const Action* const action = current(state, rank);
            if (action == nullptr) {
                continue;
            }
            State next = state;
            ++next[rank];
            if (!is_send(action->op) && !is_receive(action->op)) {
                result.push_back(next);
            } else if (capacity_ > 0) {
                const int waiting = under_way(state, edge_of(*action));
                if (is_send(action->op) ? waiting < capacity_ : waiting > 0) {
                    result.push_back(next);
                }
            } else if (is_send(action->op)) {
                for (std::size_t other = 0; other < state.size(); ++other) {
                    const Action* const partner = current(state, other);
                    if (other != rank && partner != nullptr && is_receive(partner->op) &&
                        edge_of(*partner) == edge_of(*action)) {
                        State both = next;
                        ++both[other];
                        result.push_back(both);
                    }
                }
            }
        }
        return result;
    }

    bool finished(const State& state) const {
        for (std::size_t rank = 0; rank < state.size(); ++rank) {
            if (current(state, rank) != nullptr) {
                return false;
            }
        }
        return true;
    }

    bool reaches_the_end(const State& state) {
        if (!seen_.insert(state).second) {
            return true;  // judged where it was first met
        }
        const std::vector<State> next = moves(state);
        if (next.empty()) {
            return finished(state);
        }
        return std::ranges::all_of(next, [this](const State& s) { return reaches_the_end(s); });
    }

    const Schedule& schedule_;
    int capacity_;
    std::set<State> seen_;
};

/// Swaps a few actions of one row: most of what comes out is wrong in some way, and about half of
/// it deadlocks.
void mutate(Schedule& schedule, std::mt19937& random) {
    const auto below = [&random](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    const std::size_t swaps = 1 + below(3);
    for (std::size_t i = 0; i < swaps; ++i) {
        auto& row = schedule.ranks[below(schedule.ranks.size())];
        std::swap(row[below(row.size())], row[below(row.size())]);
    }
}

TEST(FindDeadlock, AgreesWithEveryInterleavingOnRandomlyChangedSchedules) {
    const std::uint64_t seed = tests::seed();
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    struct Shape {
        int ranks;
        int micro_batches;
    };
    constexpr std::array shapes{Shape{2, 1}, Shape{2, 2}, Shape{2, 3}, Shape{3, 1}, Shape{3, 2}};
    int deadlocks = 0;
    const int cases = tests::soaked(1000);
    for (int i = 0; i < cases; ++i) {
        const Shape shape = shapes[static_cast<std::size_t>(i) % shapes.size()];
        const ScheduleKind kind = i % 2 == 0 ? ScheduleKind::GPipe : ScheduleKind::OneFOneB;
        Schedule schedule = add_communication(
            generate(kind, {.ranks = shape.ranks, .micro_batches = shape.micro_batches}),
            RecomputeTiming::Eager);
        mutate(schedule, random);
        for (int capacity = 0; capacity <= 2; ++capacity) {
            const bool expected = EveryInterleaving(schedule, capacity).deadlock_free();
            deadlocks += expected ? 0 : 1;
            ASSERT_EQ(find_deadlock(schedule, capacity).deadlock_free, expected)
                << "seed " << seed << ", case " << i << ", capacity " << capacity << "\n"
                << explain(schedule, find_deadlock(schedule, capacity).waiting);
            ASSERT_EQ(find_deadlock(schedule, capacity).waiting.empty(), expected);
        }
    }
    EXPECT_GT(deadlocks, cases / 4);
    EXPECT_LT(deadlocks, 3 * cases - cases / 4);
}

/// A cycle is one: each of its actions waits for the rank of the next, and the last for the first.
TEST(FindDeadlock, ReportsACycleThatCloses) {
    std::mt19937 random(7);
    for (int i = 0; i < 200; ++i) {
        Schedule schedule =
            add_communication(generate(ScheduleKind::OneFOneB, {.ranks = 4, .micro_batches = 4}),
                              RecomputeTiming::Eager);
        mutate(schedule, random);
        const auto waiting = find_deadlock(schedule, 1).waiting;
        for (std::size_t k = 0; k < waiting.size(); ++k) {
            const Violation& next = waiting[(k + 1) % waiting.size()];
            EXPECT_THAT(waiting[k].why, HasSubstr(fmt::format("on rank {} ", next.rank)));
        }
    }
}

TEST(FindDeadlock, SeesUpdatesThatWaitForEachOthersGradients) {
    Schedule schedule = schedule_of({"0F0 3F1 3B1 0B0 0REDUCE_GRAD 0OPT 3REDUCE_GRAD 3OPT",
                                     "2F1 1F0 1B0 1REDUCE_GRAD 1OPT 2B1 2REDUCE_GRAD 2OPT"});
    schedule.weights_of_stage = {0, 1, 0, 1};
    ASSERT_TRUE(validate(schedule).empty());
    schedule = add_communication(schedule, RecomputeTiming::Eager);
    const auto waiting = find_deadlock(schedule, 1).waiting;
    ASSERT_EQ(waiting.size(), 2U);
    EXPECT_EQ(waiting[0].action, "0OPT");
    EXPECT_EQ(waiting[1].action, "1OPT");
    EXPECT_THAT(waiting[1].why, HasSubstr("waits for 3REDUCE_GRAD on rank 0"));
    EXPECT_EQ(smallest_capacity(schedule), -1);
}

TEST(FindDeadlock, AllowsUpdatesAsTheyAreAppended) {
    const Schedule schedule = add_optimizer(add_reduction(
        add_communication(generate(ScheduleKind::Chimera, {.ranks = 4, .micro_batches = 4}),
                          RecomputeTiming::Eager)));
    EXPECT_TRUE(find_deadlock(schedule, 1).deadlock_free);
}

}  // namespace
}  // namespace pipetwin
