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

/// Adds families in which some blocks have Mamba-2 in place of attention. `granite`: the row of
/// Granite with experts that all tokens go through.
void add_hf_mamba_blocks(HfFamilyTable& table, const HfFamily& llama, const HfFamily& granite);

/// Adds families whose blocks have attentions of several sizes. `gemma3`: the row of Gemma 3.
void add_hf_mixed_heads(HfFamilyTable& table, const HfFamily& llama, const HfFamily& gemma3);

/// Adds families with DeepSeek-V3's experts and attentions of several kinds. `v3`: its row.
void add_hf_compressed(HfFamilyTable& table, const HfFamily& v3);

/// Adds families in which several blocks share an indexer's choice. `v32`: the row of
/// DeepSeek-V3.2.
void add_hf_shared_indexers(HfFamilyTable& table, const HfFamily& v32);

/// Whether each block's entry in a list of words is `word`. Throws Error(BadInput) for a list that
/// is not one word of `words` per block.
std::vector<bool> hf_blocks_of_word(const HfConfig& config,
                                    std::string_view key,
                                    int blocks,
                                    std::string_view word,
                                    const std::vector<std::string_view>& words);

}  // namespace pipetwin
