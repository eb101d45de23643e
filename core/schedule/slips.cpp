// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/slips.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

/// F, B, I and W.
bool is_counted(Op op) {
    return is_compute(op) && op != Op::Recompute;
}

/// An action that its rank has no use for.
struct Surplus {
    Action action;
    int cell = 0;
    int first_cell = -1;  ///< the cell that has the same action already
    std::string why;      ///< what is wrong with it, as the beginning of a sentence
    std::string more{};   ///< what follows in a sentence of its own
};

/// What one rank has too much, and what it lacks.
struct RankBalance {
    std::vector<Surplus> surplus;
    std::vector<Action> lacking;
};

bool differ_in_one_part(const Action& one, const Action& other) {
    return (one.op != other.op) + (one.stage != other.stage) +
               (one.micro_batch != other.micro_batch) ==
           1;
}

class SlipFinder {
  public:
    explicit SlipFinder(const Schedule& schedule) : mended_{.schedule = schedule, .slips = {}} {}

    std::optional<Mended> find() {
        if (!has_one_pipeline() || !is_in_range()) {
            return std::nullopt;
        }
        const int stages = without_stray(rows().stage_count(), true);
        rows().rank_of_stage.resize(as_index(stages));
        rows().weights_of_stage.resize(as_index(stages));
        rows().micro_batches = without_stray(rows().micro_batches, false);
        constexpr std::int64_t most_pairs = 1'000'000;
        if (std::int64_t{stages} * rows().micro_batches > most_pairs) {
            return std::nullopt;
        }
        weigh_rows();
        for (int rank = 0; rank < rows().rank_count(); ++rank) {
            mend(rank);
        }
        return mended_.slips.empty() ? std::nullopt : std::optional(std::move(mended_));
    }

  private:
    Schedule& rows() { return mended_.schedule; }
    std::vector<Action>& row(int rank) { return rows().ranks[as_index(rank)]; }

    bool has_one_pipeline() {
        const std::vector<int>& weights = rows().weights_of_stage;
        for (std::size_t stage = 0; stage < weights.size(); ++stage) {
            if (std::cmp_not_equal(weights[stage], stage)) {
                return false;
            }
        }
        return !weights.empty() && weights.size() == rows().rank_of_stage.size();
    }

    bool is_in_range() {
        const auto is_in = [this](const Action& action) {
            return action.stage >= 0 && action.stage < rows().stage_count() &&
                   action.micro_batch >= 0 && action.micro_batch < rows().micro_batches;
        };
        return std::ranges::all_of(rows().ranks, [&](const std::vector<Action>& row) {
            return std::ranges::all_of(row, is_in);
        });
    }

    /// How many stages or micro-batches there are without a last one that one action names, where
    /// the others have several; remembers that one.
    int without_stray(int size, bool of_stages) {
        std::map<int, int> counts;  // one cell can name the last of billions
        bool is_alone = false;      // a rank that has nothing else is a row that was cut short
        for (const std::vector<Action>& row : rows().ranks) {
            for (const Action& action : row) {
                if (of_stages || has_micro_batch(action.op)) {
                    const int index = of_stages ? action.stage : action.micro_batch;
                    ++counts[index];
                    is_alone = is_alone || (index + 1 == size && row.size() == 1);
                }
            }
        }
        std::int64_t total = 0;
        for (const auto& [index, count] : counts) {
            total += count;
        }
        const std::int64_t named = std::ssize(counts);
        const bool last_is_named_once = counts.contains(size - 1) && counts[size - 1] == 1;
        if (is_alone || named < 2 || !last_is_named_once || total - 1 < 3 * (named - 1)) {
            return size;
        }
        const int rest = std::next(counts.rbegin())->first + 1;
        strays_.push_back(
            {.last = size - 1,
             .of_stage = of_stages,
             .why = fmt::format(
                 "is the only action of {} {}", of_stages ? "stage" : "micro-batch", size - 1),
             .more = fmt::format(": the others are 0 to {}", rest - 1)});
        return rest;
    }

    /// Fills the balance of each rank.
    void weigh_rows() {
        const std::size_t stages = as_index(rows().stage_count());
        const std::size_t micro_batches = as_index(rows().micro_batches);
        cells_.assign(stages * micro_batches * ops, -1);
        balances_.assign(rows().ranks.size(), {});
        for (int rank = 0; rank < rows().rank_count(); ++rank) {
            for (int cell = 0; std::cmp_less(cell, row(rank).size()); ++cell) {
                weigh(rank, cell, row(rank)[as_index(cell)]);
            }
        }
        const bool forward_only = is_forward_only(rows());
        for (int stage = 0; stage < rows().stage_count(); ++stage) {
            for (int k = 0; k < rows().micro_batches; ++k) {
                weigh_need(stage, k, forward_only);
            }
        }
    }

    void weigh(int rank, int cell, const Action& action) {
        if (!is_counted(action.op)) {
            return;
        }
        std::vector<Surplus>& surplus = balances_[as_index(rank)].surplus;
        for (const Stray& stray : strays_) {
            if (stray.last == (stray.of_stage ? action.stage : action.micro_batch)) {
                surplus.push_back(
                    {.action = action, .cell = cell, .why = stray.why, .more = stray.more});
                return;
            }
        }
        const int home = rows().rank_of_stage[as_index(action.stage)];
        int& known = cell_of(action);
        if (home != rank) {
            surplus.push_back(
                {.action = action,
                 .cell = cell,
                 .why = fmt::format("is of stage {}, which is on rank {}", action.stage, home)});
        } else if (known >= 0) {
            surplus.push_back({.action = action,
                               .cell = cell,
                               .first_cell = known,
                               .why = fmt::format("is in cells {} and {}", known, cell)});
        } else {
            known = cell;
        }
    }

    void weigh_need(int stage, int micro_batch, bool forward_only) {
        const int rank = rows().rank_of_stage[as_index(stage)];
        if (rank < 0 || rank >= rows().rank_count()) {
            return;
        }
        const auto action = [&](Op op) {
            return Action{.op = op, .stage = stage, .micro_batch = micro_batch};
        };
        const auto has = [&](Op op) { return cell_of(action(op)) >= 0; };
        std::vector<Action>& lacking = balances_[as_index(rank)].lacking;
        if (!has(Op::Forward)) {
            lacking.push_back(action(Op::Forward));
        }
        const bool input = has(Op::BackwardInput);
        const bool weight = has(Op::BackwardWeight);
        if (forward_only || has(Op::Backward) || (input && weight)) {
            return;
        }
        lacking.push_back(action(input    ? Op::BackwardWeight
                                 : weight ? Op::BackwardInput
                                          : Op::Backward));
    }

    void mend(int rank) {
        const auto& [surplus, lacking] = balances_[as_index(rank)];
        const bool is_pair = surplus.size() == 1 && lacking.size() == 1 &&
                             differ_in_one_part(surplus.front().action, lacking.front());
        if (is_pair) {
            mend(rank, surplus.front(), lacking.front());
            return;
        }
        for (const Surplus& extra : surplus) {
            if (is_stray(extra.action)) {
                report(rank, extra.cell, -1, extra.action, extra.why + extra.more);
                leave_out(rank, extra.cell);
            }
        }
    }

    /// Puts what was meant into the cell where it comes in the order of the row.
    void mend(int rank, const Surplus& extra, const Action& meant) {
        const auto fits = [&](int cell) {
            std::vector<Action> changed = row(rank);
            put(changed[as_index(cell)], meant);
            return is_in_order(changed, extra.action) && is_in_order(changed, meant) &&
                   runs_forward_first(changed, meant);
        };
        const bool has_two = extra.first_cell >= 0;
        const bool second = fits(extra.cell);
        const bool first = has_two && fits(extra.first_cell);
        const int cell = first && !second ? extra.first_cell : extra.cell;
        const std::string where =
            first != second ? fmt::format("cell {} is where {} would come", cell, to_string(meant))
            : has_two       ? fmt::format("one of the two was meant to be {}", to_string(meant))
                            : fmt::format("was it meant to be {}?", to_string(meant));
        report(rank,
               cell,
               has_two ? extra.first_cell + extra.cell - cell : -1,
               extra.action,
               fmt::format("{}, and {} is missing: {}", extra.why, to_string(meant), where));
        put(row(rank)[as_index(cell)], meant);
    }

    static void put(Action& place, const Action& action) {
        const bool with_next = place.with_next;
        place = action;
        place.with_next = with_next;
    }

    /// Whether the micro-batches of the stage's actions of this kind ascend, or descend.
    static bool is_in_order(std::span<const Action> row, const Action& like) {
        std::vector<int> micro_batches;
        for (const Action& action : row) {
            if (action.op == like.op && action.stage == like.stage) {
                micro_batches.push_back(action.micro_batch);
            }
        }
        return std::ranges::is_sorted(micro_batches) ||
               std::ranges::is_sorted(micro_batches, std::ranges::greater{});
    }

    /// Whether the forward of the action's stage and micro-batch comes before its backward.
    static bool runs_forward_first(std::span<const Action> row, const Action& like) {
        bool has_backward = false;
        for (const Action& action : row) {
            if (action.stage == like.stage && action.micro_batch == like.micro_batch) {
                if (action.op == Op::Forward && has_backward) {
                    return false;
                }
                has_backward = has_backward || (is_counted(action.op) && action.op != Op::Forward);
            }
        }
        return true;
    }

    bool is_stray(const Action& action) const {
        return std::ranges::any_of(strays_, [&](const Stray& stray) {
            return stray.last == (stray.of_stage ? action.stage : action.micro_batch);
        });
    }

    void leave_out(int rank, int cell) {
        const auto home = std::ranges::find(rows().rank_of_stage, rank);
        put(row(rank)[as_index(cell)],
            {.op = Op::Unshard,
             .stage =
                 static_cast<int>(home - rows().rank_of_stage.begin()) % rows().stage_count()});
    }

    void report(int rank, int cell, int second_cell, const Action& action, const std::string& why) {
        mended_.slips.push_back({.rank = rank,
                                 .cell = cell,
                                 .action = to_string(action),
                                 .why = why,
                                 .second_cell = second_cell});
    }

    int& cell_of(const Action& action) {
        const std::size_t pair =
            as_index(action.stage) * as_index(rows().micro_batches) + as_index(action.micro_batch);
        return cells_[pair * ops + as_index(action.op)];
    }

    /// The last stage or micro-batch, which one action names.
    struct Stray {
        int last = 0;
        bool of_stage = false;
        std::string why;  ///< as those of Surplus
        std::string more;
    };

    static constexpr std::size_t ops = as_index(Op::Recompute);  ///< F, B, I and W come before

    Mended mended_;
    std::vector<Stray> strays_;
    std::vector<int> cells_;  ///< of each action on its rank; -1: it is not there
    std::vector<RankBalance> balances_;
};

}  // namespace

std::optional<Mended> mend_slips(const Schedule& schedule) {
    return SlipFinder(schedule).find();
}

}  // namespace pipetwin
