#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// How long the actions of one stage took, over all micro-batches and steps.
struct StageDurations {
    std::vector<Duration> forward{};
    std::vector<Duration> backward{};
    std::vector<Duration> backward_input{};
    std::vector<Duration> backward_weight{};
};

/// By stage.
using StageTimes = std::map<int, StageDurations>;

/// What is of use in a trace of PyTorch's profiler, which holds one rank.
struct TorchTrace {
    std::optional<int> rank;  ///< distributedInfo.rank; none where torch.distributed was not used
    std::optional<int> world_size;
    StageTimes stages;
    int overlapped_pairs = 0;  ///< left out: of two actions issued together none has its own time
    bool on_gpu = false;  ///< the ranges are those on the GPU, not those that launched the work
    bool only_launches = false;  ///< there are GPU kernels, but ranges only of the CPU
};

/// Reads the "PP:..." ranges ("PP:2F0") of Chrome trace JSON, event by event: no more is kept than
/// their durations. Where the profiler recorded ranges on the GPU these count, on the stream that
/// has most of them, else those of the CPU. In the older dialect, where BW is the whole backward, B
/// is that of the input. Throws Error(BadInput) with file:line:column for syntax, with the range
/// for a name that is no action, and where there is no range of a forward, saying how to make them.
TorchTrace parse_torch_trace(std::string_view text, std::string_view place);

/// Reads durations from a file, plain or gzip. Throws as `parse_torch_trace`, and Error(Io).
TorchTrace read_torch_trace(const std::filesystem::path& file);

/// The ranges themselves, of the lane that counts, by their beginnings.
struct TorchSpans {
    std::optional<int> rank;
    std::vector<Span> spans;   ///< on the clock of the trace; `ready` is `begin`
    int overlapped_pairs = 0;  ///< left out, as above
};

/// Reads the ranges of a file, plain or gzip. Throws as read_torch_trace, and Error(BadInput) for a
/// range without "ts".
TorchSpans read_torch_spans(const std::filesystem::path& file);

/// Durations of the actions of each stage in a trace of ours, over all its steps.
StageTimes stage_times(const Trace& trace);

/// One layer per stage, "stage0" and so on, that costs the medians; where the backward was recorded
/// in two parts, these count. A trace holds no sizes: all are 0. Throws Error(BadInput) with
/// `place`, naming the stage, where one has no forward or no backward.
Profile stage_profile(const StageTimes& stages, int micro_batch_size, std::string_view place);

}  // namespace pipetwin
