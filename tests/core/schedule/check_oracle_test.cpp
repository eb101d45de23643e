// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"
#include "tests/support/interleavings.h"
#include "tests/support/soak.h"

/// What `validate` and `find_deadlock` say about randomly damaged schedules, against carrying those
/// out in every possible order.
namespace pipetwin {
namespace check_oracle_test {

using testing::every_interleaving_completes;
using ::testing::HasSubstr;
using testing::no_interleaving_blocks;

constexpr int largest_capacity = 2;

class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}

    // Not std::uniform_int_distribution: its numbers differ between standard libraries.
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
    bool one_in(std::size_t chances) { return below(chances) == 0; }
    template <class Container>
    auto& any_of(Container& container) {
        return container[below(container.size())];
    }

  private:
    std::mt19937_64 engine_;
};

// --- Where the damage begins: every kind of schedule, lowered in every way. ---

struct Shapes {
    ScheduleKind kind;
    std::vector<ScheduleShape> shapes;
};

/// The small shapes that each kind accepts.
std::vector<Shapes> small_shapes() {
    constexpr std::size_t most_actions_of_a_row = 20;
    std::vector<Shapes> all;
    for (const ScheduleName& known : known_schedules()) {
        Shapes& of_kind = all.emplace_back(Shapes{known.kind, {}});
        for (int ranks = 1; ranks <= 3; ++ranks) {
            for (int chunks = 1; chunks <= 3; ++chunks) {
                for (int m = 1; m <= 4; ++m) {
                    const ScheduleShape shape{.ranks = ranks, .chunks = chunks, .micro_batches = m};
                    try {
                        if (generate(known.kind, shape).ranks[0].size() <= most_actions_of_a_row) {
                            of_kind.shapes.push_back(shape);
                        }
                    } catch (const Error&) {
                        continue;  // the kind has no such shape
                    }
                }
            }
        }
    }
    return all;
}

/// In half of the schedules up to three outputs are read by stages that are no neighbours, the same
/// in both pipelines where there are two.
Schedule with_skips(Schedule schedule, Random& random) {
    const int pieces = model_stage_count(schedule);
    if (pieces < 3 || random.one_in(2)) {
        return schedule;
    }
    std::set<StagePair> skips;
    for (std::size_t i = 0; i < 1 + random.below(3); ++i) {
        const int from = static_cast<int>(random.below(static_cast<std::size_t>(pieces - 2)));
        const int to =
            from + 2 + static_cast<int>(random.below(static_cast<std::size_t>(pieces - 2 - from)));
        for (int first = 0; first < schedule.stage_count(); first += pieces) {
            const auto rank_of = [&](int piece) {
                return schedule.rank_of_stage[static_cast<std::size_t>(first + piece)];
            };
            if (rank_of(from) != rank_of(to)) {
                skips.insert({.from = first + from, .to = first + to});
            }
        }
    }
    schedule.skips.assign(skips.begin(), skips.end());
    return schedule;
}

Schedule lowered_at_random(ScheduleKind kind, const ScheduleShape& shape, Random& random) {
    constexpr std::array modes{Recompute::None, Recompute::Always, Recompute::ExceptLast};
    constexpr std::array timings{RecomputeTiming::Eager, RecomputeTiming::Lazy};
    Schedule schedule = add_communication(
        add_recompute(with_skips(generate(kind, shape), random), random.any_of(modes)),
        random.any_of(timings));
    return random.one_in(2) ? add_optimizer(add_reduction(std::move(schedule))) : schedule;
}

// --- The damage. ---

struct Cell {
    std::size_t rank = 0;
    std::size_t index = 0;
};

/// A cell of a row that has any.
Cell any_cell(const Schedule& schedule, Random& random) {
    Cell cell;
    do {
        cell.rank = random.below(schedule.ranks.size());
    } while (schedule.ranks[cell.rank].empty());
    cell.index = random.below(schedule.ranks[cell.rank].size());
    return cell;
}

Action take_out(Schedule& schedule, const Cell& cell) {
    auto& row = schedule.ranks[cell.rank];
    const Action action = row[cell.index];
    row.erase(row.begin() + static_cast<std::ptrdiff_t>(cell.index));
    return action;
}

void put_anywhere(std::vector<Action>& row, const Action& action, Random& random) {
    row.insert(row.begin() + static_cast<std::ptrdiff_t>(random.below(row.size() + 1)), action);
}

void swap_neighbours(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    auto& row = schedule.ranks[cell.rank];
    if (cell.index + 1 < row.size()) {
        std::swap(row[cell.index], row[cell.index + 1]);
    }
}

void swap_two(Schedule& schedule, Random& random) {
    auto& row = schedule.ranks[any_cell(schedule, random).rank];
    std::swap(random.any_of(row), random.any_of(row));
}

void remove(Schedule& schedule, Random& random) {
    take_out(schedule, any_cell(schedule, random));
}

void repeat(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    auto& row = schedule.ranks[cell.rank];
    put_anywhere(row, Action{row[cell.index]}, random);
}

void move_within_row(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    put_anywhere(schedule.ranks[cell.rank], take_out(schedule, cell), random);
}

void move_to_any_rank(Schedule& schedule, Random& random) {
    const Action action = take_out(schedule, any_cell(schedule, random));
    put_anywhere(random.any_of(schedule.ranks), action, random);
}

void change_op(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    Action& action = schedule.ranks[cell.rank][cell.index];
    const int op = static_cast<int>(action.op) + (random.one_in(2) ? 1 : -1);
    action.op = static_cast<Op>(std::clamp(op, 0, static_cast<int>(Op::Optimizer)));
}

void change_number(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    Action& action = schedule.ranks[cell.rank][cell.index];
    if (!schedule.skips.empty() && random.one_in(3)) {
        action.hop = static_cast<std::int16_t>(random.below(3));
        return;
    }
    (random.one_in(2) ? action.stage : action.micro_batch) += random.one_in(2) ? 1 : -1;
}

void change_pairing(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    Action& action = schedule.ranks[cell.rank][cell.index];
    action.with_next = !action.with_next;
}

Action receive_of(const Action& send) {
    const bool forward = send.op == Op::SendForward;
    return {.op = forward ? Op::RecvForward : Op::RecvBackward,
            .stage = send.stage + (forward ? 1 : -1) * (1 + send.hop),
            .micro_batch = send.micro_batch,
            .hop = send.hop};
}

/// Takes out a send together with its receive.
void remove_message(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    const Action send = schedule.ranks[cell.rank][cell.index];
    if (is_send(send.op)) {
        take_out(schedule, cell);
        for (auto& row : schedule.ranks) {
            std::erase(row, receive_of(send));
        }
    }
}

/// Adds a message of another micro-batch to a channel, at both ends.
void add_message(Schedule& schedule, Random& random) {
    const Cell cell = any_cell(schedule, random);
    Action send = schedule.ranks[cell.rank][cell.index];
    if (!is_send(send.op)) {
        return;
    }
    const Action receive = receive_of(send);
    send.micro_batch =
        static_cast<int>(random.below(static_cast<std::size_t>(schedule.micro_batches)));
    for (auto& row : schedule.ranks) {
        if (std::ranges::find(row, receive) != row.end()) {
            put_anywhere(row, receive_of(send), random);
        }
    }
    put_anywhere(schedule.ranks[cell.rank], send, random);
}

/// Lets two micro-batches change places: everywhere, which is harmless, or in one row.
void rename_micro_batches(Schedule& schedule, Random& random) {
    const auto any_micro_batch = [&] {
        return static_cast<int>(random.below(static_cast<std::size_t>(schedule.micro_batches)));
    };
    const int one = any_micro_batch();
    const int other = any_micro_batch();
    const bool everywhere = random.one_in(2);
    const std::size_t row = random.below(schedule.ranks.size());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        for (Action& action : schedule.ranks[rank]) {
            if ((everywhere || rank == row) && has_micro_batch(action.op)) {
                action.micro_batch = action.micro_batch == one     ? other
                                     : action.micro_batch == other ? one
                                                                   : action.micro_batch;
            }
        }
    }
}

/// Half of the damages swap neighbours, which is often harmless; several can cancel each other.
void damage(Schedule& schedule, Random& random) {
    constexpr std::array ways{swap_two,
                              move_within_row,
                              move_to_any_rank,
                              remove,
                              repeat,
                              change_op,
                              change_number,
                              change_pairing,
                              remove_message,
                              add_message,
                              rename_micro_batches};
    const std::size_t times = 1 + (random.one_in(3) ? random.below(4) : 0);
    for (std::size_t i = 0; i < times; ++i) {
        const bool empty = std::ranges::all_of(schedule.ranks, &std::vector<Action>::empty);
        if (!empty) {
            (random.one_in(2) ? swap_neighbours : random.any_of(ways))(schedule, random);
        }
    }
}

std::string text_of(const Schedule& schedule) {
    std::string text;
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
        text += testing::row_text(schedule, rank) + "\n";
    }
    return text;
}

/// How many cases went which way.
struct Outcomes {
    int run = 0;       ///< every rule holds, at every capacity
    int deadlock = 0;  ///< every rule holds, but at some capacity it deadlocks
    int rule_broken = 0;
    int not_lowered = 0;  ///< every message has been taken out: the rules are others, left out here
};

Outcomes compare_damaged(int cases, MessageQueues queues) {
    const std::uint64_t seed = tests::seed();
    Random random(seed);
    std::vector<Shapes> kinds = small_shapes();
    Outcomes outcomes;
    for (int i = 0; i < cases; ++i) {
        const Shapes& of_kind = kinds[static_cast<std::size_t>(i) % kinds.size()];
        Schedule schedule = lowered_at_random(of_kind.kind, random.any_of(of_kind.shapes), random);
        if (queues == MessageQueues::PerRanks) {
            if (!schedule.skips.empty()) {  // the oracle has no room for them in such queues
                schedule = testing::lowered(of_kind.kind, random.any_of(of_kind.shapes));
            }
            schedule = receive_in_order_of_sends(std::move(schedule));
        }
        const bool exchanged = has_communication(schedule);
        damage(schedule, random);
        if (exchanged && !has_communication(schedule)) {
            ++outcomes.not_lowered;
            continue;
        }
        const std::vector<Violation> violations = validate(schedule, queues);
        bool runs = true;
        for (int capacity = 0; capacity <= largest_capacity; ++capacity) {
            const DeadlockReport report = find_deadlock(schedule, capacity, queues);
            const bool accepted = violations.empty() && report.deadlock_free;
            EXPECT_EQ(accepted, every_interleaving_completes(schedule, capacity, queues))
                << "seed " << seed << ", case " << i << ": " << to_string(of_kind.kind)
                << ", capacity " << capacity << "\n"
                << text_of(schedule) << explain(schedule, violations) << "\n"
                << explain(schedule, report.waiting);
            runs = runs && report.deadlock_free;
        }
        ++(!violations.empty() ? outcomes.rule_broken : runs ? outcomes.run : outcomes.deadlock);
    }
    std::cout << fmt::format(
        "seed {}, {} cases: {} run, {} deadlock, {} break a rule, {} left out\n",
        seed,
        cases,
        outcomes.run,
        outcomes.deadlock,
        outcomes.rule_broken,
        outcomes.not_lowered);
    return outcomes;
}

TEST(Check, AgreesWithEveryInterleavingOnDamagedSchedules) {
    const int cases = tests::soaked(1000);
    const Outcomes outcomes = compare_damaged(cases, MessageQueues::PerStages);
    EXPECT_GT(outcomes.run, cases / 10);
    EXPECT_GT(outcomes.deadlock, cases / 40);
    EXPECT_GT(outcomes.rule_broken, cases / 4);
    EXPECT_LT(outcomes.not_lowered, cases / 40);
}

TEST(Check, OfOneQueuePerRanksAgreesWithEveryInterleavingOnDamagedSchedules) {
    const int cases = tests::soaked(1000);
    const Outcomes outcomes = compare_damaged(cases, MessageQueues::PerRanks);
    EXPECT_GT(outcomes.run, cases / 10);
    EXPECT_GT(outcomes.deadlock, cases / 100);
    EXPECT_GT(outcomes.rule_broken, cases / 4);
}

// --- Deadlock alone, which must also be told of schedules that break a rule. ---

void swap_a_few(Schedule& schedule, Random& random) {
    const std::size_t swaps = 1 + random.below(3);
    for (std::size_t i = 0; i < swaps; ++i) {
        swap_two(schedule, random);
    }
}

TEST(FindDeadlock, AgreesWithEveryInterleavingWhateverTheMessagesHold) {
    const std::uint64_t seed = tests::seed();
    Random random(seed);
    std::vector<Shapes> kinds = small_shapes();
    const int cases = tests::soaked(500);
    int deadlocks = 0;
    for (int i = 0; i < cases; ++i) {
        const Shapes& of_kind = kinds[static_cast<std::size_t>(i) % kinds.size()];
        Schedule schedule = lowered_at_random(of_kind.kind, random.any_of(of_kind.shapes), random);
        swap_a_few(schedule, random);
        for (int capacity = 0; capacity <= largest_capacity; ++capacity) {
            const bool expected = no_interleaving_blocks(schedule, capacity);
            const DeadlockReport report = find_deadlock(schedule, capacity);
            deadlocks += expected ? 0 : 1;
            ASSERT_EQ(report.deadlock_free, expected)
                << "seed " << seed << ", case " << i << ": " << to_string(of_kind.kind)
                << ", capacity " << capacity << "\n"
                << explain(schedule, report.waiting);
            ASSERT_EQ(report.waiting.empty(), expected);
        }
        // Where all receives are begun first a send finds its own: as if there were room for all.
        const DeadlockReport begun = find_deadlock_with_preposted_receives(schedule);
        ASSERT_EQ(begun.deadlock_free, no_interleaving_blocks(schedule, 2 * schedule.micro_batches))
            << "seed " << seed << ", case " << i << ": " << to_string(of_kind.kind) << "\n"
            << explain(schedule, begun.waiting);
    }
    EXPECT_GT(deadlocks, cases / 4);
    EXPECT_LT(deadlocks, 3 * cases - cases / 4);
}

/// A cycle is one: each of its actions waits for the rank of the next, and the last for the first.
TEST(FindDeadlock, ReportsACycleThatCloses) {
    Random random(7);
    for (int i = 0; i < 200; ++i) {
        Schedule schedule =
            add_communication(generate(ScheduleKind::OneFOneB, {.ranks = 4, .micro_batches = 4}),
                              RecomputeTiming::Eager);
        swap_a_few(schedule, random);
        const auto waiting = find_deadlock(schedule, 1).waiting;
        for (std::size_t k = 0; k < waiting.size(); ++k) {
            const Violation& next = waiting[(k + 1) % waiting.size()];
            EXPECT_THAT(waiting[k].why, HasSubstr(fmt::format("on rank {} ", next.rank)));
        }
    }
}

}  // namespace check_oracle_test
}  // namespace pipetwin
