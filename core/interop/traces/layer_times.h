// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/costs/calibrate.h"
#include "core/interop/traces/trace_events.h"

/// How long the layers of each kind took in the trace of one rank.
namespace pipetwin {

/// How the ranges of one kind of layer are named, as patterns of `RangeNames` without {stage}.
struct LayerRanges {
    std::string kind;
    std::string forward;
    std::string backward{};  ///< empty: autograd's sequence numbers say what belongs to a forward
};

/// Times of the layers of a kind, over all layers, micro-batches and steps.
struct KindTimes {
    std::string kind;
    std::vector<Duration> forward{};
    std::vector<Duration> backward{};
};

/// Times of all kinds of a rank.
struct LayerTimes {
    std::vector<KindTimes> kinds{};
    bool on_gpu = false;         ///< times of the GPU, not of the calls that launched the work
    bool only_launches = false;  ///< there are GPU kernels, but ranges only of the CPU
    std::vector<std::string> notes{};
};

/// The names of ranges of all kinds: the i-th kind stands in the place of stage i. Throws
/// Error(Usage) for a kind that is named twice, and for a pattern that is none.
RangeNames layer_range_names(const std::vector<LayerRanges>& ranges);

/// Takes from events, read with `layer_range_names`, how long layers took, as `torch_trace` takes
/// the times of stages. The backward of a kind without a pattern is the work of the nodes that its
/// forward made: PyTorch's profiler writes the number of the node beside operators of both. Throws
/// Error(BadInput) with `place` where a kind has no forward or no backward, and where backwards of
/// several threads' forwards cannot be told apart.
LayerTimes layer_times(TraceEvents events,
                       std::string_view place,
                       const std::vector<LayerRanges>& ranges);

/// Reads the trace of one rank, PyTorch's or the export of nsys. Throws as `layer_times`,
/// `read_torch_events` and `read_nsys_events`.
LayerTimes read_layer_times(const std::filesystem::path& file,
                            const std::vector<LayerRanges>& ranges);

/// The median of each kind at the size of the micro-batches that were recorded.
std::vector<CalibrationPoint> points_of(const LayerTimes& times, int micro_batch_size);

}  // namespace pipetwin
