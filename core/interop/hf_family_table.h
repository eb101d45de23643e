// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "core/interop/hf_families.h"

namespace pipetwin {

/// Rows that begin as a copy of another row.
class HfFamilyTable {
  public:
    template <class Change>
    const HfFamily& add(std::string_view type, const HfFamily& like, Change change) {
        HfFamily row = like;
        row.type = type;
        change(row);
        rows_.push_back(std::move(row));
        return rows_.back();
    }

    const HfFamily& add(std::string_view type, const HfFamily& like) {
        return add(type, like, [](HfFamily&) {});
    }

    std::vector<HfFamily> take() { return {rows_.begin(), rows_.end()}; }

  private:
    std::deque<HfFamily> rows_;  // rows stay where they are
};

/// Adds families whose blocks differ in more than a window, or are not of two halves. `llama` is
/// the row of Llama.
void add_hf_hybrids(HfFamilyTable& table, const HfFamily& llama);

}  // namespace pipetwin
