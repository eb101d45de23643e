// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/autograd_stages.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"

namespace pipetwin {

namespace {

using WorkKind = HostWork::Kind;

/// Operators of a forward, or nodes of a backward, one after the other.
struct WorkPiece {
    bool is_backward = false;
    int lane = 0;
    Duration begin{};
    Duration end{};
    std::vector<std::int64_t> numbers{};    ///< of nodes: that it makes, or that it runs
    std::optional<std::size_t> forward{};   ///< of a backward: the piece that made its nodes
    std::optional<std::size_t> backward{};  ///< of a forward: the piece that runs its nodes
    int step = 0;
};

/// Work of the host without what runs inside of other work of its thread, by time.
std::vector<HostWork> outermost(const std::vector<HostWork>& all) {
    std::vector<HostWork> work = all;
    std::ranges::stable_sort(work, [](const HostWork& a, const HostWork& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.length > b.length;
    });
    std::unordered_map<int, Duration> ends;  // [lane]
    std::erase_if(work, [&](const HostWork& one) {
        Duration& end = ends[one.lane];
        const bool is_inside = one.begin < end;
        end = std::max(end, one.end());
        return is_inside;
    });
    return work;
}

/// Finds pieces and what belongs together.
class AutogradReader {
  public:
    explicit AutogradReader(const TraceEvents& events) : events_(events) {}

    AutogradStages find() {
        cut();
        join();
        number_steps();
        AutogradStages stages;
        stages.problem = problem();
        if (!stages.problem.empty()) {
            return stages;
        }
        stages.note = note_;
        stages.are_numbered = has_steps_;
        std::map<int, int> counts;  // [step]: forwards so far
        for (const WorkPiece& piece : pieces_) {
            if (piece.is_backward || !piece.backward || partial_steps_.contains(piece.step)) {
                continue;
            }
            const int number = counts[piece.step]++;
            add(piece, Op::Forward, number, stages.ranges);
            add(pieces_[*piece.backward], Op::Backward, number, stages.ranges);
        }
        return stages;
    }

  private:
    void add(const WorkPiece& piece, Op op, int number, std::vector<TraceRange>& ranges) const {
        NamedAction action{.op = op, .is_short = true};
        if (has_steps_) {
            action.micro_batch = number;
        }
        ranges.push_back({.action = action,
                          .lane = piece.lane,
                          .begin = piece.begin,
                          .length = piece.end - piece.begin});
    }

    /// The thread of the host that makes most nodes; -1: none does.
    static int main_lane(const std::vector<HostWork>& work) {
        std::map<int, std::size_t> counts;
        for (const HostWork& one : work) {
            counts[one.lane] += one.kind == WorkKind::Operator ? 1 : 0;
        }
        const auto most =
            std::ranges::max_element(counts, {}, &std::pair<const int, std::size_t>::second);
        return most == counts.end() ? -1 : most->first;
    }

    void cut() {
        const std::vector<HostWork> work = outermost(events_.host_work);
        const int lane = main_lane(work);
        std::vector<TraceStep> optimizer = events_.optimizer_steps;
        std::ranges::stable_sort(optimizer, {}, &TraceStep::begin);
        auto next = optimizer.begin();
        Duration optimizer_end{};
        bool is_new = true;
        for (const HostWork& one : work) {
            for (; next != optimizer.end() && next->begin <= one.begin; ++next) {
                optimizer_end = std::max(optimizer_end, next->begin + next->length);
                is_new = true;
            }
            const bool is_message = one.kind == WorkKind::Send || one.kind == WorkKind::Receive;
            is_new = is_new || is_message;
            if (is_message || one.begin < optimizer_end ||
                (one.kind == WorkKind::Operator && one.lane != lane)) {
                continue;
            }
            const bool is_backward = one.kind == WorkKind::Node;
            if (is_new || pieces_.back().is_backward != is_backward) {
                pieces_.push_back({.is_backward = is_backward,
                                   .lane = one.lane,
                                   .begin = one.begin,
                                   .end = one.end()});
            }
            is_new = false;
            WorkPiece& piece = pieces_.back();
            piece.end = std::max(piece.end, one.end());
            if (one.number >= 0) {
                piece.numbers.push_back(one.number);
            }
        }
        // A file that ends too early may lack the rest of its last piece.
        if (!events_.cut.empty() && !is_new) {
            pieces_.pop_back();
        }
    }

    /// Says of each backward which forward made its nodes: of operators with one number, the last
    /// one before the backward makes the node.
    void join() {
        std::unordered_map<std::int64_t, std::size_t> makers;  // [number]: piece
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            WorkPiece& piece = pieces_[i];
            if (!piece.is_backward) {
                for (const std::int64_t number : piece.numbers) {
                    makers[number] = i;
                }
                continue;
            }
            std::map<std::size_t, std::size_t> counts;  // [forward]: nodes
            for (const std::int64_t number : piece.numbers) {
                if (const auto maker = makers.find(number); maker != makers.end()) {
                    ++counts[maker->second];
                }
            }
            if (counts.empty()) {
                continue;
            }
            const auto most = std::ranges::max_element(
                counts, {}, [](const auto& count) { return count.second; });
            for (const auto& [forward, nodes] : counts) {
                mixed_ = mixed_ || (forward != most->first && 4 * nodes > most->second);
            }
            piece.forward = most->first;
            std::optional<std::size_t>& known = pieces_[most->first].backward;
            split_ = split_ || known.has_value();
            known = i;
        }
    }

    void number_steps() {
        std::vector<TraceStep> marks;
        for (const TraceStep& mark : events_.steps) {
            if (!events_.lanes[as_index(mark.lane)].on_device) {
                marks.push_back(mark);
            }
        }
        std::vector<Duration> ends;  // of steps
        for (const TraceStep& mark : marks) {
            ends.push_back(mark.begin);
            ends.push_back(mark.begin + mark.length);
        }
        for (const TraceStep& step : events_.optimizer_steps) {
            if (marks.empty() && step.number >= 0) {
                ends.push_back(step.begin + step.length);
            }
        }
        std::ranges::sort(ends);
        has_steps_ = !ends.empty();
        for (WorkPiece& piece : pieces_) {
            piece.step =
                static_cast<int>(std::ranges::upper_bound(ends, piece.begin) - ends.begin());
        }
        // What was recorded from its middle on has no first micro-batch.
        for (const WorkPiece& piece : pieces_) {
            if (piece.is_backward && !piece.forward && !piece.numbers.empty()) {
                partial_steps_.insert(piece.step);
            }
        }
    }

    std::string problem() {
        if (mixed_) {
            return "a backward runs through several forwards, so none of them has its own";
        }
        if (split_) {
            return "the backward of a forward runs in several parts, as where the gradients of "
                   "inputs and weights are split (I and W)";
        }
        std::map<int, std::vector<std::size_t>> order;  // [step]: forwards as their backwards come
        for (const WorkPiece& piece : pieces_) {
            if (piece.is_backward && piece.forward) {
                order[piece.step].push_back(*piece.forward);
            }
        }
        // GPipe's backwards follow the order of the forwards, or the opposite one.
        std::size_t most_reversed = 0;
        for (const auto& [step, forwards] : order) {
            if (std::ranges::is_sorted(forwards)) {
                continue;
            }
            if (!std::ranges::is_sorted(forwards, std::greater{})) {
                return "its backwards follow neither the order of its forwards nor the opposite "
                       "one, as where a rank has several stages";
            }
            if (!have_equal_nodes(forwards)) {
                return "its backwards run in the opposite order of its forwards, with unequal "
                       "numbers of nodes, as where a rank has several stages";
            }
            most_reversed = std::max(most_reversed, forwards.size());
        }
        if (most_reversed > 0) {
            note_ = fmt::format(
                "backwards run in the opposite order: taken as {} micro-batches of one stage; name "
                "the ranges where a rank has several",
                most_reversed);
        }
        return "";
    }

    /// Whether the backwards of these pieces run the same number of nodes, as those of one stage.
    bool have_equal_nodes(const std::vector<std::size_t>& forwards) const {
        const auto nodes = [this](std::size_t forward) {
            return pieces_[*pieces_[forward].backward].numbers.size();
        };
        return std::ranges::all_of(
            forwards, [&](std::size_t one) { return nodes(one) == nodes(forwards.front()); });
    }

    const TraceEvents& events_;
    std::vector<WorkPiece> pieces_;
    std::set<int> partial_steps_;
    bool has_steps_ = false;
    bool mixed_ = false;
    bool split_ = false;
    std::string note_;
};

}  // namespace

AutogradStages stages_of_autograd(const TraceEvents& events) {
    return AutogradReader(events).find();
}

bool leave_out_waits(TraceEvents& events) {
    const std::vector<HostWork> work = outermost(events.host_work);
    bool any = false;
    for (TraceRange& range : events.ranges) {
        if (!is_cost(range.action.op) || !range.has_times() ||
            events.lanes[as_index(range.lane)].on_device) {
            continue;
        }
        std::optional<Duration> begin;
        Duration end{};
        const auto first = std::ranges::lower_bound(work, *range.begin, {}, &HostWork::begin);
        for (auto one = first; one != work.end() && one->begin < range.end(); ++one) {
            const bool computes = one->kind == WorkKind::Node ||
                                  (one->kind == WorkKind::Operator && one->lane == range.lane);
            if (computes && one->end() <= range.end()) {
                begin = begin.value_or(one->begin);
                end = std::max(end, one->end());
            }
        }
        if (begin) {
            any = any || end - *begin < *range.length;
            range.begin = begin;
            range.length = end - *begin;
        }
    }
    return any;
}

std::size_t leave_out_cut_ranges(TraceEvents& events) {
    if (events.cut.empty() || events.host_work.empty()) {
        return 0;
    }
    std::optional<Duration> last_node;  // of any thread
    std::map<int, Duration> last;       // [lane]
    for (const HostWork& one : events.host_work) {
        if (one.kind == WorkKind::Node) {
            last_node = std::max(last_node.value_or(one.end()), one.end());
        } else if (one.kind == WorkKind::Operator) {
            Duration& end = last.emplace(one.lane, one.end()).first->second;
            end = std::max(end, one.end());
        }
    }
    return std::erase_if(events.ranges, [&](const TraceRange& range) {
        if (!is_cost(range.action.op) || !range.has_times() ||
            events.lanes[as_index(range.lane)].on_device) {
            return false;
        }
        const auto of_lane = last.find(range.lane);
        std::optional<Duration> end = last_node;
        if (of_lane != last.end()) {
            end = std::max(end.value_or(of_lane->second), of_lane->second);
        }
        return end && *end < range.end();
    });
}

}  // namespace pipetwin
