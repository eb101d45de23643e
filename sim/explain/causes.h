// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/offload.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;
struct Schedule;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Way in which a piece of time held up what came after it.
enum class Reason {
    Compute,       ///< the action made what was needed
    RowOrder,      ///< the rank was busy with an action that its row puts first
    Latency,       ///< the message was through its link and had not arrived yet
    Transfer,      ///< the message occupied its link
    LinkBusy,      ///< another message occupied the link
    BackPressure,  ///< the receiver was busy and did not take a message, so there was no room
    Reduction,     ///< gradients were summed, or on their way to be
    HostCopy,      ///< a stash was on its way to host memory, or back
};

/// "compute", "row_order", "latency", ...
std::string_view to_string(Reason reason);

/// A piece of time and the action or message that filled it: an action on its rank, or the message
/// of a send, whose rank is the sender's, or the copy of the stash that an F makes or another
/// action needs.
struct Cause {
    Action action;
    int rank = 0;
    Duration begin{};
    Duration end{};
    Reason reason{};
    /// The shared link that made the message or copy wait or go slower, by its number in
    /// Contention::shared_links; -1: none.
    int shared_link = -1;

    bool operator==(const Cause&) const = default;
};

/// What a user calls the shared link of a cause; empty: there is none, or it has no name.
std::string shared_link_name(const Plan& plan, const Cause& cause);

/// The place of a span in a timeline.
struct SpanPlace {
    std::uint32_t rank = 0;
    std::uint32_t cell = 0;
};

/// The span that ends last; of several the one on the lowest rank, and there the last. None in a
/// step without actions.
std::optional<SpanPlace> last_span(const Timeline& timeline);

/// Where the rows of a plan have what others wait for: the same in every plan with these rows,
/// whatever its costs.
struct RowPlaces {
    explicit RowPlaces(const Schedule& schedule);

    /// Both ends of an edge's messages: the k-th send and the k-th receive belong together.
    struct Edge {
        std::vector<SpanPlace> sends;
        std::vector<SpanPlace> receives;
    };
    std::vector<Edge> edges;
    /// [rank][cell] Number of a send or receive on its edge.
    std::vector<std::vector<std::uint32_t>> message_of;
    std::vector<SpanPlace> reductions;  ///< REDUCE_GRADs, rank by rank, in the order of the row
    std::vector<SpanPlace> norms;       ///< NORMs
};

/// Finds what every moment of a predicted step waited for, from the timeline and the rules of the
/// simulator:
///
///     an action begins       when the one before it in its row has ended
///     a receive is ready     when its message has arrived: latency, link, other messages on it,
///                            and then the moment at which the send had handed the message over
///     a send is ready        when the receiver has taken the message `capacity` places before
///     a norm is ready        when the gradients have come
///     an update is ready     when the gradients have come and all norms are done
///     another is ready       when its stash has come back from host memory, which may set out when
///                            the compute action before is ready, and when it has gone there
///
/// For timelines of `simulate(plan)`, with or without contention. Keeps references to both.
class Causes {
  public:
    Causes(const Plan& plan, const Timeline& timeline);
    /// `places`: those of the plan's rows, kept by reference.
    Causes(const Plan& plan, const Timeline& timeline, const RowPlaces& places);

    /// The causes that led to the moment at which a span was ready, back to `until` or to the start
    /// of the step: the earliest first, without gaps; pieces without length are left out. Where a
    /// moment has two reasons, the one in the rank's own row counts. O(actions and messages
    /// passed); behind a link that several edges share also O(edges) per message.
    std::vector<Cause> of_ready(SpanPlace place, Duration until = {}) const;
    /// The causes that led to the moment at which a span ended; as `of_ready`.
    std::vector<Cause> of_end(SpanPlace place, Duration until = {}) const;

    const Plan& plan() const { return plan_; }
    const Timeline& timeline() const { return timeline_; }

  private:
    friend class CauseWalk;

    Causes(const Plan& plan, const Timeline& timeline, std::shared_ptr<const RowPlaces> places);

    /// A REDUCE_GRAD, and when its gradients were on their way over the rank's network, where the
    /// rank did not wait for that.
    struct Reduction {
        SpanPlace place;
        bool known = false;
        bool overlapped = false;
        Duration begin{};
        Duration end{};
        int stage_before = -1;  ///< whose gradients the network carried before
    };

    /// The stashes of a rank that are copied, in the order of F; and the order of the copies in.
    struct Copies {
        std::vector<StashCopy> out;
        std::vector<std::size_t> in;  ///< indices of `out`
        /// [cell] Number of an action's copy among those in, where it needs one.
        std::vector<std::uint32_t> in_of;
    };

    void know_copies(std::size_t rank);
    int busiest_link(const std::vector<int>& way, Duration begin, Duration end) const;
    void know_reduction(SpanPlace place, Reduction& network);
    void know_norm(SpanPlace place);
    const Span& span_at(SpanPlace place) const { return timeline_.ranks[place.rank][place.cell]; }

    const Plan& plan_;
    const Timeline& timeline_;
    std::shared_ptr<const RowPlaces> places_;
    std::vector<Reduction> reductions_;   ///< [stage]
    std::optional<SpanPlace> last_norm_;  ///< the NORM that ends last, which updates wait for
    std::vector<Copies> copies_;          ///< [rank]
};

}  // namespace pipetwin::sim
