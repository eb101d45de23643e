// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/as_index.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/schedule.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

/// The kinds of memory of a rank. `Context` is what the runtime of a device takes before there is a
/// model.
enum class MemoryKind { Weights, Gradients, Optimizer, Stash, Boundary, Workspace, Context };
/// Number of values of `MemoryKind`.
constexpr int memory_kind_count = 7;
/// The word of a kind in JSON output and tables: "weights".
std::string_view to_string(MemoryKind kind);

/// Bytes per kind; the index is the MemoryKind.
struct MemoryUse {
    std::array<Bytes, memory_kind_count> bytes{};

    Bytes& operator[](MemoryKind kind) { return bytes[as_index(kind)]; }
    Bytes operator[](MemoryKind kind) const { return bytes[as_index(kind)]; }
    /// Sum over the kinds.
    Bytes total() const;
    bool operator==(const MemoryUse&) const = default;
};

/// What one action does to the memory of its rank: `during` is held on top of what was there before
/// while it runs (its high-water mark), `after` is what remains of it (or is freed: negative).
///
///            input at a later stage arrives by RECV_F (boundary), at stage 0 it is loaded by F
///            itself
/// RECV_F     boundary + input                      RECV_B  boundary + output
/// F keep     boundary - input, stash + saved, boundary + output; during: up to forward_peak
/// F drop     boundary - input, stash + input, boundary + output; during: forward_drop_peak
/// F alone    as F drop, but nothing stays in the stash: no backward follows
/// SEND_F     boundary - output                     SEND_B  boundary - input
/// R          stash + saved - input; during: + output, too, or up to forward_peak
/// B          stash - saved, boundary - output gradient + input gradient; during: backward_peak
/// I          stash + split - input_saved, boundary + input gradient (not at stage 0) -
///            unread_gradient; during: backward_input_peak
/// W          stash - saved + input_saved - split, boundary - output gradient + unread_gradient
///
/// Where a stage has several messages for one micro-batch, its input and its output are the sums of
/// them, and each send and receive is of its own part.
struct MemoryChange {
    MemoryUse during;
    MemoryUse after;
};
/// The change that an action of the plan makes to its rank's memory, with every stash on its
/// device.
MemoryChange memory_change(const Plan& plan, const Action& action);

/// Memory that the rank holds before its first action: weights, gradients, optimizer state,
/// workspace, context, and for each of its incoming boundaries room for `capacity` messages, for
/// each incoming skip as many as `channel_places` says (none while the capacity is unbounded).
MemoryUse resident_memory(const Plan& plan, int rank);

/// What each device of a rank holds beside the model and its activations. All but the last two are
/// MemoryKind::Context; these are part of no kind, and the memory limits leave room for the
/// reserve.
struct BesideModel {
    Bytes runtime;            ///< the context of the device's runtime and its kernels
    Bytes communication;      ///< buffers of the process groups
    Bytes product_workspace;  ///< of matrix products
    Bytes tensor_buffers;     ///< of messages beside products, where devices share a layer
    Bytes allocator_reserve;  ///< of the memory pool at the peak, beyond the tensors in it
    Bytes kept_messages;      ///< of messages that are over, if the limit has room for all
};
/// The parts for a rank whose peak is `peak`.
BesideModel beside_model(const Plan& plan, int rank, const MemoryUse& peak);

/// Live bytes of a rank from `time` on, until the next point of the curve.
struct MemoryPoint {
    Duration time{};
    MemoryUse use;
};

/// Live bytes over time: a step function, each point valid until the next. Every action gives two
/// points, its begin (with what it holds during) and its end (with what remains).
using MemoryCurve = std::vector<MemoryPoint>;

/// One curve per rank. Where the timeline copies stashes to host memory, one is off the device from
/// the end of its copy out to the begin of its copy in, which are points, too. No total is larger
/// than without copies.
std::vector<MemoryCurve> footprint(const Plan& plan, const Timeline& timeline);

/// Least and most of several numbers of bytes.
struct ByteRange {
    Bytes least;
    Bytes most;

    /// Widens the range so that it includes `bytes`.
    void add(Bytes bytes) {
        least = std::min(least, bytes);
        most = std::max(most, bytes);
    }
    bool operator==(const ByteRange&) const = default;
};

/// Total bytes that a rank holds at each action of its row, without a timeline, and with every
/// stash on its device.
struct RankTotals {
    static constexpr std::size_t block = 16;

    std::vector<Bytes> values;        ///< [2 * cell] during an action of the row, [.. + 1] after it
    std::vector<ByteRange> of_block;  ///< of the values up to the next multiple of `block`
};
/// [rank]: total bytes at each action.
std::vector<RankTotals> memory_totals(const Plan& plan);

/// The highest total of a rank, at the first moment at which it is held.
struct MemoryPeak {
    MemoryUse use;
    int cell = -1;       ///< the action of the row that reaches it; -1: it is there from the start
    bool after = false;  ///< the action's end reaches it, not its begin: a message has arrived
    /// Part of the stash that is there because layers do not keep what their backward needs: what a
    /// forward is about to drop; what was computed again, and the gradients inside of its stage.
    Bytes recomputed{};
};

/// One peak per rank, with every stash on its device all the time: it depends on the order of the
/// row alone, never on the times.
std::vector<MemoryPeak> memory_peaks(const Plan& plan);

/// Time at which the peak is reached, in a row of spans of the rank.
Duration time_of(const MemoryPeak& peak, const std::vector<Span>& row);

/// A rank's peak in a timeline, and its time. It depends on the times where the timeline copies
/// stashes to host memory.
struct PeakInTime {
    MemoryPeak peak;
    Duration time{};
};
/// [rank]: the peaks of a timeline.
std::vector<PeakInTime> memory_peaks(const Plan& plan, const Timeline& timeline);

/// [rank]: peak bytes of a timeline, all kinds together.
std::vector<Bytes> peak_totals(const Plan& plan, const Timeline& timeline);

/// [rank]: peak bytes of a plan without offload, all kinds together; independent of timing.
std::vector<Bytes> peak_totals(const Plan& plan);

/// [rank]: bytes by kind at the peak of a plan without offload.
std::vector<MemoryUse> peak_memory(const Plan& plan);
/// [rank]: bytes by kind at the peak of a timeline.
std::vector<MemoryUse> peak_memory(const Plan& plan, const Timeline& timeline);

class KeptByForward;

/// Peak memory of the ranks of a plan with one stage each, for other stages than its own: the rows
/// stay, the costs of their actions change. The plan must outlive it.
class StagePeaks {
  public:
    explicit StagePeaks(const Plan& plan);
    ~StagePeaks();
    StagePeaks(const StagePeaks&) = delete;
    StagePeaks& operator=(const StagePeaks&) = delete;

    /// The peak of the rank of `stage`, context included, with room for `capacity` messages on each
    /// of its boundaries. `costs` has one entry per cost class.
    Bytes of(int stage,
             const std::vector<StageCost>& costs,
             const StageState& state,
             int capacity) const;

  private:
    const Plan& plan_;
    std::unique_ptr<const KeptByForward> kept_;
};

/// Largest number of (micro-batch, stage) pairs alive on each rank, from the start of F to the end
/// of B (or W). Where no backward follows, nothing is kept: what is left are the activation at work
/// and the one on its way.
std::vector<int> peak_live_activations(const Schedule& schedule);

}  // namespace pipetwin
