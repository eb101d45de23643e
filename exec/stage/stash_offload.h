// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/plan/offload.h"
#include "core/timeline/timeline.h"
#include "exec/device/arena.h"
#include "exec/device/copy_engine.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// The stashes of one rank on their way to host memory and back, as core/plan/offload.h lists them
/// and docs/simulation.md times them. Used by the rank's thread.
///
///     row     0F1 ............... X  0B1
///     out        |--copy--|                     send_out(0F1); its device memory goes at the next
///     in                          |--copy--|    retire(); let_in(X), wait_for(0B1)
class StashOffload {
  public:
    /// Makes the offload of one rank; null where the plan keeps stashes on their devices. Throws
    /// Error(Unavailable) where the device has no memory of its own. `device` and `arena` outlive
    /// it; while it lives, an arena without memory left waits for stashes that are leaving.
    static std::unique_ptr<StashOffload> of_rank(const Plan& plan,
                                                 int rank,
                                                 Device& device,
                                                 Arena& arena);
    ~StashOffload();
    StashOffload(const StashOffload&) = delete;
    StashOffload& operator=(const StashOffload&) = delete;

    /// A step begins.
    void restart();

    /// Frees the device memory of stashes that have left.
    void retire();

    /// Returns when the stash that the action in `cell` of the row needs is back, and when it came;
    /// nothing where it never left.
    std::optional<TimePoint> wait_for(std::size_t cell);

    /// The action in `cell` begins to compute: the stash that the next one needs may come in.
    void let_in(std::size_t cell);

    /// True if the stash of the forward in `cell` leaves the device.
    bool leaves(std::size_t cell) const { return cells_[cell].makes.has_value(); }
    /// Begins to copy out the stash of the forward in `cell`: `tensors` are all of it. They are
    /// empty while it is away, and are not touched by others until it is back.
    void send_out(std::size_t cell, std::vector<Tensor*> tensors);

    /// Ends the copies of a step that failed: its stashes are about to go.
    void abandon() noexcept;

    /// The times of the copies since `start`, two rows as in Timeline::host_copies: out and in. The
    /// step must have been walked to its end.
    std::vector<std::vector<Span>> spans(TimePoint start) const;

    /// The most bytes that lay in host memory at a time since the step began.
    Bytes host_peak() const { return host_.peak().total(); }

  private:
    struct Cell {
        std::optional<std::size_t> makes;  ///< which stash
        std::optional<std::size_t> lets_in;
        std::optional<std::size_t> needs;
    };
    /// A tensor of a stash, and its description while it is away.
    struct Part {
        Tensor* tensor = nullptr;
        Tensor host;
        DType type{};
        std::int64_t rows = 0;
        std::int64_t columns = 0;
        MemoryKind kind{};
    };
    struct Stash {
        StashCopy copy;
        std::vector<Part> parts{};  ///< while it is not, or not only, on the device
        std::optional<int> out{};   ///< the number of the copy
        std::optional<int> in{};
        CopyEngine::Times out_times{};
        CopyEngine::Times in_times{};
    };

    StashOffload(const Plan& plan,
                 int rank,
                 std::vector<StashCopy> copies,
                 std::unique_ptr<CopyEngine> link,
                 Arena& arena);
    bool wait_for_room();
    void free_on_device(Stash& stash);

    const std::vector<Action>& row_;
    Arena& arena_;
    std::unique_ptr<CopyEngine> link_;
    Arena host_;
    std::vector<Cell> cells_;
    std::vector<Stash> stashes_;        ///< in the order of their forwards
    std::vector<std::size_t> leaving_;  ///< stashes whose copy out is not known to be complete
};

}  // namespace pipetwin::exec
