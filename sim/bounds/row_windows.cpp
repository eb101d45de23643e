// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/row_windows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/schedule/action.h"
#include "core/schedule/lower.h"
#include "sim/bounds/order_paths.h"

namespace pipetwin::sim {

namespace {

/// Actions of one piece.
struct ActionCounts {
    std::int64_t forward = 0;
    std::int64_t again = 0;
    std::int64_t input = 0;
    std::int64_t weight = 0;

    void add(const Action& action, bool recomputes) {
        const bool ends = action.op == Op::Backward || action.op == Op::BackwardInput;
        forward += action.op == Op::Forward ? 1 : 0;
        again += ends && recomputes ? 1 : 0;
        input += ends ? 1 : 0;
        weight += action.op == Op::Backward || action.op == Op::BackwardWeight ? 1 : 0;
    }
};

/// Where a window begins and ends.
struct WindowEnds {
    bool begins_with_second = false;
    bool ends_with_update = false;
};

class Windows {
  public:
    Windows(RankChain& chain,
            const Schedule& order,
            const LayerSums& sums,
            const RowQuestion& question)
        : chain_(chain), order_(compute_only(order)), sums_(sums), question_(question) {
        rows_.resize(as_index(order_.rank_count()));
        for (int rank = 0; rank < order_.rank_count(); ++rank) {
            read(rank);
        }
    }

    void add(WindowEnds ends, bool recomputes, int alternative) {
        RankQuantity quantity{.before = {}, .alternative = alternative};
        quantity.kind_of_piece.resize(as_index(chain_.pieces()));
        const std::size_t layers = as_index(chain_.layers);
        const bool puts_off = question_.asked.puts_off();
        for (std::size_t i = 0; i <= layers; ++i) {
            const Duration there = sums_.forward[i];
            const Duration back =
                sums_.backward_input[i] + (puts_off ? Duration{} : sums_.backward_weight[i]);
            const Duration first = (ends.begins_with_second ? Duration{} : there) +
                                   (ends.ends_with_update ? Duration{} : back);
            quantity.delay.push_back(first.count());
            if (ends.begins_with_second) {
                quantity.second_delay.push_back(there.count());
            }
        }
        for (int rank = 0; rank < order_.rank_count(); ++rank) {
            add_rank(quantity, rank, ends, recomputes);
        }
        chain_.quantities.push_back(std::move(quantity));
    }

    void add_memory(Kept kept, int alternative) {
        RankQuantity quantity =
            held_memory(chain_, order_, sums_, question_.holds_all ? kept : Kept::Nothing);
        quantity.alternative = alternative;
        quantity.limits.assign(rows_.size(), question_.asked.memory_limit->count);
        chain_.quantities.push_back(std::move(quantity));
    }

  private:
    /// One rank's.
    struct Row {
        std::array<int, 2> pieces{};
        std::size_t second_begins = 0;  ///< index of the first F of the second piece
        std::size_t first_ends = 0;     ///< behind the last B or I of the first piece
    };

    std::size_t which(const Row& row, const Action& action) const {
        return model_stage_of(order_, action.stage) == row.pieces[0] ? 0 : 1;
    }

    void read(int rank) {
        Row& row = rows_[as_index(rank)];
        std::size_t next = 0;
        for (int piece = 0; piece < chain_.pieces() && next < 2; ++piece) {
            if (chain_.rank_of_piece[as_index(piece)] == rank) {
                row.pieces[next++] = piece;
            }
        }
        const std::vector<Action>& actions = order_.ranks[as_index(rank)];
        bool has_begun = false;
        for (std::size_t i = 0; i < actions.size(); ++i) {
            const std::size_t at = which(row, actions[i]);
            const Op op = actions[i].op;
            if (op == Op::Forward && at == 1 && !has_begun) {
                row.second_begins = i;
                has_begun = true;
            }
            if (at == 0 && (op == Op::Backward || op == Op::BackwardInput)) {
                row.first_ends = i + 1;
            }
        }
    }

    /// The sums of a piece in a quantity that has its own for each.
    static std::vector<std::int64_t>& of_piece(RankQuantity& quantity, int piece) {
        quantity.kind_of_piece[as_index(piece)] = static_cast<int>(quantity.before.size());
        return quantity.before.emplace_back();
    }

    void add_rank(RankQuantity& quantity, int rank, WindowEnds ends, bool recomputes) const {
        const Row& row = rows_[as_index(rank)];
        const std::vector<Action>& actions = order_.ranks[as_index(rank)];
        const std::size_t begin = ends.begins_with_second ? row.second_begins : 0;
        const std::size_t end =
            ends.ends_with_update ? actions.size() : std::max(begin, row.first_ends);
        std::array<ActionCounts, 2> counts{};
        for (std::size_t i = begin; i < end; ++i) {
            const bool again =
                recomputes &&
                pipetwin::recomputes(question_.again, actions[i].micro_batch, order_.micro_batches);
            counts[which(row, actions[i])].add(actions[i], again);
        }
        for (std::size_t at = 0; at < counts.size(); ++at) {
            std::vector<std::int64_t>& before = of_piece(quantity, row.pieces[at]);
            const ActionCounts& of = counts[at];
            for (std::size_t i = 0; i < sums_.forward.size(); ++i) {
                const Duration work = (of.forward + of.again) * sums_.forward[i] +
                                      of.input * sums_.backward_input[i] +
                                      of.weight * sums_.backward_weight[i] +
                                      (ends.ends_with_update ? sums_.update[i] : Duration{});
                const double sum =
                    ends.ends_with_update
                        ? question_.reduction * static_cast<double>(sums_.weights[i].count)
                        : 0.0;
                before.push_back(work.count() + static_cast<std::int64_t>(sum));
            }
        }
        const int ways = ends.ends_with_update ? 1 : 2;
        const Duration fixed = static_cast<std::int64_t>(end - begin) * sums_.dispatch +
                               ways * (question_.asked.hops_to(rank) + rank * sums_.dispatch);
        const int slack = ends.ends_with_update ? question_.reduction_slack : 0;
        quantity.fixed.push_back(fixed.count() - slack);
    }

    RankChain& chain_;
    const Schedule order_;
    const LayerSums& sums_;
    const RowQuestion& question_;
    std::vector<Row> rows_{};
};

/// Micro-batches of one piece on a rank.
struct UnderWay {
    std::int64_t live = 0;     ///< between F and the last part of their backward
    std::int64_t pending = 0;  ///< of them, those whose W is still to come
};

void count_action(std::map<int, UnderWay>& now, const Schedule& order, const Action& action) {
    UnderWay& of = now[model_stage_of(order, action.stage)];
    if (action.op == Op::Forward) {
        ++of.live;
    } else if (action.op == Op::BackwardInput) {
        ++of.pending;
    } else {
        of.pending -= action.op == Op::BackwardWeight ? 1 : 0;
        --of.live;
    }
}

/// What a piece reads of a micro-batch, at least.
Bytes input_of(const LayerSums& sums, int piece) {
    return piece == 0 ? std::min(sums.input, sums.least_boundary) : sums.least_boundary;
}

/// What a rank holds of a piece of its own between F and B.
struct Holding {
    Kept kept = Kept::All;
    bool keeps_last = false;  ///< of what is computed again, the last micro-batch

    /// Micro-batches of which all is kept.
    double whole(const MeanStashes& of) const {
        const double again = of.pending + of.next + (keeps_last ? of.last : 0.0);
        return kept == Kept::All ? of.live : kept == Kept::Input ? again : 0.0;
    }
    double split(const MeanStashes& of) const { return kept == Kept::Nothing ? 0.0 : of.pending; }
};

/// [moment]: shares with which the mean of the moments holds about as much as possible of the piece
/// that it holds least of, by multiplicative weights. Any shares are valid.
std::vector<double> shares_of_moments(const std::vector<std::vector<double>>& held) {
    constexpr int turns = 60;
    constexpr double pace = 0.5;
    const std::size_t pieces = held.front().size();
    double most = 0;
    for (const std::vector<double>& at_moment : held) {
        most = std::max(most, std::ranges::max(at_moment));
    }
    std::vector<double> shares(held.size(), most > 0 ? 0.0 : 1.0);
    std::vector<double> weights(pieces, 1.0);  // large where little was held until now
    for (int turn = 0; most > 0 && turn < turns; ++turn) {
        std::size_t best = 0;
        double best_held = -1;
        for (std::size_t moment = 0; moment < held.size(); ++moment) {
            double sum = 0;
            for (std::size_t piece = 0; piece < pieces; ++piece) {
                sum += weights[piece] * held[moment][piece];
            }
            if (sum > best_held) {
                best_held = sum;
                best = moment;
            }
        }
        ++shares[best];
        for (std::size_t piece = 0; piece < pieces; ++piece) {
            weights[piece] *= std::exp(-pace * held[best][piece] / most);
        }
        const double heaviest = std::ranges::max(weights);
        for (double& weight : weights) {
            weight /= heaviest;
        }
    }
    double all = 0;
    for (const double share : shares) {
        all += share;
    }
    for (double& share : shares) {
        share /= all;
    }
    return shares;
}

/// [piece]: the mean of what its rank holds at the moments of `stashes`, with shares of its own for
/// each rank.
std::vector<MeanStashes> mean_of_moments(const RankChain& chain,
                                         const std::vector<std::vector<MeanStashes>>& stashes,
                                         const Holding& holding) {
    std::vector<std::vector<std::size_t>> pieces(as_index(chain.ranks()));
    for (std::size_t piece = 0; piece < chain.rank_of_piece.size(); ++piece) {
        pieces[as_index(chain.rank_of_piece[piece])].push_back(piece);
    }
    std::vector<MeanStashes> mean(chain.rank_of_piece.size());
    std::vector<std::vector<double>> held(stashes.size());
    for (const std::vector<std::size_t>& of_rank : pieces) {
        for (std::size_t moment = 0; moment < stashes.size(); ++moment) {
            held[moment].clear();
            for (const std::size_t piece : of_rank) {
                held[moment].push_back(holding.whole(stashes[moment][piece]));
            }
        }
        const std::vector<double> shares = shares_of_moments(held);
        for (std::size_t moment = 0; moment < stashes.size(); ++moment) {
            for (const std::size_t piece : of_rank) {
                mean[piece].add(stashes[moment][piece], shares[moment]);
            }
        }
    }
    return mean;
}

/// [rank]: the memory at the moments of these stashes.
RankQuantity mean_memory(const RankChain& chain,
                         const std::vector<MeanStashes>& stashes,
                         const LayerSums& sums,
                         const Holding& holding) {
    RankQuantity quantity{.before =
                              std::vector<std::vector<std::int64_t>>(as_index(chain.pieces()))};
    std::vector<double> inputs(as_index(chain.ranks()));
    for (int piece = 0; piece < chain.pieces(); ++piece) {
        quantity.kind_of_piece.push_back(piece);
        const MeanStashes& of = stashes[as_index(piece)];
        const double whole = holding.whole(of);
        const double split = holding.split(of);
        std::vector<std::int64_t>& before = quantity.before[as_index(piece)];
        before.push_back(0);
        // Rounded down layer by layer, so that layers that are alike stay so.
        constexpr double rounding = 1 - 1e-12;
        for (std::size_t layer = 0; layer + 1 < sums.state.size(); ++layer) {
            const auto bytes = [layer](const std::vector<Bytes>& sum) {
                return static_cast<double>((sum[layer + 1] - sum[layer]).count);
            };
            before.push_back(
                before.back() + (sums.state[layer + 1] - sums.state[layer]).count +
                static_cast<std::int64_t>(std::floor(
                    rounding * (whole * bytes(sums.saved) + split * bytes(sums.split)))));
        }
        if (holding.kept == Kept::Input) {
            inputs[as_index(chain.rank_of_piece[as_index(piece)])] +=
                (of.live - whole) * static_cast<double>(input_of(sums, piece).count);
        }
    }
    for (const double of_rank : inputs) {
        quantity.fixed.push_back(static_cast<std::int64_t>(of_rank));
    }
    return quantity;
}

/// [piece]: what a row has under way when it holds most. What waits for its W holds less by a part.
std::map<int, UnderWay> most_under_way(const Schedule& order,
                                       const std::vector<Action>& row,
                                       double part_given_back) {
    std::map<int, UnderWay> now;
    for (const Action& action : row) {
        now[model_stage_of(order, action.stage)] = {};
    }
    std::map<int, UnderWay> most = now;
    double most_held = 0;
    for (const Action& action : row) {
        count_action(now, order, action);
        double held = 0;
        for (const auto& [piece, of] : now) {
            held +=
                static_cast<double>(of.live) - part_given_back * static_cast<double>(of.pending);
        }
        if (held > most_held) {
            most_held = held;
            most = now;
        }
    }
    return most;
}

}  // namespace

RankQuantity held_memory(const RankChain& chain,
                         const Schedule& order,
                         const LayerSums& sums,
                         Kept kept) {
    const Schedule rows = compute_only(order);
    RankQuantity quantity{.before =
                              std::vector<std::vector<std::int64_t>>(as_index(chain.pieces()))};
    quantity.fixed.resize(as_index(chain.ranks()));
    for (int piece = 0; piece < chain.pieces(); ++piece) {
        quantity.kind_of_piece.push_back(piece);
    }
    const auto saved = static_cast<double>(sums.saved.back().count);
    const auto added = static_cast<double>(sums.split.back().count);
    const double given_back = saved > 0 ? std::max(0.0, -added / saved) : 0.0;
    for (const std::vector<Action>& row : rows.ranks) {
        for (const auto& [piece, under_way] : most_under_way(rows, row, given_back)) {
            std::vector<std::int64_t>& before = quantity.before[as_index(piece)];
            if (!before.empty()) {
                continue;  // the other rank that has the piece, too
            }
            const std::int64_t whole = kept == Kept::All     ? under_way.live
                                       : kept == Kept::Input ? under_way.pending
                                                             : 0;
            const std::int64_t split = kept == Kept::Nothing ? 0 : under_way.pending;
            for (std::size_t layer = 0; layer < sums.state.size(); ++layer) {
                const Bytes held = whole * sums.saved[layer] + split * sums.split[layer];
                before.push_back((sums.state[layer] + held).count);
            }
            if (kept == Kept::Input) {
                quantity.fixed[as_index(chain.rank_of_piece[as_index(piece)])] +=
                    (under_way.live - whole) * input_of(sums, piece).count;
            }
        }
    }
    return quantity;
}

void add_windows(RankChain& chain,
                 const Schedule& order,
                 const LayerSums& sums,
                 const RowQuestion& question) {
    Windows windows(chain, order, sums, question);
    const bool where_needed = question.asked.where_needed;
    const bool recomputes = question.asked.recomputed > 0 && !where_needed;
    constexpr std::array<WindowEnds, 3> all{
        WindowEnds{.begins_with_second = false, .ends_with_update = false},
        WindowEnds{.begins_with_second = true, .ends_with_update = true},
        WindowEnds{.begins_with_second = true, .ends_with_update = false}};
    for (const WindowEnds ends : all) {
        windows.add(ends, recomputes, -1);
    }
    if (!question.asked.memory_limit) {
        return;
    }
    if (!where_needed) {
        windows.add_memory(recomputes ? Kept::Input : Kept::All, -1);
        return;
    }
    constexpr int keeps = 0;
    constexpr int computes_again = 1;
    windows.add_memory(Kept::All, keeps);
    windows.add({.begins_with_second = false, .ends_with_update = true}, true, computes_again);
    for (const WindowEnds ends : all) {
        windows.add(ends, true, computes_again);
    }
}

void add_mean_memory(RankChain& chain,
                     const Schedule& order,
                     const LayerSums& sums,
                     const RowQuestion& question) {
    if (!question.asked.memory_limit) {
        return;
    }
    const std::vector<std::vector<MeanStashes>> stashes = stashes_of(order);
    const bool where_needed = question.asked.where_needed;
    const bool recomputes = question.asked.recomputed > 0;
    const bool keeps_last = !where_needed && question.again == Recompute::ExceptLast;
    const auto add = [&](Kept kept, int alternative) {
        const Holding holding{.kept = question.holds_all ? kept : Kept::Nothing,
                              .keeps_last = keeps_last};
        const std::vector<MeanStashes> mean = mean_of_moments(chain, stashes, holding);
        for (const std::vector<MeanStashes>* const held : {&stashes.front(), &mean}) {
            RankQuantity quantity = mean_memory(chain, *held, sums, holding);
            quantity.alternative = alternative;
            quantity.limits.assign(as_index(chain.ranks()), question.asked.memory_limit->count);
            chain.quantities.push_back(std::move(quantity));
        }
    };
    if (!where_needed) {
        add(recomputes ? Kept::Input : Kept::All, -1);
        return;
    }
    constexpr int keeps = 0;
    constexpr int computes_again = 1;
    add(Kept::All, keeps);
    add(Kept::Input, computes_again);
    RankQuantity more = chain.quantities.front();
    more.alternative = computes_again;
    for (std::vector<std::int64_t>& before : more.before) {
        for (std::size_t i = 0; i < before.size(); ++i) {
            before[i] += (question.asked.recomputed * sums.forward[i]).count();
        }
    }
    chain.quantities.push_back(std::move(more));
}

}  // namespace pipetwin::sim
