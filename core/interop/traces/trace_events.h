// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/interop/traces/range_names.h"

/// The events of one rank's trace that say something about its pipeline, whichever program wrote
/// them. Times are nanoseconds on the trace's clock.
namespace pipetwin {

/// A thread of the host or a stream of a device.
struct TraceLane {
    std::string name;  ///< the thread's or the stream's number, as the trace writes it
    bool on_device = false;

    /// "stream 7" or "thread 11", for sentences.
    std::string text() const { return (on_device ? "stream " : "thread ") + name; }
};

/// A range whose name is an action.
struct TraceRange {
    NamedAction action;
    int lane = 0;
    std::optional<Duration> begin{};
    std::optional<Duration> length{};
    std::string name{};    ///< only where the length is missing
    std::string place{};   ///< where the trace says so; only where the length is missing
    std::string defect{};  ///< what the trace has in place of a length, in a sentence

    Duration end() const { return *begin + *length; }
    bool has_times() const { return begin && length; }
};

/// What a kernel does, as its name tells it.
enum class KernelWork : std::uint8_t {
    Compute,
    Send,
    Receive,
    PointToPoint,   ///< a send, a receive or both
    Collective,     ///< an all-reduce and the like
    Communication,  ///< one of the above: RCCL's kernels do not say which
};

/// The work of a kernel of this name; `collective` is what the trace says of it ("send",
/// "allreduce"), empty where it says nothing. Knows the kernels of NCCL, RCCL, MSCCL, oneCCL, HCCL
/// and those of frameworks that copy between devices.
KernelWork kernel_work(std::string_view name, std::string_view collective);

/// Whether a kernel's name says that it belongs to a backward ("bwd", "backward", "dgrad").
bool is_named_backward(std::string_view kernel);

/// Whether a kernel's name says that it belongs to an optimizer ("adam", "multi_tensor_apply").
bool is_named_optimizer(std::string_view kernel);

/// One run of a kernel on a stream.
struct TraceKernel {
    int lane = 0;
    int name = 0;  ///< index in TraceEvents::kernel_names
    KernelWork work = KernelWork::Compute;
    Duration begin{};
    Duration length{};
    std::optional<std::int64_t> correlation{};  ///< that of the call that launched it

    Duration end() const { return begin + length; }
};

/// A call of the host that launches a kernel.
struct TraceLaunch {
    std::int64_t correlation = 0;
    int lane = 0;
    Duration begin{};
};

/// A mark of a step of the training loop: "ProfilerStep#5".
struct TraceStep {
    int number = 0;
    int lane = 0;
    Duration begin{};
    Duration length{};
};

/// A stretch of time in which a lane sends to or receives from another rank: "nccl:send 0->1".
struct TraceMessage {
    bool is_send = false;
    int lane = 0;
    Duration begin{};
    Duration length{};
};

/// An operator that autograd numbered: those of a forward with the number of the node that they
/// make, or that is made next, and those of a backward with the number of their node.
struct TraceOperator {
    std::int64_t sequence = 0;
    /// The profiler's number of the thread of its forward; 0: it is one of a forward.
    std::int64_t forward_thread = 0;
    int lane = 0;
    Duration begin{};
    Duration length{};

    bool is_backward() const { return forward_thread > 0; }
    Duration end() const { return begin + length; }
};

/// All of one rank.
struct TraceEvents {
    std::optional<int> rank;        ///< none where the trace does not say it
    std::optional<int> world_size;  ///< ranks of the training; none where the trace does not say it
    std::optional<Duration> clock_base{};  ///< what to add to a time for that of the host's clock
    std::vector<TraceLane> lanes;
    std::vector<TraceRange> ranges;
    std::vector<TraceKernel> kernels;
    std::vector<std::string> kernel_names;
    std::vector<TraceLaunch> launches;
    std::vector<TraceStep> steps;
    std::vector<TraceMessage> messages;
    std::vector<TraceOperator> operators;    ///< only where `RangeNames::keeps_operators`
    std::vector<TraceStep> optimizer_steps;  ///< "Optimizer.step#AdamW.step"; numbers are 0
    int overlapped_pairs = 0;  ///< left out: of two actions issued together none has its own time
    bool has_kernels = false;  ///< also where their times are not understood
    int damaged_kernels = 0;   ///< left out: their times are no numbers of microseconds
    std::string damaged_kernel{};  ///< name of the first of them
};

}  // namespace pipetwin
