// SPDX-License-Identifier: Apache-2.0
#include "core/grid/device_grid.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace device_grid_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::array all_axes{
    Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline};

/// The published example of 16 devices: TP 2, CP 2, DP 2, PP 2.
DeviceGrid dense(const AxisOrder& order = pipeline_last) {
    return DeviceGrid({.tensor = 2, .context = 2, .data = 2, .pipeline = 2}, order);
}

/// Its experts: ETP 1, EP 4, EDP 2, PP 2.
DeviceGrid experts() {
    return DeviceGrid({.expert = 4, .data = 2, .pipeline = 2});
}

TEST(DeviceGrid, ListsTheDenseGroupsOfSixteenDevices) {
    EXPECT_EQ(dense().groups(Axis::Tensor),
              (DeviceGroups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
    EXPECT_EQ(dense().groups(Axis::Context),
              (DeviceGroups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
    EXPECT_EQ(dense().groups(Axis::Data),
              (DeviceGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
    EXPECT_EQ(dense().groups(Axis::Data | Axis::Context),
              (DeviceGroups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
    EXPECT_EQ(dense().groups(Axis::Tensor | Axis::Context),
              (DeviceGroups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
    EXPECT_EQ(dense().groups(Axis::Pipeline),
              (DeviceGroups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
}

TEST(DeviceGrid, ListsTheExpertGroupsOfSixteenDevices) {
    EXPECT_EQ(experts().groups(Axis::Expert),
              (DeviceGroups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
    EXPECT_EQ(experts().groups(Axis::Data),
              (DeviceGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
    EXPECT_EQ(experts().groups(Axis::Pipeline), dense().groups(Axis::Pipeline));
    const DeviceGrid cut({.tensor = 2, .expert = 2, .data = 2, .pipeline = 2});
    EXPECT_EQ(cut.groups(Axis::Tensor), dense().groups(Axis::Tensor));
    EXPECT_EQ(cut.groups(Axis::Expert), dense().groups(Axis::Context));
    EXPECT_EQ(cut.groups(Axis::Data), dense().groups(Axis::Data));
}

TEST(DeviceGrid, PutsDataLastWhereTheOrderDoes) {
    EXPECT_EQ(dense(data_last).groups(Axis::Pipeline), dense().groups(Axis::Data));
    EXPECT_EQ(dense(data_last).groups(Axis::Data), dense().groups(Axis::Pipeline));
}

/// Megatron-LM, megatron/core/parallel_state.py: 16 devices, TP 2, PP 4, and 8 with TP 4, CP 2.
TEST(DeviceGrid, ListsTheExamplesOfMegatronsDocumentation) {
    const DeviceGrid pipeline({.tensor = 2, .data = 2, .pipeline = 4});
    EXPECT_EQ(pipeline.groups(Axis::Data),
              (DeviceGroups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
    EXPECT_EQ(pipeline.groups(Axis::Pipeline),
              (DeviceGroups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
    const DeviceGrid context({.tensor = 4, .context = 2});
    EXPECT_EQ(context.groups(Axis::Context), (DeviceGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

/// DeepSpeed's groups without a pipeline: neighbours share experts, and those with the same expert
/// sum its gradients.
TEST(DeviceGrid, ListsDeepSpeedsGroupsOfExperts) {
    const DeviceGrid grid({.expert = 4, .data = 2});
    EXPECT_EQ(grid.groups(Axis::Expert), (DeviceGroups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
    EXPECT_EQ(grid.groups(Axis::Data), (DeviceGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

/// [device]: its coordinates, counted by loops of which that of the order's first axis is
/// innermost.
std::vector<std::array<int, 5>> counted_devices(const AxisSizes& sizes, const AxisOrder& order) {
    std::vector<std::array<int, 5>> devices;
    std::array<int, 5> i{};
    for (i[4] = 0; i[4] < sizes[order[4]]; ++i[4]) {
        for (i[3] = 0; i[3] < sizes[order[3]]; ++i[3]) {
            for (i[2] = 0; i[2] < sizes[order[2]]; ++i[2]) {
                for (i[1] = 0; i[1] < sizes[order[1]]; ++i[1]) {
                    for (i[0] = 0; i[0] < sizes[order[0]]; ++i[0]) {
                        std::array<int, 5>& at = devices.emplace_back();
                        for (std::size_t place = 0; place < order.size(); ++place) {
                            at[as_index(static_cast<int>(order[place]))] = i[place];
                        }
                    }
                }
            }
        }
    }
    return devices;
}

/// Devices with the same coordinates along all axes that are not in `bits`.
std::set<std::vector<int>> collected_groups(const std::vector<std::array<int, 5>>& devices,
                                            unsigned bits) {
    std::map<std::array<int, 5>, std::vector<int>> groups;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        std::array<int, 5> others = devices[device];
        for (unsigned axis = 0; axis < others.size(); ++axis) {
            others[axis] = (bits >> axis & 1U) != 0 ? -1 : others[axis];
        }
        groups[others].push_back(static_cast<int>(device));
    }
    std::set<std::vector<int>> lists;
    for (const auto& [others, group] : groups) {
        lists.insert(group);
    }
    return lists;
}

AxisSet axes_of(unsigned bits) {
    AxisSet axes;
    for (const Axis axis : all_axes) {
        if ((bits >> static_cast<unsigned>(axis) & 1U) != 0) {
            axes = axes | axis;
        }
    }
    return axes;
}

/// Returns what differs from the counted lists, for every set of axes; empty: nothing.
std::string difference(const AxisSizes& sizes, const AxisOrder& order) {
    const DeviceGrid grid(sizes, order);
    const auto devices = counted_devices(sizes, order);
    if (grid.devices() != static_cast<int>(devices.size())) {
        return "number of devices";
    }
    for (int device = 0; device < grid.devices(); ++device) {
        const Coordinates at = grid.coordinates_of(device);
        for (const Axis axis : all_axes) {
            if (at[axis] != devices[as_index(device)][as_index(static_cast<int>(axis))]) {
                return "coordinates of " + std::to_string(device);
            }
        }
        if (grid.device_at(at) != device) {
            return "device at the coordinates of " + std::to_string(device);
        }
    }
    for (unsigned bits = 0; bits < 1U << all_axes.size(); ++bits) {
        const DeviceGroups groups = grid.groups(axes_of(bits));
        const auto expected = collected_groups(devices, bits);
        if (groups != DeviceGroups(expected.begin(), expected.end())) {
            return "groups of axes " + std::to_string(bits);
        }
        for (const std::vector<int>& group : groups) {
            if (static_cast<int>(group.size()) != grid.members(axes_of(bits)) ||
                grid.group_of(group.back(), axes_of(bits)) != group) {
                return "a group of axes " + std::to_string(bits);
            }
        }
    }
    return "";
}

/// All degrees of four axes whose product is at most `most`.
std::vector<std::array<int, 4>> degrees_up_to(int most) {
    std::vector<std::array<int, 4>> all;
    for (int a = 1; a <= most; ++a) {
        for (int b = 1; a * b <= most; ++b) {
            for (int c = 1; a * b * c <= most; ++c) {
                for (int d = 1; a * b * c * d <= most; ++d) {
                    all.push_back({a, b, c, d});
                }
            }
        }
    }
    return all;
}

TEST(DeviceGrid, EveryLayoutOfUpTo64DevicesEqualsTheCountedOne) {
    for (const auto& [tensor, inner, data, pipeline] : degrees_up_to(64)) {
        const AxisSizes of_dense{
            .tensor = tensor, .context = inner, .data = data, .pipeline = pipeline};
        const AxisSizes of_experts{
            .tensor = tensor, .expert = inner, .data = data, .pipeline = pipeline};
        for (const AxisOrder& order : {pipeline_last, data_last}) {
            ASSERT_EQ(difference(of_dense, order), "");
            ASSERT_EQ(difference(of_experts, order), "");
        }
    }
}

TEST(DeviceGrid, EveryOrderEqualsTheCountedOne) {
    AxisOrder order = pipeline_last;
    do {
        for (const auto& [tensor, inner, data, pipeline] : degrees_up_to(8)) {
            ASSERT_EQ(
                difference({.tensor = tensor, .context = inner, .data = data, .pipeline = pipeline},
                           order),
                "")
                << to_string(order);
        }
        ASSERT_EQ(
            difference({.tensor = 2, .context = 3, .expert = 2, .data = 2, .pipeline = 3}, order),
            "")
            << to_string(order);
        EXPECT_EQ(parse_axis_order(to_string(order), ""), order);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST(AxisOrder, IsWrittenAsWordsBetweenHyphens) {
    EXPECT_EQ(to_string(pipeline_last), "tp-cp-ep-dp-pp");
    EXPECT_EQ(to_string(data_last), "tp-cp-ep-pp-dp");
    EXPECT_EQ(parse_axis_order("tp-cp-ep-pp-dp", ""), data_last);
}

TEST(AxisOrder, RefusesOthersAndNamesTheNearest) {
    const std::map<std::string, std::string> nearest{
        {"tp-dp-pp", "tp-cp-ep-dp-pp"},
        {"tp-pp-dp", "tp-cp-ep-pp-dp"},
        {"pp-dp-ep-cp", "tp-pp-dp-ep-cp"},
        {"tp-cp-xp-dp-pp", "tp-cp-ep-dp-pp"},
        {"tp-cp-ep-dp-pp-tp", "tp-cp-ep-dp-pp"},
        {"", "tp-cp-ep-dp-pp"},
        {"TP-CP-EP-DP-PP", "tp-cp-ep-dp-pp"},
        {"tp-cp-ep-dp-pp-", "tp-cp-ep-dp-pp"},
    };
    for (const auto& [text, order] : nearest) {
        const Error error = error_of([&] { parse_axis_order(text, "s.toml:3:1"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.key(), "pipeline.order");
        EXPECT_EQ(error.place(), "s.toml:3:1");
        EXPECT_THAT(error.text(), HasSubstr("\"" + text + "\""));
        EXPECT_THAT(error.text(), HasSubstr("tp, cp, ep, dp, pp"));
        EXPECT_THAT(error.advice().settings,
                    ElementsAre(KeyValue{"pipeline.order", "\"" + order + "\""}));
        EXPECT_EQ(to_string(parse_axis_order(order, "")), order);
    }
}

TEST(DeviceGrid, RefusesMoreDevicesThanItCounts) {
    const Error error =
        error_of([] { DeviceGrid({.tensor = 4096, .data = 4096, .pipeline = 4096}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("4096 x 1 x 1 x 4096 x 4096"));
    EXPECT_EQ(DeviceGrid({.tensor = 16, .data = 8192, .pipeline = 64}).devices(), 8'388'608);
    EXPECT_THROW((void)dense().coordinates_of(16), InternalError);
    EXPECT_THROW((void)dense().device_at({.tensor = 2}), InternalError);
}

/// Four replicas with two context devices, two copies of the state: Megatron-LM cuts the list of
/// dp with cp, so does torchtitan, whose dp_replicate is the slower axis.
TEST(DeviceGrid, CopiesOfTheStateAreNeighboursInTheirList) {
    const DeviceGrid grid({.tensor = 2, .context = 2, .data = 4});
    const std::vector<int> all = grid.group_of(0, Axis::Context | Axis::Data);
    EXPECT_THAT(all, ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
    EXPECT_EQ(parts_of(all, 2), (DeviceGroups{{0, 2, 4, 6}, {8, 10, 12, 14}}));
    EXPECT_EQ(across(parts_of(all, 2)), (DeviceGroups{{0, 8}, {2, 10}, {4, 12}, {6, 14}}));
    EXPECT_EQ(parts_of(all, 1), (DeviceGroups{all}));
    EXPECT_EQ(across(parts_of(all, 8)), (DeviceGroups{all}));
    EXPECT_THROW(parts_of(all, 3), InternalError);
    EXPECT_THROW(across({{0, 1}, {2}}), InternalError);
    EXPECT_EQ(across({}), DeviceGroups{});
}

}  // namespace device_grid_test
}  // namespace pipetwin
