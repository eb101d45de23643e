// SPDX-License-Identifier: Apache-2.0
#include "exec/data/pairs/language_draw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "exec/data/shuffle.h"

namespace pipetwin::exec {

LanguageDraw::LanguageDraw(std::vector<std::uint64_t> sizes,
                           double temperature,
                           const RandomStream& random)
    : sizes_(std::move(sizes)), random_(random), times_(sizes_.size()) {
    PIPETWIN_EXPECT(!sizes_.empty() && temperature > 0, "languages, and a temperature above 0");
    double sum = 0;
    for (const std::uint64_t size : sizes_) {
        PIPETWIN_EXPECT(size > 0, "a language that is drawn has pairs");
        sum += std::pow(static_cast<double>(size), 1 / temperature);
        up_to_.push_back(sum);
    }
    for (double& bound : up_to_) {
        bound /= sum;
    }
}

std::vector<double> LanguageDraw::probabilities() const {
    std::vector<double> result(up_to_.size());
    double before = 0;
    for (std::size_t language = 0; language < up_to_.size(); ++language) {
        result[language] = up_to_[language] - before;
        before = up_to_[language];
    }
    return result;
}

std::size_t LanguageDraw::language_of(std::uint64_t draw) const {
    const auto found = std::ranges::upper_bound(up_to_, random_.uniform(draw));
    return std::min(static_cast<std::size_t>(found - up_to_.begin()), up_to_.size() - 1);
}

std::vector<LanguageDraw::Place> LanguageDraw::draws(std::uint64_t first,
                                                     std::uint64_t count) const {
    const std::lock_guard lock(mutex_);
    if (drawn_ > first) {
        drawn_ = 0;
        std::ranges::fill(times_, 0);
    }
    for (; drawn_ < first; ++drawn_) {
        ++times_[language_of(drawn_)];
    }
    std::vector<Place> places;
    for (; drawn_ < first + count; ++drawn_) {
        const std::size_t language = language_of(drawn_);
        const std::uint64_t size = sizes_[language];
        const std::uint64_t time = times_[language]++;
        const RandomStream order = random_.of(language).of(time / size);
        places.push_back({.language = language, .pair = Shuffle(order, size).at(time % size)});
    }
    return places;
}

}  // namespace pipetwin::exec
