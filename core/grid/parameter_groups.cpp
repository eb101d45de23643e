// SPDX-License-Identifier: Apache-2.0
#include "core/grid/parameter_groups.h"

#include <algorithm>

#include "core/base/error.h"

namespace pipetwin {

ParameterGroups groups_of(ParameterKind kind, bool sequence_parallel) {
    constexpr AxisSet replicas = Axis::Context | Axis::Data;
    constexpr AxisSet all = replicas | Axis::Tensor;
    switch (kind) {
        case ParameterKind::Matrix:
            return {.cut = Axis::Tensor, .copies = replicas, .summed = replicas};
        case ParameterKind::Whole:
            return {.copies = all,
                    .summed_first = sequence_parallel ? AxisSet(Axis::Tensor) : AxisSet(),
                    .summed = replicas};
        case ParameterKind::HeadNorm:
            return {.copies = all, .summed_first = Axis::Tensor, .summed = replicas};
        case ParameterKind::Expert:
            return {.in_expert_grid = true,
                    .cut = Axis::Tensor | Axis::Expert,
                    .copies = Axis::Data,
                    .summed = Axis::Data};
        case ParameterKind::RouterBias:
            return {.copies = all};
    }
    PIPETWIN_EXPECT(false, "kind of parameter out of range");
}

const DeviceGrid& grid_of(const ParallelGrids& grids, const ParameterGroups& groups) {
    return groups.in_expert_grid ? grids.expert : grids.dense;
}

int gradient_divisor(const ParallelGrids& grids) {
    return grids.dense.members(loss_axes);
}

int cut_parts(const ParallelGrids& grids, const ParameterGroups& groups) {
    return grid_of(grids, groups).members(groups.cut);
}

int shard_devices(const ParallelGrids& grids, const ParameterGroups& groups, int copies) {
    const int devices = grid_of(grids, groups).members(groups.summed);
    PIPETWIN_EXPECT(copies >= 1 && (groups.summed.empty() || devices % copies == 0),
                    "copies of equal size");
    return groups.summed.empty() ? 1 : devices / copies;
}

bool counts_in_norm(const ParallelGrids& grids, const ParameterGroups& groups, int device) {
    const DeviceGrid& grid = grid_of(grids, groups);
    const Coordinates at = grid.coordinates_of(device);
    const bool has_gradient = !groups.summed.empty();
    return has_gradient && std::ranges::all_of(grid.order(), [&](Axis axis) {
               return !groups.copies.has(axis) || at[axis] == 0;
           });
}

}  // namespace pipetwin
