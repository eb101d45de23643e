// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/paths_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/as_index.h"

namespace pipetwin::sim {

namespace {

constexpr double none = std::numeric_limits<double>::infinity();
constexpr double rounded_down = 1 - 1e-9;  ///< of a bound, by its sums of doubles

/// A number for each thing of which layers have some: how much a layer has, or what it costs.
struct LayerParts {
    double forward = 0;  ///< nanoseconds, as the next two
    double input = 0;
    double weight = 0;
    double state = 0;  ///< bytes, as the next two
    double saved = 0;
    double split = 0;

    bool operator==(const LayerParts&) const = default;

    void add(const LayerParts& other, double times = 1) {
        forward += times * other.forward;
        input += times * other.input;
        weight += times * other.weight;
        state += times * other.state;
        saved += times * other.saved;
        split += times * other.split;
    }
};

/// What parts cost at these prices.
double cost_of(const LayerParts& parts, const LayerParts& prices) {
    return prices.forward * parts.forward + prices.input * parts.input +
           prices.weight * parts.weight + prices.state * parts.state + prices.saved * parts.saved +
           prices.split * parts.split;
}

LayerParts parts_of(const LayerSums& sums, std::size_t layer) {
    const auto time = [layer](const std::vector<Duration>& of) {
        return static_cast<double>((of[layer + 1] - of[layer]).count());
    };
    const auto bytes = [layer](const std::vector<Bytes>& of) {
        return static_cast<double>((of[layer + 1] - of[layer]).count);
    };
    return {.forward = time(sums.forward),
            .input = time(sums.backward_input),
            .weight = time(sums.backward_weight),
            .state = bytes(sums.state),
            .saved = bytes(sums.saved),
            .split = bytes(sums.split)};
}

/// The layers of a model: which are alike, and what the first ones have together.
class Layers {
  public:
    explicit Layers(const LayerSums& sums) {
        for (std::size_t layer = 0; layer < as_index(sums.layers()); ++layer) {
            const LayerParts parts = parts_of(sums, layer);
            const auto known = std::ranges::find(kinds_, parts);
            kind_of_layer_.push_back(static_cast<std::size_t>(known - kinds_.begin()));
            if (known == kinds_.end()) {
                kinds_.push_back(parts);
            }
            before_.emplace_back(before_.back()).add(parts);
        }
    }

    std::size_t size() const { return kind_of_layer_.size(); }
    const std::vector<LayerParts>& kinds() const { return kinds_; }
    std::size_t kind_of(std::size_t layer) const { return kind_of_layer_[layer]; }
    LayerParts sum(std::size_t first, std::size_t end) const {
        LayerParts all = before_[end];
        all.add(before_[first], -1);
        return all;
    }

  private:
    std::vector<LayerParts> kinds_{};
    std::vector<std::size_t> kind_of_layer_{};
    std::vector<LayerParts> before_ = std::vector<LayerParts>(1);
};

/// What a piece costs: each of its layers by its parts, and what the piece costs besides.
struct PiecePrices {
    LayerParts of_layers{};
    double besides = 0;
};

/// What the layers of one piece add up to.
struct PieceSum {
    LayerParts all{};
    Recompute recompute = Recompute::None;
};

/// The prices of all pieces, [piece], where each recomputes the same.
struct PricesOfPieces {
    Recompute recompute = Recompute::None;
    std::vector<PiecePrices> prices{};
};

/// The partition that costs least, piece by piece, none empty.
class CheapestPartition {
  public:
    CheapestPartition(const Layers& layers, std::size_t pieces)
        : layers_(layers),
          pieces_(pieces),
          spare_(layers.size() - pieces),
          of_kind_(layers.kinds().size()),
          of_piece_(pieces * (spare_ + 1)) {}

    /// `ways`: what each piece chooses from.
    double find(const std::vector<PricesOfPieces>& ways) {
        before_.assign(spare_ + 1, none);
        before_.front() = 0;
        best_.resize(spare_ + 1);
        for (std::size_t piece = 0; piece < pieces_; ++piece) {
            std::ranges::fill(best_, none);
            for (const PricesOfPieces& way : ways) {
                add_piece(piece, way.prices[piece], way.recompute);
            }
            std::swap(before_, best_);
        }
        return before_.back();
    }

    /// The partition that `find` found.
    void read(std::vector<PieceSum>& sums) const {
        sums.resize(pieces_);
        std::size_t spare = spare_;
        for (std::size_t piece = pieces_; piece-- > 0;) {
            const Choice& choice = of_piece_[piece * (spare_ + 1) + spare];
            sums[piece] = {.all = layers_.sum(choice.from + piece, spare + piece + 1),
                           .recompute = choice.recompute};
            spare = choice.from;
        }
    }

  private:
    struct Choice {
        std::uint32_t from = 0;  ///< spare layers before the piece
        Recompute recompute = Recompute::None;
    };

    void add_piece(std::size_t piece, const PiecePrices& prices, Recompute recompute) {
        for (std::size_t kind = 0; kind < of_kind_.size(); ++kind) {
            of_kind_[kind] = cost_of(layers_.kinds()[kind], prices.of_layers);
        }
        Choice* const choices = &of_piece_[piece * (spare_ + 1)];
        double cost = none;
        std::uint32_t from = 0;
        for (std::size_t spare = 0; spare <= spare_; ++spare) {
            const double begun = before_[spare] + prices.besides;
            if (begun < cost) {
                cost = begun;
                from = static_cast<std::uint32_t>(spare);
            }
            cost += of_kind_[layers_.kind_of(spare + piece)];
            if (cost < best_[spare]) {
                best_[spare] = cost;
                choices[spare] = {.from = from, .recompute = recompute};
            }
        }
    }

    const Layers& layers_;
    std::size_t pieces_;
    std::size_t spare_;
    std::vector<double> of_kind_;   ///< what a layer of the kind costs in a piece
    std::vector<double> before_{};  ///< [layers beyond one for each piece]: all pieces before one
    std::vector<double> best_{};    ///< with that one
    std::vector<Choice> of_piece_;
};

/// Forwards of a piece that a way meets again.
double again_of(const PieceCounts& of, Recompute recompute) {
    return recompute == Recompute::None     ? 0
           : recompute == Recompute::Always ? of.again
                                            : of.again_but_last;
}

/// Looks for a mean of ways and for prices of memory that bound well.
class BestMean {
  public:
    BestMean(const OrderPaths& order, const PathsQuestion& question)
        : order_(order),
          question_(question),
          layers_(question.sums),
          cheapest_(layers_, as_index(order.pieces())),
          update_(static_cast<double>(question.sums.update.back().count()) / order.ranks) {
        for (const Recompute recompute : question.recomputes) {
            prices_.push_back({.recompute = recompute,
                               .prices = std::vector<PiecePrices>(as_index(order.pieces()))});
        }
        if (question.memory) {
            room_ = static_cast<double>((order.ranks * *question.memory).count);
        }
    }

    /// Whether all ranks together have room for some partition, at each of the moments.
    bool has_room();

    /// None where there is no room for any partition.
    std::optional<double> search(const WaysSearch& search);

  private:
    double find(const std::vector<double>& shares, const std::vector<double>& prices);
    void add_counts(const std::vector<PieceCounts>& part, double share);
    void find_times(const std::vector<PieceSum>& pieces);
    double time_of(const std::vector<PieceCounts>& part, const std::vector<PieceSum>& pieces) const;
    double update_of(const OrderPaths::Way& way) const {
        return order_.ends_with_update(way) ? update_ : 0;
    }
    double memory_of(std::size_t moment, const std::vector<PieceSum>& pieces) const;
    void add_memory(PiecePrices& prices,
                    std::size_t piece,
                    std::size_t moment,
                    Recompute recompute,
                    double price) const;

    const OrderPaths& order_;
    const PathsQuestion& question_;
    Layers layers_;
    CheapestPartition cheapest_;
    double update_;
    double room_ = 0;  ///< of all ranks
    std::vector<PieceCounts> mean_{};
    std::vector<PricesOfPieces> prices_{};  ///< of each way of recompute
    std::vector<double> times_{};           ///< [way]
};

void BestMean::add_memory(PiecePrices& prices,
                          std::size_t piece,
                          std::size_t moment,
                          Recompute recompute,
                          double price) const {
    prices.of_layers.state += price;
    if (!question_.stashes_on_device) {
        return;
    }
    const MeanStashes& of = order_.stashes[moment][piece];
    const bool keeps_last = recompute == Recompute::ExceptLast;
    const double last = keeps_last && question_.counts_last ? of.last : 0;
    // What is kept of the last one may be less than its input.
    const double uncounted = keeps_last && !question_.counts_last ? of.last : 0;
    const double whole = recompute == Recompute::None ? of.live : of.pending + of.next + last;
    prices.of_layers.saved += price * whole;
    prices.of_layers.split += price * of.pending;
    const Bytes input = piece == 0 ? std::min(question_.sums.input, question_.sums.least_boundary)
                                   : question_.sums.least_boundary;
    prices.besides += price * (of.live - whole - uncounted) * static_cast<double>(input.count);
}

void BestMean::add_counts(const std::vector<PieceCounts>& part, double share) {
    if (share == 0) {
        return;
    }
    for (std::size_t piece = 0; piece < mean_.size(); ++piece) {
        PieceCounts& of = mean_[piece];
        of.forward += share * part[piece].forward;
        of.input += share * part[piece].input;
        of.weight += share * part[piece].weight;
        of.again += share * part[piece].again;
        of.again_but_last += share * part[piece].again_but_last;
    }
}

/// What no partition goes below with these shares of the ways and these prices of the moments, but
/// for the prices of the room.
double BestMean::find(const std::vector<double>& shares, const std::vector<double>& prices) {
    mean_.assign(as_index(order_.pieces()), {});
    std::vector<double> of_begin(order_.begins.size());
    std::vector<double> of_end(order_.ends.size());
    for (std::size_t i = 0; i < shares.size(); ++i) {
        of_begin[order_.ways[i].from] += shares[i];
        of_end[order_.ways[i].to] += shares[i];
    }
    for (std::size_t i = 0; i < of_begin.size(); ++i) {
        add_counts(order_.begins[i], of_begin[i]);
        add_counts(order_.ends[i], of_end[i]);
    }
    for (PricesOfPieces& way : prices_) {
        for (std::size_t piece = 0; piece < mean_.size(); ++piece) {
            const PieceCounts& of = mean_[piece];
            PiecePrices& all = way.prices[piece];
            all = {.of_layers = {.forward = of.forward + again_of(of, way.recompute),
                                 .input = of.input,
                                 .weight = of.weight}};
            for (std::size_t moment = 0; moment < prices.size(); ++moment) {
                if (prices[moment] > 0) {
                    add_memory(all, piece, moment, way.recompute, prices[moment]);
                }
            }
        }
    }
    return cheapest_.find(prices_);
}

bool BestMean::has_room() {
    if (!question_.memory) {
        return true;
    }
    std::vector<double> prices(order_.stashes.size());
    for (std::size_t moment = 0; moment < order_.stashes.size(); ++moment) {
        prices[moment] = 1;
        if (find({}, prices) * rounded_down > room_) {
            return false;
        }
        prices[moment] = 0;
    }
    return true;
}

double BestMean::time_of(const std::vector<PieceCounts>& part,
                         const std::vector<PieceSum>& pieces) const {
    double time = 0;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        const PieceCounts& of = part[piece];
        const double again = again_of(of, pieces[piece].recompute);
        const LayerParts& all = pieces[piece].all;
        time += (of.forward + again) * all.forward + of.input * all.input + of.weight * all.weight;
    }
    return time;
}

void BestMean::find_times(const std::vector<PieceSum>& pieces) {
    std::vector<double> to_begin;
    std::vector<double> from_end;
    for (std::size_t i = 0; i < order_.begins.size(); ++i) {
        to_begin.push_back(time_of(order_.begins[i], pieces));
        from_end.push_back(time_of(order_.ends[i], pieces));
    }
    times_.clear();
    for (const OrderPaths::Way& way : order_.ways) {
        times_.push_back(to_begin[way.from] + from_end[way.to] + update_of(way));
    }
}

double BestMean::memory_of(std::size_t moment, const std::vector<PieceSum>& pieces) const {
    double bytes = 0;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        PiecePrices prices;
        add_memory(prices, piece, moment, pieces[piece].recompute, 1.0);
        bytes += cost_of(pieces[piece].all, prices.of_layers) + prices.besides;
    }
    return bytes;
}

/// Ascends: ways that take long with the partition found last get larger shares, and moments at
/// which its ranks lack memory higher prices, the less so the later.
std::optional<double> BestMean::search(const WaysSearch& search) {
    constexpr double pace_of_shares = 4;
    constexpr double pace_of_prices = 0.5;
    const double ceiling = static_cast<double>(search.ceiling.count()) / rounded_down;
    const double enough = static_cast<double>(search.enough.count()) / rounded_down;
    std::vector<double> shares(order_.ways.size(), 1.0 / static_cast<double>(order_.ways.size()));
    std::vector<double> prices(question_.memory ? order_.stashes.size() : 0);
    if (search.from != nullptr && search.from->shares.size() == shares.size()) {
        shares = search.from->shares;
        if (search.from->prices.size() == prices.size()) {
            prices = search.from->prices;
        }
    }
    WaysAndPrices found;
    std::vector<double> most(prices.size(), room_);  // [moment] what a partition found so far needs
    std::vector<PieceSum> pieces;
    double best = 0;
    for (int turn = 0; turn < search.turns; ++turn) {
        double besides = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            besides += shares[i] * update_of(order_.ways[i]);
        }
        for (const double price : prices) {
            besides -= price * room_;
        }
        const double bound = find(shares, prices) + besides;
        if (bound > best) {
            best = bound;
            found = {.shares = shares, .prices = prices};
        }
        if (best >= ceiling || best >= enough) {
            break;
        }
        // Asked only here, as it takes longer than a turn.
        if (turn == 0 && !has_room()) {
            return std::nullopt;
        }
        if (turn + 1 == search.turns) {
            break;
        }
        if (turn == 0) {  // `has_room` has overwritten its partition
            find(shares, prices);
        }
        cheapest_.read(pieces);
        find_times(pieces);
        double mean = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            mean += shares[i] * times_[i];
        }
        const double pace = 1.0 / std::sqrt(1.0 + turn);
        double all = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) {
            shares[i] *= std::exp(pace_of_shares * pace * (times_[i] - mean) / mean);
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
    if (search.from != nullptr && best > 0) {
        *search.from = std::move(found);
    }
    return best;
}

}  // namespace

std::optional<Duration> bound_of_paths(const OrderPaths& order,
                                       const PathsQuestion& question,
                                       const WaysSearch& search) {
    BestMean mean(order, question);
    const std::optional<double> bound = mean.search(search);
    if (!bound) {
        return std::nullopt;
    }
    return std::min(search.ceiling, Duration{static_cast<std::int64_t>(*bound * rounded_down)});
}

}  // namespace pipetwin::sim
