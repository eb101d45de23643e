// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/order_paths.h"

#include <algorithm>
#include <cstddef>

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

void Row::add_stashes(std::vector<std::vector<MeanStashes>>& stashes) const {
    std::vector<MeanStashes> now(chunks());
    std::vector<MeanStashes> full(chunks());
    std::vector<std::vector<MeanStashes>> of_chunk(chunks(), now);
    double live = 0;
    double most = 0;
    double moments = 0;
    std::size_t next = chunks();  // the chunk whose backward is the next action
    for (std::size_t i = 0; i < actions_.size(); ++i) {
        const Action& action = actions_[i];
        const std::size_t at = chunk_of(action);
        MeanStashes& of = now[at];
        if (action.op == Op::Forward) {
            ++of.live;
            ++live;
        } else if (action.op == Op::BackwardInput) {
            ++of.pending;
        } else {
            of.pending -= action.op == Op::BackwardWeight ? 1 : 0;
            --of.live;
            --live;
        }
        if (next < chunks()) {
            now[next].next = 0;
            next = chunks();
        }
        if (i + 1 < actions_.size() && is_backward(actions_[i + 1].op)) {
            next = chunk_of(actions_[i + 1]);
            now[next].next = 1;
        }
        if (of.live > of_chunk[at][at].live) {
            of_chunk[at] = now;
        }
        if (live > most) {
            most = live;
            moments = 0;
            full.assign(chunks(), {});
        }
        if (live == most) {
            ++moments;
            for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
                full[chunk].live += now[chunk].live;
                full[chunk].pending += now[chunk].pending;
                full[chunk].next += now[chunk].next;
            }
        }
    }
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
        const std::size_t piece = pieces_[chunk];
        stashes.front()[piece] = {.live = full[chunk].live / moments,
                                  .pending = full[chunk].pending / moments,
                                  .next = full[chunk].next / moments};
        for (std::size_t moment = 0; moment < chunks(); ++moment) {
            stashes[moment + 1][piece] = of_chunk[moment][chunk];
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
    std::vector<std::vector<MeanStashes>> stashes(chunks + 1,
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
