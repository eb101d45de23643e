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

/// A send, a receive, or a kernel that does both, as it lasted on one rank: with its waits for the
/// other end.
struct PeerMessage {
    enum class Way { Send, Receive, Both };
    Way way{};
    int self = -1;  ///< the trace's rank as messages name it; -1, as the next: they do not
    int peer = -1;
    Duration begin{};
    Duration end{};
};

/// What is of use in the trace of one rank, by PyTorch's profiler or nsys.
struct TorchTrace {
    std::optional<int> rank;  ///< distributedInfo.rank; none where torch.distributed was not used
    std::optional<int> world_size;
    std::optional<int> pipeline_rank{};  ///< none, as the next two: the trace does not say it
    std::optional<int> pipeline_size{};
    std::optional<int> micro_batch_size{};
    bool is_of_spans = false;  ///< of OpenTelemetry, which the host's threads wrote
    StageTimes stages;
    int overlapped_pairs = 0;  ///< left out: of two actions issued together none has its own time
    bool on_gpu = false;  ///< the ranges are those on the GPU, not those that launched the work
    bool lacks_kernels = false;      ///< the machine had a GPU, but none of its kernels is there
    bool only_launches = false;      ///< there are GPU kernels, but ranges only of the CPU
    bool is_unlabelled = false;      ///< no range has a name: kernels say what is forward
    std::vector<std::string> notes;  ///< what a reader of the result should know, in sentences

    /// F, B, I and W of the lane that computes, by their beginnings, `ready` being `begin`; empty
    /// where the trace has no times of beginning, or no ranges.
    std::vector<Span> spans;
    std::vector<int> steps;      ///< [span]: the number of its ProfilerStep; -1: it is in none
    std::vector<Span> messages;  ///< SEND and RECV of all lanes, by their beginnings
    std::vector<PeerMessage> peer_messages{};  ///< on the host's clock, as `spans`
    bool numbers_micro_batches = true;         ///< false: spans are numbered as they come
    bool without_waits = false;  ///< of the CPU: a range is from its first operator to its last
    std::vector<Duration> step_lengths{};  ///< of the host's ProfilerSteps
    std::string cut{};  ///< where the file ends too early, in a sentence; empty: it is whole
};

/// Whether two traces, of which one at least does not say its rank, have the same actions at the
/// same times, as no two ranks have: they are one trace.
bool is_same_trace(const TorchTrace& one, const TorchTrace& other);

/// Makes `stage` the number of the stage that the trace does not name; nothing where it names all.
void set_own_stage(TorchTrace& trace, int stage);

/// Takes from the events what each stage took. Ranges count where kernels run: on the stream with
/// most compute kernels inside its ranges of F, B, I and W (where there are no kernels: with most
/// of those ranges), else those of the CPU. Ranges of the CPU whose kernels are known by their
/// launches are moved to the stream. If no range has a name and `names` has no patterns, autograd's
/// sequence numbers show what is forward and what backward, or else the kernels between sends and
/// receives do. Where there are no kernels, a range is as long as its operators. A range
/// that goes on when the next one of its stream has begun, and is more than twice as long as its
/// like, has an impossible length and is left out with a note. In the older dialect, where BW is
/// the whole backward, B is that of the input. Throws Error(BadInput) with `place` where nothing is
/// left of a forward, saying how to record ranges.
TorchTrace torch_trace(TraceEvents events, std::string_view place, const RangeNames& names = {});

/// Reads Chrome trace JSON; throws as `parse_torch_events` and `torch_trace`.
TorchTrace parse_torch_trace(std::string_view text,
                             std::string_view place,
                             const RangeNames& names = {});

/// Reads a file: Chrome trace JSON, plain or gzip, which is one rank; the SQLite export of nsys,
/// which is a rank for each process; or spans of OpenTelemetry, of which each resource is a rank.
/// Throws as `parse_torch_trace`, `read_nsys_events` and `read_otlp_events`, and Error(Io).
std::vector<TorchTrace> read_torch_traces(const std::filesystem::path& file,
                                          const RangeNames& names = {});

/// Durations of the actions of each stage in a trace of ours, over all its steps.
StageTimes stage_times(const Trace& trace);

/// One layer per stage, "stage0" and so on, that costs the medians; where the backward was recorded
/// in two parts, these count. A trace holds no sizes: all are 0. Throws Error(BadInput) with
/// `place`, naming the stage, where one has no forward or no backward.
Profile stage_profile(const StageTimes& stages, int micro_batch_size, std::string_view place);

}  // namespace pipetwin
