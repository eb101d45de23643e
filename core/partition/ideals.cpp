// SPDX-License-Identifier: Apache-2.0
#include "core/partition/ideals.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/model/model.h"

namespace pipetwin {

std::optional<Ideals> Ideals::of(const Model& model, int most) {
    std::vector<std::vector<int>> inputs;
    inputs.reserve(as_index(model.layer_count()));
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        inputs.push_back(model.inputs_of(layer));
    }
    Ideals ideals(model.layer_count());
    ideals.words_.assign(ideals.words_per_ideal_, 0);
    ideals.sizes_.push_back(0);
    std::vector<int> behind{0};  // [ideal]: the layers that come after all of its own
    for (int ideal = 0; ideal < ideals.count(); ++ideal) {
        for (int layer = behind[as_index(ideal)]; layer < model.layer_count(); ++layer) {
            if (std::ranges::all_of(inputs[as_index(layer)],
                                    [&](int input) { return ideals.holds(ideal, input); })) {
                if (ideals.count() >= most) {
                    return std::nullopt;
                }
                ideals.append(ideal, layer);
                behind.push_back(layer + 1);
            }
        }
    }
    return ideals;
}

void Ideals::append(int ideal, int layer) {
    const std::size_t bit = as_index(layer);
    for (std::size_t word = 0; word < words_per_ideal_; ++word) {
        words_.push_back(words_[place(ideal) + word]);
    }
    words_[words_.size() - words_per_ideal_ + bit / 64] |= std::uint64_t{1} << (bit % 64);
    sizes_.push_back(size(ideal) + 1);
}

}  // namespace pipetwin
