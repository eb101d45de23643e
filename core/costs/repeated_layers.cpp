// SPDX-License-Identifier: Apache-2.0
#include "core/costs/repeated_layers.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/number_text.h"

namespace pipetwin {

namespace {

/// A group is a block of a transformer or a cell of a network, not half of a model.
constexpr int largest_group = 64;

bool same_bytes(const LayerSample& a, const LayerSample& b) {
    return a.micro_batch_size == b.micro_batch_size && a.output == b.output && a.saved == b.saved &&
           a.workspace == b.workspace && a.split == b.split;
}

using ascii::is_digit;

/// "block", ".attention" and 3 of "block3.attention", by comparison with "block4.attention".
struct CountedName {
    std::string_view before;
    std::int64_t number = 0;
    std::string_view after;
};

std::optional<std::int64_t> number_in(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool all = error == std::errc{} && end == text.data() + text.size();
    return all && !text.empty() && is_digit(text.front()) ? std::optional(number) : std::nullopt;
}

/// The name with the place of its number; none where the two names do not differ by 1 in one number
/// alone.
std::optional<CountedName> counted_name(std::string_view name, std::string_view next) {
    const std::size_t shorter = std::min(name.size(), next.size());
    std::size_t front = 0;
    while (front < shorter && name[front] == next[front]) {
        ++front;
    }
    while (front > 0 && is_digit(name[front - 1])) {
        --front;
    }
    std::size_t back = 0;
    while (back < shorter - front && name[name.size() - 1 - back] == next[next.size() - 1 - back]) {
        ++back;
    }
    while (back > 0 && is_digit(name[name.size() - back])) {
        --back;
    }
    const auto here = number_in(name.substr(front, name.size() - front - back));
    const auto there = number_in(next.substr(front, next.size() - front - back));
    if (!here || !there || *there != *here + 1) {
        return std::nullopt;
    }
    return CountedName{
        .before = name.substr(0, front), .number = *here, .after = name.substr(name.size() - back)};
}

/// Layers by number in place of name.
class Connections {
  public:
    explicit Connections(const Profile& profile) : inputs_(profile.layers.size()) {
        std::unordered_map<std::string_view, int> index;
        for (std::size_t i = 0; i < profile.layers.size(); ++i) {
            for (const std::string& name : profile.layers[i].inputs) {
                inputs_[i].push_back(index.at(name));
            }
            if (profile.layers[i].inputs.empty()) {
                inputs_[i].push_back(static_cast<int>(i) - 1);  // the first reads the model's own
            }
            index.emplace(profile.layers[i].name, static_cast<int>(i));
        }
    }

    const std::vector<int>& of(int layer) const { return inputs_[as_index(layer)]; }

    /// Whether both read what lies as far before them.
    bool alike(int layer, int other) const {
        return std::ranges::equal(
            of(layer),
            of(other),
            {},
            [layer](int input) { return layer - input; },
            [other](int input) { return other - input; });
    }

  private:
    std::vector<std::vector<int>> inputs_;
};

bool alike(const Profile& profile, const Connections& connections, int layer, int other) {
    const LayerCost& a = profile.layers[as_index(layer)];
    const LayerCost& b = profile.layers[as_index(other)];
    return a.kind == b.kind && a.parameter_bytes == b.parameter_bytes &&
           a.parameter_count == b.parameter_count && a.running_bytes == b.running_bytes &&
           a.whole_bytes == b.whole_bytes && a.frozen_bytes == b.frozen_bytes &&
           a.weight_copies == b.weight_copies && connections.alike(layer, other) &&
           std::ranges::equal(a.samples, b.samples, same_bytes);
}

}  // namespace

RepeatedLayers repeated_layers(const Profile& profile, std::string_view place) {
    const Connections connections(profile);
    const auto layers = static_cast<int>(profile.layers.size());
    RepeatedLayers best;
    for (int group = 1; group <= std::min(largest_group, layers / 2); ++group) {
        for (int first = 0; first + group < layers;) {
            int next = first;
            while (next + group < layers && alike(profile, connections, next, next + group)) {
                ++next;
            }
            const int copies = 1 + (next - first) / group;
            if (copies > 1 && copies * group > best.copies * best.group) {
                best = {.first = first, .group = group, .copies = copies};
            }
            first = next + 1;
        }
    }
    if (best.copies == 0) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    fmt::format("none of its {} is there twice in a row, so none can be "
                                "repeated more often",
                                counted(layers, "layer")),
                    "give the layer that should be repeated \"repeat\": 2 or more");
    }
    return best;
}

namespace {

/// A layer of the result is a copy of one of the profile.
struct Origin {
    int layer = 0;
    std::string name;
};

std::vector<Origin> origins(const Profile& profile, const RepeatedLayers& repeated, int copies) {
    const auto name_of = [&](int layer) -> const std::string& {
        return profile.layers[as_index(layer)].name;
    };
    std::vector<Origin> result;
    for (int layer = 0; layer < repeated.first; ++layer) {
        result.push_back({layer, name_of(layer)});
    }
    for (int copy = 0; copy < copies; ++copy) {
        for (int member = 0; member < repeated.group; ++member) {
            const int first = repeated.first + member;
            const int source = first + repeated.group * std::min(copy, repeated.copies - 1);
            if (copy < repeated.copies) {
                result.push_back({source, name_of(source)});
                continue;
            }
            const auto counted = counted_name(name_of(first), name_of(first + repeated.group));
            result.push_back(
                {source,
                 counted ? fmt::format(
                               "{}{}{}", counted->before, counted->number + copy, counted->after)
                         : fmt::format("{}, copy {}", name_of(source), copy)});
        }
    }
    for (int layer = repeated.end(); layer < static_cast<int>(profile.layers.size()); ++layer) {
        result.push_back({layer, name_of(layer)});
    }
    return result;
}

}  // namespace

Profile with_copies(const Profile& profile, const RepeatedLayers& repeated, int copies) {
    PIPETWIN_EXPECT(copies >= 1, "a model keeps one copy of what it repeats");
    const Connections connections(profile);
    const std::vector<Origin> layers = origins(profile, repeated, copies);
    Profile result = profile;
    result.layers.clear();
    if (copies != repeated.copies) {
        result.estimated_from = {};  // of another model
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const int source = layers[i].layer;
        LayerCost& layer = result.layers.emplace_back(profile.layers[as_index(source)]);
        layer.name = layers[i].name;
        if (layer.inputs.empty()) {
            continue;
        }
        // In front of the copies inputs keep their place, behind them and in them their distance.
        layer.inputs.clear();
        for (const int input : connections.of(source)) {
            const bool behind = source >= repeated.end();
            const int moved = static_cast<int>(i) - (source - input);
            const int place = behind && input < repeated.first ? input
                              : behind                         ? std::max(moved, repeated.first)
                                                               : moved;
            layer.inputs.push_back(layers.at(as_index(place)).name);
        }
    }
    return result;
}

std::vector<std::string> copy_names(const Profile& profile, const RepeatedLayers& repeated) {
    std::vector<std::string> names;
    for (int member = 0; member < repeated.group; ++member) {
        names.push_back(profile.layers[as_index(repeated.first + member)].name);
    }
    return names;
}

}  // namespace pipetwin
