// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/recompute.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

std::string_view to_string(Recompute recompute) {
    switch (recompute) {
        case Recompute::None:
            return "none";
        case Recompute::Always:
            return "always";
        case Recompute::ExceptLast:
            return "except-last";
    }
    PIPETWIN_EXPECT(false, "recompute mode out of range");
}

std::string_view to_string(LayerRecompute recompute) {
    switch (recompute) {
        case LayerRecompute::None:
            return "none";
        case LayerRecompute::Selective:
            return "selective";
        case LayerRecompute::Block:
            return "block";
    }
    PIPETWIN_EXPECT(false, "layer recompute out of range");
}

std::string_view to_string(RecomputeTiming timing) {
    switch (timing) {
        case RecomputeTiming::Eager:
            return "eager";
        case RecomputeTiming::Lazy:
            return "lazy";
    }
    PIPETWIN_EXPECT(false, "recompute timing out of range");
}

bool recomputes(Recompute recompute, int micro_batch, int micro_batches) {
    return recompute == Recompute::Always ||
           (recompute == Recompute::ExceptLast && micro_batch != micro_batches - 1);
}

RecomputeRules::RecomputeRules(std::vector<Recompute> of_piece) : of_piece_(std::move(of_piece)) {
    PIPETWIN_EXPECT(!of_piece_.empty(), "a mode for every piece");
    if (std::ranges::count(of_piece_, of_piece_.front()) == std::ssize(of_piece_)) {
        of_piece_.resize(1);
    }
}

Recompute RecomputeRules::of(int piece) const {
    return of_piece_.size() == 1 ? of_piece_.front() : of_piece_.at(as_index(piece));
}

std::optional<Recompute> RecomputeRules::everywhere() const {
    return of_piece_.size() == 1 ? std::optional(of_piece_.front()) : std::nullopt;
}

bool RecomputeRules::fits(int pieces) const {
    return of_piece_.size() == 1 || std::ssize(of_piece_) == pieces;
}

RecomputeRules RecomputeRules::at(int micro_batches) const {
    std::vector<Recompute> modes = of_piece_;
    if (micro_batches == 1) {
        std::ranges::replace(modes, Recompute::ExceptLast, Recompute::None);
    }
    return RecomputeRules(std::move(modes));
}

std::string to_string(const RecomputeRules& rules) {
    const std::vector<Recompute>& modes = rules.modes();
    if (modes.size() == 1) {
        return std::string(to_string(modes.front()));
    }
    std::string text;
    for (std::size_t first = 0; first < modes.size();) {
        std::size_t last = first;
        while (last + 1 < modes.size() && modes[last + 1] == modes[first]) {
            ++last;
        }
        const std::string stages = first == last ? fmt::format("stage {}", first)
                                                 : fmt::format("stages {}-{}", first, last);
        text +=
            fmt::format("{}{} on {}", text.empty() ? "" : ", ", to_string(modes[first]), stages);
        first = last + 1;
    }
    return text;
}

}  // namespace pipetwin
