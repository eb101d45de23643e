// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/interop/traces/trace_events.h"
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

/// The key in StageTimes, and the stage of a span, where a trace does not name its stages: its rank
/// has one only. `set_own_stage` gives it a number.
constexpr int own_stage = -1;

/// What is of use in the trace of one rank, by PyTorch's profiler or nsys.
struct TorchTrace {
    std::optional<int> rank;  ///< distributedInfo.rank; none where torch.distributed was not used
    std::optional<int> world_size;
    StageTimes stages;
    int overlapped_pairs = 0;  ///< left out: of two actions issued together none has its own time
    bool on_gpu = false;  ///< the ranges are those on the GPU, not those that launched the work
    bool only_launches = false;      ///< there are GPU kernels, but ranges only of the CPU
    bool is_unlabelled = false;      ///< no range has a name: kernels say what is forward
    std::vector<std::string> notes;  ///< what a reader of the result should know, in sentences

    /// F, B, I and W of the lane that computes, by their beginnings, `ready` being `begin`; empty
    /// where the trace has no times of beginning, or no ranges.
    std::vector<Span> spans;
    std::vector<int> steps;      ///< [span]: the number of its ProfilerStep; -1: it is in none
    std::vector<Span> messages;  ///< SEND and RECV of all lanes, by their beginnings
    bool numbers_micro_batches = true;  ///< false: spans are numbered as they come
};

/// Makes `stage` the number of the stage that the trace does not name; nothing where it names all.
void set_own_stage(TorchTrace& trace, int stage);

/// Takes from the events what each stage took. Ranges count where kernels run: on the stream with
/// most compute kernels inside its ranges of F, B, I and W (where there are no kernels: with most
/// of those ranges), else those of the CPU. Ranges of the CPU whose kernels are known by their
/// launches are moved to the stream. Where no range is named, and there are sends and receives,
/// forward and backward are told by the kernels between them, unless `names` are patterns. A range
/// that goes on when the next one of its stream has begun, and is more than twice as long as its
/// like, has an impossible length and is left out with a note. In the older dialect, where BW is
/// the whole backward, B is that of the input. Throws Error(BadInput) with `place` where nothing is
/// left of a forward, saying how to record ranges.
TorchTrace torch_trace(TraceEvents events, std::string_view place, const RangeNames& names = {});

/// Reads Chrome trace JSON; throws as `parse_torch_events` and `torch_trace`.
TorchTrace parse_torch_trace(std::string_view text,
                             std::string_view place,
                             const RangeNames& names = {});

/// Reads a file: Chrome trace JSON, plain or gzip, which is one rank; or the SQLite export of nsys,
/// which is a rank for each process. Throws as `parse_torch_trace` and `read_nsys_events`, and
/// Error(Io).
std::vector<TorchTrace> read_torch_traces(const std::filesystem::path& file,
                                          const RangeNames& names = {});

/// Durations of the actions of each stage in a trace of ours, over all its steps.
StageTimes stage_times(const Trace& trace);

/// One layer per stage, "stage0" and so on, that costs the medians; where the backward was recorded
/// in two parts, these count. A trace holds no sizes: all are 0. Throws Error(BadInput) with
/// `place`, naming the stage, where one has no forward or no backward.
Profile stage_profile(const StageTimes& stages, int micro_batch_size, std::string_view place);

}  // namespace pipetwin
