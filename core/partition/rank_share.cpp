// SPDX-License-Identifier: Apache-2.0
#include "core/partition/rank_share.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

constexpr std::size_t values_tried = 9;
constexpr int most_tangents = 34;    ///< most often a few are enough
constexpr double precision = 1e-12;  ///< of what is least
constexpr double never_reached = std::numeric_limits<double>::infinity();
constexpr double rounding = 1 + 1e-9;  ///< by which a sum of doubles may be too small

double of_layer(const std::vector<std::int64_t>& before, int layer) {
    return static_cast<double>(before[as_index(layer + 1)] - before[as_index(layer)]);
}

/// All layers of a kind: what they are worth to a rank, their work, and the memory that they take.
struct Offer {
    double worth = 0;
    double work = 0;
    double memory = 0;
};

/// What is taken of offers: what it is worth, and the memory that it takes.
struct Taken {
    double worth = 0;
    double memory = 0;
};

/// What offers, each worth something, are worth at most that have so much work together, a part of
/// one among them.
Taken most_worth(std::vector<Offer>& offers, double work) {
    std::ranges::sort(
        offers, [](const Offer& a, const Offer& b) { return a.worth * b.work > b.worth * a.work; });
    Taken taken;
    for (const Offer& offer : offers) {
        const double part = offer.work > work ? work / offer.work : 1.0;
        taken.worth += part * offer.worth;
        taken.memory += part * offer.memory;
        work -= part * offer.work;
    }
    return taken;
}

/// A convex function's value at a place, and a slope that it is nowhere below.
struct Tangent {
    double at = 0;
    double value = 0;
    double slope = 0;
};

/// Where a convex function, made of a few lines, is least from the place of one tangent to that of
/// another: the next place is where the two tangents meet, which the function is above.
template <class Function>
Tangent least_between(Tangent low, Tangent high, const Function& function) {
    Tangent best = low.value < high.value ? low : high;
    for (int tried = 0; tried < most_tangents && low.slope < 0 && high.slope > 0; ++tried) {
        const double by =
            (high.value - low.value - high.slope * (high.at - low.at)) / (low.slope - high.slope);
        const double at_least = low.value + low.slope * by;
        if (!(by > 0 && low.at + by < high.at) || at_least > best.value * (1 - precision)) {
            break;
        }
        const Tangent next = function(low.at + by);
        best = next.value < best.value ? next : best;
        (next.slope < 0 ? low : high) = next;
    }
    return best;
}

/// What the rank has of a quantity whatever its layers. Before piece i lie i layers at least.
std::int64_t besides(const RankQuantity& quantity, const std::vector<int>& pieces, int rank) {
    std::int64_t sum = quantity.fixed.empty() ? 0 : quantity.fixed[as_index(rank)];
    if (!quantity.delay.empty()) {
        sum += quantity.delay[as_index(pieces.front())];
    }
    if (!quantity.second_delay.empty() && pieces.size() > 1) {
        sum += quantity.second_delay[as_index(pieces[1])];
    }
    return sum;
}

}  // namespace

RankShare::RankShare(const RankChain& chain) : chain_(chain) {
    pieces_of_rank_.resize(as_index(chain.ranks()));
    for (int piece = 0; piece < chain.pieces(); ++piece) {
        pieces_of_rank_[as_index(chain.rank_of_piece[as_index(piece)])].push_back(piece);
    }
    find_kinds();
    const bool has_alternatives = std::ranges::any_of(
        chain.quantities, [](const RankQuantity& quantity) { return quantity.alternative >= 0; });
    for (int rank = 0; rank < chain.ranks(); ++rank) {
        std::vector<Alternative>& of_rank =
            ranks_.emplace_back(has_alternatives ? 2 : 1, Alternative{});
        for (const RankQuantity& quantity : chain.quantities) {
            for (std::size_t i = 0; i < of_rank.size(); ++i) {
                if (quantity.alternative < 0 || as_index(quantity.alternative) == i) {
                    of_rank[i].rooms.push_back(room_of(quantity, rank));
                }
            }
        }
    }
    find_values();
}

/// Layers of one kind are alike in every quantity, in every piece.
void RankShare::find_kinds() {
    std::map<std::vector<std::int64_t>, std::size_t> known;
    for (int layer = 0; layer < chain_.layers; ++layer) {
        std::vector<std::int64_t> amounts;
        for (const RankQuantity& quantity : chain_.quantities) {
            for (const std::vector<std::int64_t>& before : quantity.before) {
                amounts.push_back(before[as_index(layer + 1)] - before[as_index(layer)]);
            }
        }
        const auto [entry, is_new] = known.try_emplace(std::move(amounts), kinds_.size());
        if (is_new) {
            kinds_.emplace_back();
            first_layer_of_kind_.push_back(layer);
        }
        ++kinds_[entry->second].count;
    }
}

RankShare::Room RankShare::room_of(const RankQuantity& quantity, int rank) const {
    const std::vector<int>& pieces = pieces_of_rank_[as_index(rank)];
    Room room{.of_kind = {}, .least = {}, .is_asked = quantity.limits.empty()};
    const std::int64_t limit = room.is_asked ? 0 : quantity.limits[as_index(rank)];
    room.limit = static_cast<double>(limit) - static_cast<double>(besides(quantity, pieces, rank));
    // Pieces of one kind are alike; more than one kind is listed piece by piece.
    const std::size_t listed = quantity.before.size() == 1 ? 1 : pieces.size();
    for (std::size_t i = 0; i < listed; ++i) {
        const std::vector<std::int64_t>& before = quantity.sums_of(pieces[i]);
        for (const int layer : first_layer_of_kind_) {
            room.of_kind.push_back(of_layer(before, layer));
        }
    }
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        double least = room.of_kind[kind];
        for (std::size_t i = kind; i < room.of_kind.size(); i += kinds_.size()) {
            least = std::min(least, room.of_kind[i]);
        }
        room.least.push_back(least);
    }
    return room;
}

/// Values between the share of the first quantity and the share of the memory: of what is held
/// most.
void RankShare::find_values() {
    const RankQuantity& work = chain_.quantities.front();
    const RankQuantity* held = nullptr;
    for (const RankQuantity& quantity : chain_.quantities) {
        if (!quantity.limits.empty() &&
            (held == nullptr || quantity.before.front().back() > held->before.front().back())) {
            held = &quantity;
        }
    }
    const std::size_t tried = held == nullptr ? 1 : values_tried;
    const auto share = [&](const RankQuantity& quantity, int layer) {
        const auto all = static_cast<double>(quantity.before.front().back());
        return all > 0 ? of_layer(quantity.before.front(), layer) / all : 0.0;
    };
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        const int layer = first_layer_of_kind_[kind];
        for (std::size_t i = 0; i < tried; ++i) {
            const double part =
                tried == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(tried - 1);
            const double of_memory = held == nullptr ? 0.0 : share(*held, layer);
            kinds_[kind].worth.push_back((1 - part) * share(work, layer) + part * of_memory);
        }
    }
}

/// What the layers of a rank are worth at most that keeps both limits.
double RankShare::worth_of(const Room& work,
                           const Room* memory,
                           std::int64_t limit,
                           std::size_t values,
                           Factor factor,
                           double& last) const {
    const double work_limit = work.limit + static_cast<double>(limit);
    const std::size_t kinds = kinds_.size();
    const std::size_t pieces =
        std::max(work.of_kind.size(), memory == nullptr ? 0 : memory->of_kind.size()) / kinds;
    const auto at = [&](const Room& room, std::size_t piece, std::size_t kind) {
        return room.of_kind[room.of_kind.size() == kinds ? kind : piece * kinds + kind];
    };
    // With a factor of the memory, each kind is worth what is left of it on the piece where it
    // holds least; then the rank takes what is worth most for its work, but no more than there is.
    const bool work_is_alike = work.of_kind.size() == kinds;
    std::vector<Offer> offers;
    const auto worth_of_offers = [&](double of_memory) {
        offers.clear();
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            const double held = memory == nullptr ? 0 : memory->least[kind];
            const double most = kinds_[kind].worth[values] - of_memory * held;
            if (most > 0) {
                offers.push_back({.worth = kinds_[kind].count * most,
                                  .work = kinds_[kind].count * work.of_kind[kind],
                                  .memory = kinds_[kind].count * held});
            }
        }
        return most_worth(offers, work_limit);
    };
    // The least factor of the work with that factor of the memory, times the limit of the work.
    const auto of_work = [&](double of_memory) {
        double least = 0;
        double slope = 0;
        for (std::size_t piece = 0; piece < pieces; ++piece) {
            for (std::size_t kind = 0; kind < kinds; ++kind) {
                const double held = memory == nullptr ? 0 : at(*memory, piece, kind);
                const double left = kinds_[kind].worth[values] - of_memory * held;
                const double has = at(work, piece, kind);
                if (left > 0 && has <= 0) {
                    return Taken{.worth = never_reached, .memory = held};
                }
                if (left > 0 && left > least * has) {
                    least = left / has;
                    slope = held / has;
                }
            }
        }
        return Taken{.worth = least * work_limit, .memory = slope * work_limit};
    };
    const auto worth = [&](double of_memory) {
        const Taken taken = work_is_alike ? worth_of_offers(of_memory) : of_work(of_memory);
        const double room = memory == nullptr ? 0 : memory->limit;
        return Tangent{
            .at = of_memory, .value = taken.worth + of_memory * room, .slope = room - taken.memory};
    };
    if (memory == nullptr) {
        return worth(0).value;
    }
    if (factor == Factor::Last && last >= 0) {
        return worth(last).value;
    }
    double low = 0;   // below it a layer without work is worth something
    double high = 0;  // from there on the memory alone bounds every layer that has some
    for (std::size_t piece = 0; piece < pieces; ++piece) {
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            const double held = at(*memory, piece, kind);
            if (held > 0) {
                const double alone = kinds_[kind].worth[values] / held;
                high = std::max(high, alone);
                low = work_is_alike || at(work, piece, kind) > 0 ? low : std::max(low, alone);
            }
        }
    }
    Tangent first = worth(low);
    if (first.value == never_reached) {  // by rounding, or whatever the memory
        first = worth(low * rounding);
    }
    const Tangent best =
        first.value == never_reached ? first : least_between(first, worth(high * rounding), worth);
    last = best.value < never_reached ? best.at : last;
    return best.value;
}

double RankShare::worth_of(const Alternative& of,
                           std::int64_t limit,
                           std::size_t values,
                           Factor factor,
                           std::vector<double>& last) const {
    double least = never_reached;
    for (const Room& work : of.rooms) {
        if (work.limit + (work.is_asked ? static_cast<double>(limit) : 0.0) < 0) {
            return -1;  // which no rank keeps
        }
    }
    const std::size_t rooms = of.rooms.size();
    last.resize(rooms * rooms, -1);
    for (std::size_t i = 0; i < rooms; ++i) {
        const Room& work = of.rooms[i];
        if (!work.is_asked) {
            continue;
        }
        least =
            std::min(least, worth_of(work, nullptr, limit, values, factor, last[i * rooms + i]));
        for (std::size_t j = 0; j < rooms; ++j) {
            const Room& memory = of.rooms[j];
            if (!memory.is_asked) {
                double& of_pair = last[i * rooms + j];
                least = std::min(least, worth_of(work, &memory, limit, values, factor, of_pair));
            }
        }
    }
    return least;
}

/// Whether all ranks together may reach the sum of these values.
bool RankShare::reach(std::int64_t limit, std::size_t values, Factor factor) {
    double all = 0;
    for (const Kind& kind : kinds_) {
        all += kind.count * kind.worth[values];
    }
    double ranks = 0;
    for (const std::vector<Alternative>& of_rank : ranks_) {
        last_factors_[values].resize(of_rank.size());
        double most = -1;
        for (std::size_t i = 0; i < of_rank.size(); ++i) {
            most = std::max(most,
                            worth_of(of_rank[i], limit, values, factor, last_factors_[values][i]));
        }
        if (most < 0) {
            return false;
        }
        ranks += most;
        if (ranks * rounding >= all) {
            return true;
        }
    }
    return false;
}

bool RankShare::keeps(std::int64_t limit) {
    const std::size_t tried = kinds_.front().worth.size();
    last_factors_.resize(tried);
    for (std::size_t i = 0; i < tried; ++i) {
        const std::size_t values = (first_tried_ + i) % tried;
        if (!reach(limit, values, Factor::Last) || !reach(limit, values, Factor::Best)) {
            first_tried_ = values;
            return false;
        }
    }
    return true;
}

double RankShare::steps() const {
    double rooms = 0;
    for (const std::vector<Alternative>& of_rank : ranks_) {
        for (const Alternative& alternative : of_rank) {
            for (const Room& room : alternative.rooms) {
                rooms += static_cast<double>(room.of_kind.size());
            }
        }
    }
    return rooms * most_tangents * static_cast<double>(kinds_.front().worth.size());
}

}  // namespace pipetwin
