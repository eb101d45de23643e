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
    int source = -1;  ///< rank that sends, as the trace says it of a message; -1: it does not
    int target = -1;  ///< rank that receives

    Duration end() const { return begin + length; }
};

/// A call of the host that may launch a kernel.
struct TraceLaunch {
    std::int64_t correlation = 0;
    int lane = 0;
    Duration begin{};
    bool is_of_kernel = false;  ///< its name says so; not a copy's, nor one that waits
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
    int source = -1;  ///< rank that sends, as the name says it; -1: it does not
    int target = -1;  ///< rank that receives
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

/// Work of the host that says something about a pipeline whose ranges are not named.
struct HostWork {
    enum class Kind : std::uint8_t {
        Operator,  ///< of a forward, with the number of the node that it makes, or that is made
                   ///< next
        Node,      ///< the engine of autograd runs a node
        Send,
        Receive,
    };
    Kind kind{};
    int lane = 0;
    Duration begin{};
    Duration length{};
    std::int64_t number = -1;  ///< of the node; -1: it has none

    Duration end() const { return begin + length; }
};

/// All of one rank.
struct TraceEvents {
    std::optional<int> rank;        ///< none where the trace does not say it
    std::optional<int> world_size;  ///< ranks of the training; none where the trace does not say it
    std::optional<int>
        pipeline_rank{};  ///< its place in the pipeline; none: the trace does not say it
    std::optional<int> pipeline_size{};  ///< ranks of the pipeline; none: the trace does not say it
    std::optional<int> micro_batch_size{};  ///< samples; none: the trace does not say it
    bool is_of_spans = false;               ///< of OpenTelemetry, which the host's threads wrote
    std::optional<Duration> clock_base{};   ///< what to add to a time for that of the host's clock
    std::vector<TraceLane> lanes;
    std::vector<TraceRange> ranges;
    std::vector<TraceKernel> kernels;
    std::vector<std::string> kernel_names;
    std::vector<TraceLaunch> launches;
    std::vector<TraceStep> steps;
    std::vector<TraceMessage> messages;
    std::vector<TraceOperator> operators;  ///< only where `RangeNames::keeps_operators`
    std::vector<HostWork> host_work;       ///< most of what runs inside of other work is left out
    /// "Optimizer.step#AdamW.step", whose numbers are 0, and "Optimizer.zero_grad", -1.
    std::vector<TraceStep> optimizer_steps;
    int overlapped_pairs = 0;  ///< left out: of two actions issued together none has its own time
    bool has_device = false;   ///< the machine had a GPU, whether or not its kernels were recorded
    bool has_kernels = false;  ///< also where their times are not understood
    std::string
        cut{};  ///< where and how the file ends too early, in a sentence; empty: it is whole
    int damaged_kernels = 0;       ///< left out: their times are no numbers of microseconds
    std::string damaged_kernel{};  ///< name of the first of them
};

}  // namespace pipetwin
