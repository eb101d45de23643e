// SPDX-License-Identifier: Apache-2.0
#include "core/partition/model_blocks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

/// "block12.attention" is "block" and "12"; both are empty for a name without such a number.
struct NumberedName {
    std::string_view name;
    std::string_view number;

    bool operator==(const NumberedName&) const = default;
};

NumberedName numbered(std::string_view layer) {
    constexpr std::string_view digits = "0123456789";
    const std::size_t begin = layer.find_first_of(digits);
    if (begin == std::string_view::npos) {
        return {};
    }
    const std::size_t end = std::min(layer.find_first_not_of(digits, begin), layer.size());
    const bool ends_there = end == layer.size() || layer[end] == '.';
    return ends_there ? NumberedName{layer.substr(0, begin), layer.substr(begin, end - begin)}
                      : NumberedName{};
}

/// Layers that follow each other under one name, block after block.
struct Region {
    ModelBlocks blocks;
    bool is_whole = true;  ///< no other layer stands inside, and no number comes twice
};

std::map<std::string_view, Region> regions_of(std::span<const std::string> layer_names) {
    std::map<std::string_view, Region> regions;
    NumberedName before;
    int end = 0;
    for (const std::string& layer : layer_names) {
        const NumberedName name = numbered(layer);
        const int index = end++;
        if (!name.number.empty()) {
            const auto [entry, is_new] = regions.try_emplace(name.name);
            Region& region = entry->second;
            const int blocks = region.blocks.count();
            if (is_new) {
                region.blocks.before = index;
            } else {
                region.is_whole = region.is_whole && before.name == name.name;
            }
            if (name == before) {
                ++region.blocks.layers.back();
            } else {
                region.is_whole = region.is_whole && name.number == std::to_string(blocks);
                region.blocks.layers.push_back(1);
            }
            region.blocks.after = static_cast<int>(layer_names.size()) - end;
        }
        before = name;
    }
    return regions;
}

}  // namespace

std::optional<ModelBlocks> model_blocks(std::span<const std::string> layer_names) {
    std::optional<ModelBlocks> best;
    bool is_only = true;
    for (const auto& [name, region] : regions_of(layer_names)) {
        if (!region.is_whole) {
            continue;
        }
        const int most = best ? best->count() : 0;
        is_only = region.blocks.count() > most || (is_only && region.blocks.count() < most);
        if (region.blocks.count() > most) {
            best = region.blocks;
        }
    }
    const bool says_nothing =
        best && best->before + best->after == 0 && best->count() == std::ssize(layer_names);
    return is_only && !says_nothing ? best : std::nullopt;
}

std::vector<int> neighbours_of_one_name(std::span<const std::string> layer_names) {
    std::vector<int> runs;
    NumberedName before;
    for (const std::string& layer : layer_names) {
        const NumberedName name = numbered(layer);
        if (!name.number.empty() && name == before) {
            ++runs.back();
        } else {
            runs.push_back(1);
        }
        before = name;
    }
    return runs;
}

std::optional<std::vector<int>> layers_of_blocks(const ModelBlocks& blocks,
                                                 std::span<const int> blocks_per_piece) {
    const auto sum =
        std::accumulate(blocks_per_piece.begin(), blocks_per_piece.end(), std::int64_t{0});
    const bool is_negative = std::ranges::any_of(blocks_per_piece, [](int n) { return n < 0; });
    if (blocks_per_piece.empty() || is_negative || sum != blocks.count()) {
        return std::nullopt;
    }
    std::vector<int> layers;
    auto block = blocks.layers.begin();
    for (const int count : blocks_per_piece) {
        layers.push_back(std::accumulate(block, block + count, 0));
        block += count;
    }
    layers.front() += blocks.before;
    layers.back() += blocks.after;
    const bool all_hold_layers = std::ranges::all_of(layers, [](int n) { return n > 0; });
    return all_hold_layers ? std::optional(std::move(layers)) : std::nullopt;
}

}  // namespace pipetwin
