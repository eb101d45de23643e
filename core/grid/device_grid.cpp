// SPDX-License-Identifier: Apache-2.0
#include "core/grid/device_grid.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

std::string_view word_of(Axis axis) {
    return axis_words.at(as_index(static_cast<int>(axis)));
}

/// The words of a text between hyphens.
std::vector<std::string_view> words_between_hyphens(std::string_view text) {
    std::vector<std::string_view> words;
    while (true) {
        const std::size_t end = text.find('-');
        words.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return words;
        }
        text.remove_prefix(end + 1);
    }
}

/// The axes that the words name, each once, at its first place.
std::vector<Axis> named_axes(const std::vector<std::string_view>& words) {
    std::vector<Axis> axes;
    for (const std::string_view word : words) {
        const auto found = std::ranges::find(axis_words, word);
        if (found != axis_words.end()) {
            const auto axis = static_cast<Axis>(found - axis_words.begin());
            if (std::ranges::find(axes, axis) == axes.end()) {
                axes.push_back(axis);
            }
        }
    }
    return axes;
}

/// An order of all axes: missing ones stand before the first that follows them by default.
AxisOrder completed(std::vector<Axis> axes) {
    for (const Axis axis : pipeline_last) {
        if (std::ranges::find(axes, axis) == axes.end()) {
            axes.insert(std::ranges::find_if(axes, [axis](Axis other) { return other > axis; }),
                        axis);
        }
    }
    AxisOrder order{};
    std::ranges::copy(axes, order.begin());
    return order;
}

}  // namespace

std::string to_string(const AxisOrder& order) {
    std::vector<std::string_view> words;
    std::ranges::transform(order, std::back_inserter(words), word_of);
    return fmt::format("{}", fmt::join(words, "-"));
}

AxisOrder parse_axis_order(std::string_view text, const std::string& place) {
    const std::vector<std::string_view> words = words_between_hyphens(text);
    const std::vector<Axis> axes = named_axes(words);
    const AxisOrder order = completed(axes);
    if (words.size() != axis_count || axes.size() != axis_count) {
        throw Error(
            ErrorKind::BadInput,
            place,
            fmt::format("pipeline.order = \"{}\", expected each of {} once, the one along which "
                        "neighbours lie first",
                        text,
                        fmt::join(axis_words, ", ")),
            {"set {}", {{"pipeline.order", fmt::format("\"{}\"", to_string(order))}}})
            .about("pipeline.order");
    }
    return order;
}

DeviceGrid::DeviceGrid(const AxisSizes& sizes, const AxisOrder& order)
    : sizes_(sizes), order_(order) {
    std::int64_t stride = 1;
    for (const Axis axis : order_) {
        PIPETWIN_EXPECT(sizes_[axis] >= 1, "an axis has at least one device");
        strides_[axis] = static_cast<int>(stride);
        stride *= sizes_[axis];
        if (stride > std::numeric_limits<int>::max()) {
            throw Error(ErrorKind::BadInput,
                        "",
                        fmt::format("{} x {} x {} x {} x {} devices, expected at most {}",
                                    sizes_.tensor,
                                    sizes_.context,
                                    sizes_.expert,
                                    sizes_.data,
                                    sizes_.pipeline,
                                    std::numeric_limits<int>::max()),
                        "make the largest of these smaller");
        }
    }
    devices_ = static_cast<int>(stride);
}

int DeviceGrid::members(AxisSet axes) const {
    int members = 1;
    for (const Axis axis : order_) {
        members *= axes.has(axis) ? sizes_[axis] : 1;
    }
    return members;
}

int DeviceGrid::device_at(const Coordinates& at) const {
    int device = 0;
    for (const Axis axis : order_) {
        PIPETWIN_EXPECT(at[axis] >= 0 && at[axis] < sizes_[axis], "a device of the grid");
        device += at[axis] * strides_[axis];
    }
    return device;
}

Coordinates DeviceGrid::coordinates_of(int device) const {
    PIPETWIN_EXPECT(device >= 0 && device < devices_, "a device of the grid");
    Coordinates at;
    for (const Axis axis : order_) {
        at[axis] = device / strides_[axis] % sizes_[axis];
    }
    return at;
}

/// Differences of the numbers of a group's devices from its first, ascending: an axis adds more
/// than all before it in the order.
std::vector<int> DeviceGrid::offsets(AxisSet axes) const {
    std::vector<int> offsets{0};
    for (const Axis axis : order_) {
        const std::size_t before = offsets.size();
        for (int index = 1; axes.has(axis) && index < sizes_[axis]; ++index) {
            for (std::size_t i = 0; i < before; ++i) {
                offsets.push_back(offsets[i] + index * strides_[axis]);
            }
        }
    }
    return offsets;
}

std::vector<int> DeviceGrid::group_of(int device, AxisSet axes) const {
    Coordinates first = coordinates_of(device);
    for (const Axis axis : order_) {
        first[axis] = axes.has(axis) ? 0 : first[axis];
    }
    std::vector<int> group = offsets(axes);
    for (int& member : group) {
        member += device_at(first);
    }
    return group;
}

int DeviceGrid::period(AxisSet axes) const {
    int period = 1;
    for (const Axis axis : order_) {
        const bool counts = axes.has(axis) && sizes_[axis] > 1;
        period = counts ? strides_[axis] * sizes_[axis] : period;
    }
    return period;
}

DeviceGroups DeviceGrid::groups(AxisSet axes, int among) const {
    const std::vector<int> of_first = offsets(axes);
    DeviceGroups groups;
    for (int device = 0; device < among; ++device) {
        const Coordinates at = coordinates_of(device);
        if (std::ranges::all_of(order_,
                                [&](Axis axis) { return !axes.has(axis) || at[axis] == 0; })) {
            std::vector<int>& group = groups.emplace_back(of_first);
            for (int& member : group) {
                member += device;
            }
        }
    }
    return groups;
}

DeviceGroups parts_of(const std::vector<int>& group, int parts) {
    PIPETWIN_EXPECT(parts >= 1 && group.size() % as_index(parts) == 0, "parts of equal size");
    const auto size = static_cast<std::ptrdiff_t>(group.size()) / parts;
    DeviceGroups result;
    for (auto begin = group.begin(); begin != group.end(); begin += size) {
        result.emplace_back(begin, begin + size);
    }
    return result;
}

DeviceGroups across(const DeviceGroups& parts) {
    DeviceGroups result(parts.empty() ? 0 : parts.front().size());
    for (const std::vector<int>& part : parts) {
        PIPETWIN_EXPECT(part.size() == result.size(), "parts of equal size");
        for (std::size_t place = 0; place < part.size(); ++place) {
            result[place].push_back(part[place]);
        }
    }
    return result;
}

}  // namespace pipetwin
