// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/order_paths.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/schedule/action.h"
#include "core/schedule/lower.h"

namespace pipetwin::sim {

namespace {

bool is_backward(Op op) {
    return op == Op::Backward || op == Op::BackwardInput;
}

void count_in(const Action& action, bool is_last, PieceCounts& of) {
    const bool ends = is_backward(action.op);
    of.forward += action.op == Op::Forward ? 1 : 0;
    of.input += ends ? 1 : 0;
    of.weight += action.op == Op::Backward || action.op == Op::BackwardWeight ? 1 : 0;
    of.again += ends ? 1 : 0;
    of.again_but_last += ends && !is_last ? 1 : 0;
}

/// The actions of one rank.
class Row {
  public:
    Row(const Schedule& order, int rank, bool splits)
        : order_(order),
          actions_(order.ranks[as_index(rank)]),
          splits_(splits),
          chunk_of_piece_(order.rank_of_stage.size()) {
        for (std::size_t piece = 0; piece < order.rank_of_stage.size(); ++piece) {
            if (order.rank_of_stage[piece] == rank) {
                chunk_of_piece_[piece] = pieces_.size();
                pieces_.push_back(piece);
            }
        }
        find_ends();
        count_actions();
    }

    std::size_t chunks() const { return pieces_.size(); }
    /// Where ways begin: with the first F of a chunk, or the first backward; and where they end:
    /// with the last backward of a chunk, or the update.
    std::size_t begin(std::size_t from) const { return begins_[from]; }
    std::size_t end(std::size_t to) const { return ends_[to]; }

    /// Adds the parts of its ways, as those of one of many ranks.
    void add_ways(double share, OrderPaths& paths) const;

    /// Adds what it holds.
    void add_stashes(std::vector<std::vector<MeanStashes>>& stashes) const;

  private:
    std::size_t chunk_of(const Action& action) const {
        return chunk_of_piece_[as_index(action.stage)];
    }
    bool is_of_last(const Action& action) const {
        return action.micro_batch + 1 == order_.micro_batches;
    }
    void find_ends();
    void count_actions();
    void add_begin(std::size_t from, double share, std::vector<PieceCounts>& of_piece) const;
    void add_end(std::size_t to, double share, std::vector<PieceCounts>& of_piece) const;
    /// A backward on another rank; where any are split, without its W.
    void add_backward(double share, PieceCounts& of) const {
        of.input += share;
        of.weight += splits_ ? 0.0 : share;
    }

    const Schedule& order_;
    const std::vector<Action>& actions_;
    bool splits_;  ///< some backwards into I and W
    std::vector<std::size_t> chunk_of_piece_;
    std::vector<std::size_t> pieces_{};
    std::vector<std::size_t> begins_{};
    std::vector<std::size_t> ends_{};
    std::vector<std::vector<PieceCounts>> before_begin_{};  ///< [from][chunk]: actions before that
    std::vector<std::vector<PieceCounts>> before_end_{};    ///< [to][chunk]: likewise
};

void Row::find_ends() {
    begins_.assign(chunks() + 1, actions_.size());
    ends_.assign(chunks() + 1, 0);
    ends_.back() = actions_.size();
    for (std::size_t i = actions_.size(); i-- > 0;) {
        const std::size_t chunk = chunk_of(actions_[i]);
        if (actions_[i].op == Op::Forward) {
            begins_[chunk] = i;
        } else if (is_backward(actions_[i].op)) {
            begins_.back() = i;
            ends_[chunk] = std::max(ends_[chunk], i + 1);
        }
    }
}

void Row::count_actions() {
    struct Mark {
        std::size_t at = 0;
        std::vector<PieceCounts>* before = nullptr;
    };
    before_begin_.resize(begins_.size());
    before_end_.resize(ends_.size());
    std::vector<Mark> marks;
    for (std::size_t i = 0; i < begins_.size(); ++i) {
        marks.push_back({.at = begins_[i], .before = &before_begin_[i]});
        marks.push_back({.at = ends_[i], .before = &before_end_[i]});
    }
    std::ranges::sort(marks, {}, &Mark::at);
    std::vector<PieceCounts> now(chunks());
    std::size_t i = 0;
    for (const Mark& mark : marks) {
        for (; i < mark.at; ++i) {
            count_in(actions_[i], is_of_last(actions_[i]), now[chunk_of(actions_[i])]);
        }
        *mark.before = now;
    }
}

void add_counts(const PieceCounts& counts, double share, PieceCounts& of) {
    of.forward += share * counts.forward;
    of.input += share * counts.input;
    of.weight += share * counts.weight;
    of.again += share * counts.again;
    of.again_but_last += share * counts.again_but_last;
}

void Row::add_begin(std::size_t from, double share, std::vector<PieceCounts>& of_piece) const {
    const bool turns = from == chunks();
    const Action& first = actions_[begin(from)];
    const std::size_t begins = as_index(first.stage);
    for (std::size_t piece = 0; piece < (turns ? of_piece.size() : begins); ++piece) {
        of_piece[piece].forward += share;
    }
    for (std::size_t piece = begins + 1; turns && piece < of_piece.size(); ++piece) {
        add_backward(share, of_piece[piece]);
    }
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
        add_counts(before_begin_[from][chunk], -share, of_piece[pieces_[chunk]]);
    }
    if (turns) {  // its first backward waits for the one behind it, while it may compute again
        of_piece[begins].again -= share;
        of_piece[begins].again_but_last -= is_of_last(first) ? 0 : share;
    }
}

void Row::add_end(std::size_t to, double share, std::vector<PieceCounts>& of_piece) const {
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
        add_counts(before_end_[to][chunk], share, of_piece[pieces_[chunk]]);
    }
    for (std::size_t piece = 0; to < chunks() && piece < pieces_[to]; ++piece) {
        add_backward(share, of_piece[piece]);
    }
}

void Row::add_ways(double share, OrderPaths& paths) const {
    for (std::size_t i = 0; i <= chunks(); ++i) {
        if (begin(i) < actions_.size()) {
            add_begin(i, share, paths.begins[i]);
        }
        add_end(i, share, paths.ends[i]);
    }
}

/// What a rank holds after each action of its row.
class HeldStashes {
  public:
    explicit HeldStashes(std::size_t chunks) : now_(chunks) {}

    /// `next`: the chunk whose backward is the next action; none where another is.
    void after(Op op, std::size_t chunk, bool is_last, std::optional<std::size_t> next) {
        MeanStashes& of = now_[chunk];
        if (next_) {
            now_[*next_].next = 0;
        }
        if (op == Op::Forward) {
            ++of.live;
            ++live_;
            of.last += is_last ? 1 : 0;
            last_ += is_last ? 1 : 0;
        } else {
            of.pending += op == Op::BackwardInput ? 1 : op == Op::BackwardWeight ? -1 : 0;
            const int ended = op == Op::BackwardInput ? 0 : 1;
            of.live -= ended;
            live_ -= ended;
        }
        next_ = next;
        if (next_) {
            now_[*next_].next = 1;
        }
    }
    /// The next action is the first backward of the last micro-batch.
    void turn_last(std::size_t chunk) {
        last_ -= now_[chunk].last;
        now_[chunk].last = 0;
    }

    std::size_t chunks() const { return now_.size(); }
    const std::vector<MeanStashes>& now() const { return now_; }
    std::optional<std::size_t> next() const { return next_; }
    double live() const { return live_; }  ///< of all chunks
    double last() const { return last_; }  ///< pieces that hold the last micro-batch

  private:
    std::vector<MeanStashes> now_;
    std::optional<std::size_t> next_{};
    double live_ = 0;
    double last_ = 0;
};

/// The moment at which something is largest.
struct Largest {
    double largest = 0;
    std::vector<MeanStashes> held{};

    void look_at(double size, const HeldStashes& stashes) {
        if (size > largest) {
            largest = size;
            held = stashes.now();
        }
    }
};

/// The mean of the moments at which something is largest.
struct MeanOfLargest {
    double largest = 0;
    double moments = 0;
    std::vector<MeanStashes> sum{};

    void look_at(double size, const HeldStashes& stashes) {
        if (size > largest) {
            largest = size;
            moments = 0;
            sum.assign(stashes.chunks(), {});
        }
        if (size < largest) {
            return;
        }
        ++moments;
        for (std::size_t chunk = 0; chunk < sum.size(); ++chunk) {
            sum[chunk].add(stashes.now()[chunk], 1.0);
        }
    }
    std::vector<MeanStashes> mean() const {
        std::vector<MeanStashes> result(sum.size());
        for (std::size_t chunk = 0; chunk < sum.size(); ++chunk) {
            const MeanStashes& of = sum[chunk];  // divided, since n * (1 / n) may be above 1
            result[chunk] = {.live = of.live / moments,
                             .pending = of.pending / moments,
                             .next = of.next / moments,
                             .last = of.last / moments};
        }
        return result;
    }
};

void Row::add_stashes(std::vector<std::vector<MeanStashes>>& stashes) const {
    HeldStashes held(chunks());
    MeanOfLargest full;
    Largest last_held;
    std::vector<Largest> of_chunk(chunks());
    std::vector<Largest> before_backward(chunks());
    for (std::size_t i = 0; i < actions_.size(); ++i) {
        const Action& action = actions_[i];
        const std::size_t at = chunk_of(action);
        const Action* const next = i + 1 < actions_.size() ? &actions_[i + 1] : nullptr;
        const bool turns = next != nullptr && is_backward(next->op);
        held.after(action.op,
                   at,
                   is_of_last(action),
                   turns ? std::optional(chunk_of(*next)) : std::nullopt);
        const double last = held.last();  // before `turn_last`, which may take one away
        const double live = held.live();
        if (turns && is_of_last(*next)) {
            held.turn_last(chunk_of(*next));
        }
        full.look_at(live, held);
        of_chunk[at].look_at(held.now()[at].live, held);
        // If several moments have the same number of pieces with the last micro-batch, the one with
        // most live stashes counts: their number divided by that of actions is below 1.
        last_held.look_at(last > 0 ? last + live / static_cast<double>(actions_.size()) : 0, held);
        if (turns) {
            before_backward[*held.next()].look_at(live, held);
        }
    }
    std::vector<std::vector<MeanStashes>> moments{full.mean()};
    const auto add = [&](const Largest& moment) { moments.push_back(moment.held); };
    std::ranges::for_each(of_chunk, add);
    add(last_held);
    std::ranges::for_each(before_backward, add);
    for (std::size_t moment = 0; moment < moments.size(); ++moment) {
        for (std::size_t chunk = 0; chunk < moments[moment].size(); ++chunk) {
            stashes[moment][pieces_[chunk]] = moments[moment][chunk];
        }
    }
}

/// Keeps a reference to compute actions only.
std::vector<Row> rows_of(const Schedule& compute) {
    const bool splits = splits_backward(compute);
    std::vector<Row> rows;
    for (int rank = 0; rank < compute.rank_count(); ++rank) {
        rows.emplace_back(compute, rank, splits);
    }
    return rows;
}

std::vector<std::vector<MeanStashes>> stashes_of_rows(const std::vector<Row>& rows) {
    const std::size_t chunks = rows.front().chunks();
    std::vector<std::vector<MeanStashes>> stashes(2 * chunks + 2,
                                                  std::vector<MeanStashes>(rows.size() * chunks));
    for (const Row& row : rows) {
        row.add_stashes(stashes);
    }
    return stashes;
}

}  // namespace

std::vector<std::vector<MeanStashes>> stashes_of(const Schedule& order) {
    const Schedule rows = compute_only(order);
    return stashes_of_rows(rows_of(rows));
}

OrderPaths order_paths(const Schedule& order) {
    const Schedule rows = compute_only(order);
    const std::vector<Row> of_rank = rows_of(rows);
    const std::size_t pieces = rows.rank_of_stage.size();
    const std::size_t chunks = of_rank.front().chunks();
    const std::vector<std::vector<PieceCounts>> nothing(chunks + 1,
                                                        std::vector<PieceCounts>(pieces));
    OrderPaths paths{
        .ranks = rows.rank_count(), .ways = {}, .begins = nothing, .ends = nothing, .stashes = {}};
    for (std::size_t from = 0; from <= chunks; ++from) {
        for (std::size_t to = 0; to <= chunks; ++to) {
            if (std::ranges::all_of(
                    of_rank, [&](const Row& row) { return row.begin(from) < row.end(to); })) {
                paths.ways.push_back({.from = from, .to = to});
            }
        }
    }
    for (const Row& row : of_rank) {
        row.add_ways(1.0 / paths.ranks, paths);
    }
    paths.stashes = stashes_of_rows(of_rank);
    return paths;
}

}  // namespace pipetwin::sim
