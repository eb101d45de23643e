// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Devices numbered by the axes along which training divides a model, its experts and its batch.
namespace pipetwin {

/// What the devices along an axis divide among them.
enum class Axis {
    Tensor,   ///< "tp": each layer
    Context,  ///< "cp": each sequence
    Expert,   ///< "ep": the experts of a layer
    Data,     ///< "dp": samples
    Pipeline  ///< "pp": the layers of the model
};

/// The axes' words in orders, in the order of `Axis`.
inline constexpr std::array<std::string_view, 5> axis_words{"tp", "cp", "ep", "dp", "pp"};
/// Number of axes.
inline constexpr std::size_t axis_count = axis_words.size();

/// One number for each axis.
template <int Initial>
struct AxisNumbers {
    int tensor = Initial;
    int context = Initial;
    int expert = Initial;
    int data = Initial;
    int pipeline = Initial;

    constexpr int& operator[](Axis axis) { return this->*member(axis); }
    constexpr int operator[](Axis axis) const { return this->*member(axis); }
    bool operator==(const AxisNumbers&) const = default;

  private:
    static constexpr int AxisNumbers::*member(Axis axis) {
        constexpr std::array members{&AxisNumbers::tensor,
                                     &AxisNumbers::context,
                                     &AxisNumbers::expert,
                                     &AxisNumbers::data,
                                     &AxisNumbers::pipeline};
        return members[static_cast<std::size_t>(axis)];
    }
};

/// Devices along each axis.
using AxisSizes = AxisNumbers<1>;
/// Where a device is: its index along each axis, from 0.
using Coordinates = AxisNumbers<0>;

/// Some of the axes.
class AxisSet {
  public:
    constexpr AxisSet() = default;
    constexpr AxisSet(Axis axis) : bits_(1U << static_cast<unsigned>(axis)) {}

    constexpr bool has(Axis axis) const { return (bits_ & AxisSet(axis).bits_) != 0; }
    constexpr bool empty() const { return bits_ == 0; }
    bool operator==(const AxisSet&) const = default;

    /// The axes of both.
    friend constexpr AxisSet operator|(AxisSet one, AxisSet other) {
        one.bits_ |= other.bits_;
        return one;
    }

  private:
    unsigned bits_ = 0;
};

constexpr AxisSet operator|(Axis one, Axis other) {
    return AxisSet(one) | AxisSet(other);
}

/// Each axis once; the number of a device changes fastest along the first.
using AxisOrder = std::array<Axis, axis_count>;

/// The order in which Megatron-LM numbers devices by default (megatron/core/parallel_state.py).
inline constexpr AxisOrder pipeline_last{
    Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline};
/// All ranks of a replica before those of the next.
inline constexpr AxisOrder data_last{
    Axis::Tensor, Axis::Context, Axis::Expert, Axis::Pipeline, Axis::Data};

/// "tp-cp-ep-dp-pp".
std::string to_string(const AxisOrder& order);

/// Reads "tp-cp-ep-dp-pp". Throws Error(BadInput) at `place`, about pipeline.order, if it does not
/// have each axis once; the hint has the nearest order: the known words as they stand, and the
/// missing ones where they are by default.
AxisOrder parse_axis_order(std::string_view text, const std::string& place);

/// Lists of device numbers, one for each group.
using DeviceGroups = std::vector<std::vector<int>>;

/// All devices of a training run as a grid. A device has the number
///
///     sum over axes of index * stride      stride: product of the sizes of the axes before it
///
/// which is the global rank that Megatron-LM, torchtitan and DeepSpeed give it. Two by two devices,
/// tp-dp-...:
///
///              tp 0   tp 1
///     dp 0      0      1        group of tp: 0 1;  of dp: 0 2;  of tp and dp: 0 1 2 3
///     dp 1      2      3
class DeviceGrid {
  public:
    /// Throws Error(BadInput) if there are more devices than an int counts. Sizes are 1 or more.
    explicit DeviceGrid(const AxisSizes& sizes = {}, const AxisOrder& order = pipeline_last);

    const AxisSizes& sizes() const { return sizes_; }
    const AxisOrder& order() const { return order_; }
    /// Difference of the numbers of neighbours along the axis.
    int stride(Axis axis) const { return strides_[axis]; }
    int devices() const { return devices_; }
    /// Devices of a group: the product of the sizes of these axes.
    int members(AxisSet axes) const;

    int device_at(const Coordinates& at) const;
    Coordinates coordinates_of(int device) const;

    /// The devices that differ from this one along these axes alone, with itself, ascending.
    std::vector<int> group_of(int device, AxisSet axes) const;
    /// Groups of all devices, each ascending, by their first device. No axes: each device alone.
    DeviceGroups groups(AxisSet axes) const { return groups(axes, devices_); }
    /// Groups of the first `among` devices: a multiple of `period`, or all.
    DeviceGroups groups(AxisSet axes, int among) const;
    /// Devices after which groups along these axes come again, each as far from the one before: the
    /// least number so that groups have all or none of their devices among as many.
    int period(AxisSet axes) const;

    bool operator==(const DeviceGrid&) const = default;

  private:
    std::vector<int> offsets(AxisSet axes) const;

    AxisSizes sizes_;
    AxisOrder order_;
    AxisSizes strides_{};
    int devices_ = 1;
};

/// A group cut into `parts` groups of neighbours in its list, which its size must divide by:
/// replicas that have a copy of the state between them, where there are so many copies (hybrid
/// sharding; Megatron-LM's instances of the distributed optimizer).
DeviceGroups parts_of(const std::vector<int>& group, int parts);

/// For each place in parts of equal size the members that are there: shares of the same numbers are
/// summed between them.
DeviceGroups across(const DeviceGroups& parts);

}  // namespace pipetwin
