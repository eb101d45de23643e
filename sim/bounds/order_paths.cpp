// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/order_paths.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/base/as_index.h"
#include "core/schedule/action.h"
#include "core/schedule/lower.h"

namespace pipetwin::sim {

namespace {

bool is_backward(Op op) {
    return op == Op::Backward || op == Op::BackwardInput;
}

/// The actions of one rank.
class Row {
  public:
    Row(const Schedule& order, int rank, bool splits)
        : order_(order), actions_(order.ranks[as_index(rank)]), splits_(splits) {
        for (std::size_t piece = 0; piece < order.rank_of_stage.size(); ++piece) {
            if (order.rank_of_stage[piece] == rank) {
                pieces_.push_back(static_cast<int>(piece));
            }
        }
        first_forward_.assign(pieces_.size(), actions_.size());
        last_backward_.assign(pieces_.size(), 0);
        for (std::size_t i = actions_.size(); i-- > 0;) {
            const std::size_t chunk = chunk_of(actions_[i]);
            if (actions_[i].op == Op::Forward) {
                first_forward_[chunk] = i;
            } else if (is_backward(actions_[i].op)) {
                first_backward_ = i;
                last_backward_[chunk] = std::max(last_backward_[chunk], i);
            }
        }
    }

    std::size_t chunks() const { return pieces_.size(); }
    /// Where ways begin: with the first F of a chunk, or the first backward; and where they end:
    /// with the last backward of a chunk, or the update.
    std::size_t begin(std::size_t chunk) const {
        return chunk < chunks() ? first_forward_[chunk] : first_backward_;
    }
    std::size_t end(std::size_t chunk) const {
        return chunk < chunks() ? last_backward_[chunk] + 1 : actions_.size();
    }

    /// Adds the way from `from` to `to`, as one of `ranks`.
    void add_way(std::size_t from, std::size_t to, double share, MeanWay& way) const {
        const Action& first = actions_[begin(from)];
        const int begins = first.stage;
        const int pieces = static_cast<int>(order_.rank_of_stage.size());
        const bool turns = from == chunks();
        for (int piece = 0; piece < (turns ? pieces : begins); ++piece) {
            way.of_piece[as_index(piece)].forward += share;
        }
        for (int piece = begins + 1; turns && piece < pieces; ++piece) {
            add_backward(piece, share, way);
        }
        for (std::size_t i = begin(from); i < end(to); ++i) {
            add(actions_[i], i > begin(from), share, way);
        }
        if (to < chunks()) {
            const Action& last = actions_[last_backward_[to]];
            for (int piece = 0; piece < last.stage; ++piece) {
                add_backward(piece, share, way);
            }
        }
    }

    /// Adds what it holds.
    void add_stashes(std::vector<std::vector<MeanStashes>>& stashes) const;

  private:
    std::size_t chunk_of(const Action& action) const {
        return as_index(std::ranges::find(pieces_, action.stage) - pieces_.begin());
    }
    /// A backward on another rank; where any are split, without its W.
    void add_backward(int piece, double share, MeanWay& way) const {
        PieceCounts& of = way.of_piece[as_index(piece)];
        of.input += share;
        of.weight += splits_ ? 0.0 : share;
    }
    void add(const Action& action, bool is_later, double share, MeanWay& way) const {
        PieceCounts& of = way.of_piece[as_index(action.stage)];
        const bool ends = is_backward(action.op);
        of.forward += action.op == Op::Forward ? share : 0;
        of.input += ends ? share : 0;
        of.weight += action.op == Op::Backward || action.op == Op::BackwardWeight ? share : 0;
        of.again += ends && is_later ? share : 0;
        of.again_but_last +=
            ends && is_later && action.micro_batch + 1 < order_.micro_batches ? share : 0;
    }

    const Schedule& order_;
    const std::vector<Action>& actions_;
    bool splits_;  ///< some backwards into I and W
    std::vector<int> pieces_{};
    std::vector<std::size_t> first_forward_{};
    std::vector<std::size_t> last_backward_{};
    std::size_t first_backward_ = 0;
};

void Row::add_stashes(std::vector<std::vector<MeanStashes>>& stashes) const {
    std::vector<MeanStashes> now(chunks());
    std::vector<MeanStashes> full(chunks());
    std::vector<std::vector<MeanStashes>> of_chunk(chunks(), now);
    double live = 0;
    double most = 0;
    double moments = 0;
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
        for (MeanStashes& each : now) {
            each.next = 0;
        }
        if (i + 1 < actions_.size() && is_backward(actions_[i + 1].op)) {
            now[chunk_of(actions_[i + 1])].next = 1;
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
        const std::size_t piece = as_index(pieces_[chunk]);
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
    OrderPaths paths{.ranks = rows.rank_count(), .ways = {}, .stashes = {}};
    for (std::size_t from = 0; from <= chunks; ++from) {
        for (std::size_t to = 0; to <= chunks; ++to) {
            if (!std::ranges::all_of(
                    of_rank, [&](const Row& row) { return row.begin(from) < row.end(to); })) {
                continue;
            }
            MeanWay& way = paths.ways.emplace_back(MeanWay{
                .of_piece = std::vector<PieceCounts>(pieces), .ends_with_update = to == chunks});
            for (const Row& row : of_rank) {
                row.add_way(from, to, 1.0 / paths.ranks, way);
            }
        }
    }
    paths.stashes = stashes_of_rows(of_rank);
    return paths;
}

namespace {

constexpr double none = std::numeric_limits<double>::infinity();

struct Layer {
    double forward = 0;
    double input = 0;
    double weight = 0;
    double state = 0;
    double saved = 0;
    double split = 0;
};

std::vector<Layer> layers_of(const LayerSums& sums) {
    std::vector<Layer> layers;
    for (std::size_t i = 0; i < as_index(sums.layers()); ++i) {
        const auto time = [i](const std::vector<Duration>& of) {
            return static_cast<double>((of[i + 1] - of[i]).count());
        };
        const auto bytes = [i](const std::vector<Bytes>& of) {
            return static_cast<double>((of[i + 1] - of[i]).count);
        };
        layers.push_back({.forward = time(sums.forward),
                          .input = time(sums.backward_input),
                          .weight = time(sums.backward_weight),
                          .state = bytes(sums.state),
                          .saved = bytes(sums.saved),
                          .split = bytes(sums.split)});
    }
    return layers;
}

/// What a layer of a piece costs by its parts, and what the piece costs besides.
struct Prices {
    double forward = 0;
    double input = 0;
    double weight = 0;
    double state = 0;
    double saved = 0;
    double split = 0;
    double besides = 0;

    double of(const Layer& layer) const {
        return forward * layer.forward + input * layer.input + weight * layer.weight +
               state * layer.state + saved * layer.saved + split * layer.split;
    }
};

/// What the layers of one piece add up to.
struct PieceSum {
    Layer all{};
    bool again = false;
};

/// The partition that costs least, piece by piece, none empty.
class CheapestPartition {
  public:
    CheapestPartition(const std::vector<Layer>& layers, std::size_t pieces)
        : layers_(layers),
          pieces_(pieces),
          spare_(layers.size() - pieces),
          of_piece_(pieces * (spare_ + 1)) {}

    /// `keep` and `again`: [piece], one of them empty where a piece may not be so.
    double find(const std::vector<Prices>& keep, const std::vector<Prices>& again) {
        std::vector<double> before(spare_ + 1, none);  // [layers beyond one for each piece]
        before.front() = 0;
        std::vector<double> best(spare_ + 1);
        for (std::size_t piece = 0; piece < pieces_; ++piece) {
            std::ranges::fill(best, none);
            for (const bool recomputes : {false, true}) {
                const std::vector<Prices>& prices = recomputes ? again : keep;
                if (!prices.empty()) {
                    add_piece(piece, prices[piece], recomputes, before, best);
                }
            }
            std::swap(before, best);
        }
        return before.back();
    }

    /// The partition that `find` found.
    std::vector<PieceSum> pieces() const {
        std::vector<PieceSum> sums(pieces_);
        std::size_t spare = spare_;
        for (std::size_t piece = pieces_; piece-- > 0;) {
            const Choice& choice = of_piece_[piece * (spare_ + 1) + spare];
            sums[piece].again = choice.again;
            for (std::size_t layer = choice.from + piece; layer <= spare + piece; ++layer) {
                Layer& all = sums[piece].all;
                const Layer& one = layers_[layer];
                all.forward += one.forward;
                all.input += one.input;
                all.weight += one.weight;
                all.state += one.state;
                all.saved += one.saved;
                all.split += one.split;
            }
            spare = choice.from;
        }
        return sums;
    }

  private:
    struct Choice {
        std::uint32_t from = 0;  ///< spare layers before the piece
        bool again = false;
    };

    void add_piece(std::size_t piece,
                   const Prices& prices,
                   bool recomputes,
                   const std::vector<double>& before,
                   std::vector<double>& best) {
        double cost = none;
        std::uint32_t from = 0;
        for (std::size_t spare = 0; spare <= spare_; ++spare) {
            const double begun = before[spare] + prices.besides;
            if (begun < cost) {
                cost = begun;
                from = static_cast<std::uint32_t>(spare);
            }
            cost += prices.of(layers_[spare + piece]);
            if (cost < best[spare]) {
                best[spare] = cost;
                of_piece_[piece * (spare_ + 1) + spare] = {.from = from, .again = recomputes};
            }
        }
    }

    const std::vector<Layer>& layers_;
    std::size_t pieces_;
    std::size_t spare_;
    std::vector<Choice> of_piece_;
};

/// Looks for a mean of ways and for prices of memory that bound well.
class BestMean {
  public:
    BestMean(const OrderPaths& order, const PathsQuestion& question)
        : order_(order),
          question_(question),
          layers_(layers_of(question.sums)),
          cheapest_(layers_, as_index(order.pieces())),
          update_(static_cast<double>(question.sums.update.back().count()) / order.ranks) {
        if (question.memory) {
            room_ = static_cast<double>((order.ranks * *question.memory).count);
        }
    }

    /// Whether all ranks together have room for some partition, at each of the moments.
    bool has_room();

    double search(double ceiling);

  private:
    double find(const std::vector<double>& shares, const std::vector<double>& prices);
    double time_of(const MeanWay& way, const std::vector<PieceSum>& pieces) const;
    double memory_of(std::size_t moment, const std::vector<PieceSum>& pieces) const;
    void add_memory(
        Prices& prices, std::size_t piece, std::size_t moment, bool again, double price) const;

    const OrderPaths& order_;
    const PathsQuestion& question_;
    std::vector<Layer> layers_;
    CheapestPartition cheapest_;
    double update_;
    double room_ = 0;  ///< of all ranks
    std::vector<Prices> keep_{};
    std::vector<Prices> again_{};
};

void BestMean::add_memory(
    Prices& prices, std::size_t piece, std::size_t moment, bool again, double price) const {
    prices.state += price;
    if (!question_.stashes_on_device) {
        return;
    }
    const MeanStashes& of = order_.stashes[moment][piece];
    const double whole = again ? of.pending + of.next : of.live;
    prices.saved += price * whole;
    prices.split += price * of.pending;
    const Bytes input = piece == 0 ? std::min(question_.sums.input, question_.sums.least_boundary)
                                   : question_.sums.least_boundary;
    prices.besides += price * (of.live - whole) * static_cast<double>(input.count);
}

/// What no partition goes below with these shares of the ways and these prices of the moments, but
/// for the prices of the room.
double BestMean::find(const std::vector<double>& shares, const std::vector<double>& prices) {
    keep_.clear();
    again_.clear();
    for (std::size_t piece = 0; piece < as_index(order_.pieces()); ++piece) {
        Prices times;
        double recompute = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            const PieceCounts& of = order_.ways[i].of_piece[piece];
            times.forward += shares[i] * of.forward;
            times.input += shares[i] * of.input;
            times.weight += shares[i] * of.weight;
            recompute += shares[i] * (question_.keeps_last ? of.again_but_last : of.again);
        }
        for (const bool again : {false, true}) {
            if (again ? question_.may_recompute : question_.may_keep) {
                Prices& all = (again ? again_ : keep_).emplace_back(times);
                all.forward += again ? recompute : 0;
                for (std::size_t moment = 0; moment < prices.size(); ++moment) {
                    if (prices[moment] > 0) {
                        add_memory(all, piece, moment, again, prices[moment]);
                    }
                }
            }
        }
    }
    return cheapest_.find(keep_, again_);
}

bool BestMean::has_room() {
    if (!question_.memory) {
        return true;
    }
    for (std::size_t moment = 0; moment < order_.stashes.size(); ++moment) {
        std::vector<double> prices(order_.stashes.size());
        prices[moment] = 1;
        if (find({}, prices) > room_) {
            return false;
        }
    }
    return true;
}

double BestMean::time_of(const MeanWay& way, const std::vector<PieceSum>& pieces) const {
    double time = way.ends_with_update ? update_ : 0;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        const PieceCounts& of = way.of_piece[piece];
        const double again = !pieces[piece].again   ? 0
                             : question_.keeps_last ? of.again_but_last
                                                    : of.again;
        const Layer& all = pieces[piece].all;
        time += (of.forward + again) * all.forward + of.input * all.input + of.weight * all.weight;
    }
    return time;
}

double BestMean::memory_of(std::size_t moment, const std::vector<PieceSum>& pieces) const {
    double bytes = 0;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        Prices prices;
        add_memory(prices, piece, moment, pieces[piece].again, 1.0);
        bytes += prices.of(pieces[piece].all) + prices.besides;
    }
    return bytes;
}

/// Ascends: ways that take long with the partition found last get larger shares, and moments at
/// which its ranks lack memory higher prices, the less so the later.
double BestMean::search(double ceiling) {
    constexpr int turns = 24;
    constexpr double pace_of_shares = 4;
    constexpr double pace_of_prices = 0.5;
    std::vector<double> shares(order_.ways.size(), 1.0 / static_cast<double>(order_.ways.size()));
    std::vector<double> prices(question_.memory ? order_.stashes.size() : 0);
    std::vector<double> most(prices.size(), room_);  // [moment] what a partition found so far needs
    double best = 0;
    for (int turn = 0; turn < turns; ++turn) {
        double besides = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            besides += order_.ways[i].ends_with_update ? shares[i] * update_ : 0;
        }
        for (const double price : prices) {
            besides -= price * room_;
        }
        best = std::max(best, find(shares, prices) + besides);
        if (best >= ceiling) {
            break;
        }
        const std::vector<PieceSum> pieces = cheapest_.pieces();
        std::vector<double> times;
        double mean = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            times.push_back(time_of(order_.ways[i], pieces));
            mean += shares[i] * times.back();
        }
        const double pace = 1.0 / std::sqrt(1.0 + turn);
        double all = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            shares[i] *= std::exp(pace_of_shares * pace * (times[i] - mean) / mean);
            all += shares[i];
        }
        for (double& share : shares) {
            share /= all;
        }
        for (std::size_t moment = 0; moment < prices.size(); ++moment) {
            const double held = memory_of(moment, pieces);
            most[moment] = std::max(most[moment], held);
            const double lacks = std::clamp(held / room_ - 1, -1.0, 1.0);
            prices[moment] =
                std::max(0.0, prices[moment] + pace_of_prices * pace * lacks * mean / most[moment]);
        }
    }
    return best;
}

}  // namespace

std::optional<Duration> bound_of_paths(const OrderPaths& order,
                                       const PathsQuestion& question,
                                       Duration ceiling) {
    constexpr double rounding = 1 - 1e-9;
    BestMean mean(order, question);
    if (!mean.has_room()) {
        return std::nullopt;
    }
    const double bound = mean.search(static_cast<double>(ceiling.count()) / rounding) * rounding;
    return std::min(ceiling, Duration{static_cast<std::int64_t>(bound)});
}

}  // namespace pipetwin::sim
