// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/torch_trace.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <queue>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/traces/autograd_stages.h"
#include "core/interop/traces/compute_lane.h"
#include "core/interop/traces/launched_ranges.h"
#include "core/interop/traces/nsys_events.h"
#include "core/interop/traces/otlp_events.h"
#include "core/interop/traces/peer_messages.h"
#include "core/interop/traces/torch_events.h"
#include "core/interop/traces/unlabelled.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr string_view how_to_record =
    "the schedules of torch.distributed.pipelining that hold several stages per rank record them "
    "where torch.profiler runs; in a loop of your own put each action into 'with "
    "torch.profiler.record_function(\"PP:0F3\")' (stage, F, B, I or W, micro-batch), or say how "
    "your "
    "ranges are named: --forward 'fwd {micro_batch}' --backward 'bwd {micro_batch}'";

/// The numbers of the steps in which moments lie that are asked for in order of time: that of the
/// first mark in the trace that holds the moment.
class StepsOverTime {
  public:
    /// `marks` outlives the result.
    explicit StepsOverTime(const std::vector<TraceStep>& marks) : marks_(marks) {
        for (std::size_t i = 0; i < marks.size(); ++i) {
            by_begin_.push_back(i);
        }
        std::ranges::stable_sort(by_begin_, {}, [&](std::size_t i) { return marks[i].begin; });
    }

    /// The step of a moment that is not before the last one; -1 where it lies in none.
    int at(Duration time) {
        for (; next_ < by_begin_.size() && marks_[by_begin_[next_]].begin <= time; ++next_) {
            open_.push(by_begin_[next_]);
        }
        const auto has_ended = [&](std::size_t i) {
            return marks_[i].begin + marks_[i].length <= time;
        };
        while (!open_.empty() && has_ended(open_.top())) {
            open_.pop();
        }
        return open_.empty() ? -1 : marks_[open_.top()].number;
    }

  private:
    const std::vector<TraceStep>& marks_;
    std::vector<std::size_t> by_begin_;
    std::size_t next_ = 0;
    /// Marks that have begun, the first in the trace on top.
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> open_;
};

/// Makes what is of use of the events of one rank.
class TraceMaker {
  public:
    TraceMaker(TraceEvents events, string_view place, const RangeNames& names)
        : events_(std::move(events)), place_(place), names_(names) {}

    TorchTrace make() {
        trace_.rank = events_.rank;
        trace_.world_size = events_.world_size;
        trace_.pipeline_rank = events_.pipeline_rank;
        trace_.pipeline_size = events_.pipeline_size;
        trace_.micro_batch_size = events_.micro_batch_size;
        trace_.is_of_spans = events_.is_of_spans;
        trace_.lacks_kernels = events_.has_device && !events_.has_kernels;
        trace_.overlapped_pairs = events_.overlapped_pairs;
        prefer_full_names();
        take_step_lengths();
        trace_.peer_messages = peer_messages_of(events_);
        const bool is_named = names_.are_patterns() || events_.overlapped_pairs > 0 ||
                              std::ranges::any_of(events_.ranges, [](const TraceRange& range) {
                                  return is_cost(range.action.op);
                              });
        // What a pattern names is as long as it is: a layer, or what the user put into it.
        const bool shortens = !events_.has_kernels && !names_.are_patterns();
        take_cut(shortens);
        // Kernels that no call is known to have launched belong to no operator.
        const bool has_times = !events_.has_kernels || !launches_of(events_).begin.empty();
        if (!is_named && has_times) {
            take_autograd();
        }
        trace_.without_waits = shortens && (leave_out_waits(events_) || trace_.is_unlabelled);
        find_ranges();
        if (chosen_.ranges.empty() && names_.are_patterns()) {
            refuse_unmatched();
        }
        if (chosen_.ranges.empty()) {
            take_kernels();
            return std::move(trace_);
        }
        leave_out_impossible(events_, chosen_);
        take_ranges();
        trace_.notes.insert(trace_.notes.end(), chosen_.notes.begin(), chosen_.notes.end());
        const bool has_forward = std::ranges::any_of(
            trace_.stages, [](const auto& stage) { return !stage.second.forward.empty(); });
        if (!has_forward) {
            names_.are_patterns() ? refuse_unmatched() : refuse_without_ranges();
        }
        return std::move(trace_);
    }

  private:
    /// "PP:0F3" and "Forward 3" of one trace would count the same work twice.
    void prefer_full_names() {
        const auto is_short = [](const TraceRange& range) { return range.action.is_short; };
        if (!std::ranges::all_of(events_.ranges, is_short)) {
            std::erase_if(events_.ranges, is_short);
        }
    }

    /// Notes that the file ends too early, and takes away what would be too short.
    void take_cut(bool shortens) {
        if (events_.cut.empty()) {
            return;
        }
        const std::size_t cut = shortens ? leave_out_cut_ranges(events_) : 0;
        if (cut > 0) {
            events_.cut += fmt::format("; left out: {} whose operators it may lack",
                                       counted(static_cast<std::int64_t>(cut), "range"));
        }
        trace_.notes.push_back(events_.cut);
        trace_.cut = events_.cut;
    }

    bool has_device_ranges() const {
        return std::ranges::any_of(events_.ranges, [this](const TraceRange& range) {
            return is_cost(range.action.op) && events_.lanes[as_index(range.lane)].on_device;
        });
    }

    void take_step_lengths() {
        for (const TraceStep& step : events_.steps) {
            if (!events_.lanes[as_index(step.lane)].on_device) {
                trace_.step_lengths.push_back(step.length);
            }
        }
    }

    /// Takes the forwards and backwards of ranges without names from what autograd ran.
    void take_autograd() {
        AutogradStages found = stages_of_autograd(events_);
        if (!found.problem.empty()) {
            throw Error(ErrorKind::BadInput,
                        std::string(place_),
                        "no range is named as an action, and without names " + found.problem,
                        std::string(how_to_record));
        }
        if (found.ranges.empty()) {
            return;
        }
        trace_.is_unlabelled = true;
        trace_.notes.push_back(fmt::format(
            "no range is named as an action: {} of one stage, each with its backward, are what "
            "autograd ran between sends and receives",
            counted(found.ranges.size() / 2, "forward")));
        if (!found.note.empty()) {
            trace_.notes.push_back(std::move(found.note));
        }
        std::ranges::move(found.ranges, std::back_inserter(events_.ranges));
    }

    void find_ranges() {
        std::vector<std::string> notes;
        if (events_.has_kernels && !events_.ranges.empty()) {
            notes = add_launched_ranges(events_);
        }
        trace_.on_gpu = has_device_ranges();
        chosen_ = compute_ranges(events_, trace_.on_gpu);
        chosen_.notes.insert(chosen_.notes.end(), notes.begin(), notes.end());
        trace_.only_launches = !trace_.on_gpu && !chosen_.ranges.empty() && events_.has_kernels;
    }

    /// The older dialect has both words: BW for the whole backward, B for that of the input.
    bool is_old_dialect() const {
        return std::ranges::any_of(chosen_.ranges, [this](std::size_t i) {
            return events_.ranges[i].action.is_whole_backward;
        });
    }

    /// The ranges of the rank's row: F, B, I and W, and what else but messages its lane has.
    void line_up() {
        row_ = chosen_.ranges;
        for (std::size_t i = 0; i < events_.ranges.size(); ++i) {
            const TraceRange& range = events_.ranges[i];
            const bool here = trace_.on_gpu ? range.lane == chosen_.lane
                                            : !events_.lanes[as_index(range.lane)].on_device;
            if (here && range.has_times() && !is_cost(range.action.op) &&
                !is_message(range.action.op)) {
                row_.push_back(i);
            }
        }
        std::ranges::stable_sort(row_, {}, [this](std::size_t i) {
            return events_.ranges[i].begin.value_or(Duration{});
        });
    }

    void take_ranges() {
        line_up();
        const bool old_dialect = is_old_dialect();
        bool has_times = true;
        for (const std::size_t i : row_) {
            const TraceRange& range = events_.ranges[i];
            if (!range.length) {
                throw Error(ErrorKind::BadInput,
                            range.place,
                            range.defect,
                            R"(only complete events ("ph": "X") say how long they took)");
            }
            NamedAction action = range.action;
            if (old_dialect && action.op == Op::Backward && !action.is_whole_backward) {
                action.op = Op::BackwardInput;
            }
            if (is_cost(action.op)) {
                add_length(action, *range.length);
            }
            has_times = has_times && range.begin.has_value();
            if (has_times) {
                trace_.spans.push_back(span_of(range, action));
            }
        }
        if (!has_times) {
            trace_.spans.clear();
            return;
        }
        take_messages();
        take_steps();
    }

    void add_length(const NamedAction& action, Duration length) {
        StageDurations& stage = trace_.stages[action.stage.value_or(own_stage)];
        switch (action.op) {
            case Op::Forward:
                stage.forward.push_back(length);
                return;
            case Op::Backward:
                stage.backward.push_back(length);
                return;
            case Op::BackwardInput:
                stage.backward_input.push_back(length);
                return;
            case Op::BackwardWeight:
                stage.backward_weight.push_back(length);
                return;
            default:
                return;
        }
    }

    /// Times are on the host's clock where the trace says how its own one is related to that.
    Span span_of(const TraceRange& range, const NamedAction& action) {
        const Duration begin = *range.begin + events_.clock_base.value_or(Duration{});
        const Action key{.op = action.op, .stage = action.stage.value_or(own_stage)};
        const bool has_number = action.micro_batch || !has_micro_batch(action.op);
        trace_.numbers_micro_batches = trace_.numbers_micro_batches && has_number;
        const int number = has_number ? action.micro_batch.value_or(0) : counts_[key]++;
        return {.action = {.op = key.op, .stage = key.stage, .micro_batch = number},
                .begin = begin,
                .ready = begin,
                .end = begin + *range.length};
    }

    /// Messages of the device, or else of the host.
    void take_messages() {
        for (const TraceRange& range : events_.ranges) {
            const bool counts = is_message(range.action.op) && range.has_times() &&
                                range.action.micro_batch.has_value() &&
                                events_.lanes[as_index(range.lane)].on_device == trace_.on_gpu;
            if (counts) {
                trace_.messages.push_back(span_of(range, range.action));
            }
        }
        std::ranges::stable_sort(trace_.messages, {}, &Span::begin);
    }

    /// The number of the step in which each range lies: by the marks of its own lane; for ranges of
    /// a device without marks by those of the host, where the k-th range of a name is the k-th
    /// there.
    void take_steps() {
        trace_.steps.assign(trace_.spans.size(), -1);
        std::vector<TraceStep> marks;
        std::ranges::copy_if(
            events_.steps, std::back_inserter(marks), [this](const TraceStep& step) {
                return trace_.on_gpu ? step.lane == chosen_.lane
                                     : !events_.lanes[as_index(step.lane)].on_device;
            });
        if (!marks.empty()) {
            StepsOverTime steps(marks);
            for (std::size_t i = 0; i < row_.size(); ++i) {
                trace_.steps[i] = steps.at(*events_.ranges[row_[i]].begin);
            }
        } else if (trace_.on_gpu) {
            take_steps_of_host();
        }
    }

    void take_steps_of_host() {
        std::vector<TraceStep> marks;
        std::ranges::copy_if(
            events_.steps, std::back_inserter(marks), [this](const TraceStep& step) {
                return !events_.lanes[as_index(step.lane)].on_device;
            });
        if (marks.empty()) {
            return;
        }
        using Name = std::tuple<int, Op, int>;
        const auto name_of = [](const NamedAction& action) {
            return Name(
                action.stage.value_or(own_stage), action.op, action.micro_batch.value_or(-1));
        };
        std::vector<const TraceRange*> host;
        for (const TraceRange& range : events_.ranges) {
            if (range.begin && !events_.lanes[as_index(range.lane)].on_device) {
                host.push_back(&range);
            }
        }
        std::ranges::stable_sort(host, {}, [](const TraceRange* range) { return *range->begin; });
        std::map<Name, std::vector<int>> steps;
        StepsOverTime over_time(marks);
        for (const TraceRange* range : host) {
            steps[name_of(range->action)].push_back(over_time.at(*range->begin));
        }
        std::map<Name, std::size_t> seen;
        for (std::size_t i = 0; i < row_.size(); ++i) {
            const Name name = name_of(events_.ranges[row_[i]].action);
            const std::vector<int>& all = steps[name];
            const std::size_t place = seen[name]++;
            trace_.steps[i] = place < all.size() ? all[place] : -1;
        }
    }

    /// Without ranges: what the kernels tell.
    void take_kernels() {
        const KernelStages found = stages_of_kernels(events_);
        if (!found.problem.empty()) {
            if (!found.has_messages) {
                refuse_without_ranges();
            }
            throw Error(ErrorKind::BadInput,
                        std::string(place_),
                        "no range is named as an action, and without names " + found.problem,
                        std::string(how_to_record));
        }
        trace_.on_gpu = true;
        trace_.is_unlabelled = true;
        chosen_.ranges.clear();
        for (const TraceRange& range : found.ranges) {
            chosen_.lane = range.lane;
            chosen_.ranges.push_back(events_.ranges.size());
            events_.ranges.push_back(range);
        }
        take_ranges();
        StageDurations& stage = trace_.stages[own_stage];  // with those of steps that are not whole
        stage.forward = found.forward;
        stage.backward = found.backward;
        trace_.notes.push_back(
            fmt::format("no range is named as an action: {} and {} of one stage are the kernels "
                        "between sends and "
                        "receives, told apart by {}",
                        counted(std::ssize(found.forward), "forward"),
                        counted(std::ssize(found.backward), "backward"),
                        found.how));
    }

    /// Throws what is missing; of a file that ends too early the rest may have had it.
    [[noreturn]] void refuse_missing(const std::string& what, string_view hint) const {
        const bool is_cut = !events_.cut.empty();
        throw Error(ErrorKind::BadInput,
                    std::string(place_),
                    is_cut ? fmt::format("{}; {}", what, events_.cut) : what,
                    is_cut ? "export the trace again" : std::string(hint));
    }

    [[noreturn]] void refuse_unmatched() const {
        refuse_missing(
            fmt::format("no range has a name like the pattern of a forward, '{}'",
                        names_.pattern_of(Op::Forward)),
            "a pattern is the whole name of a range as the trace gives it: * is any text, "
            "{stage} and {micro_batch} are numbers");
    }

    [[noreturn]] void refuse_without_ranges() const {
        refuse_missing(
            trace_.overlapped_pairs > 0
                ? "only ranges of pairs (OVERLAP_F_B), which do not say what each of the two "
                  "took, expected ranges of a forward, named PP:0F3"
                : "no ranges of a forward, named PP:0F3 (stage 0, micro-batch 3)",
            how_to_record);
    }

    TraceEvents events_;
    string_view place_;
    const RangeNames& names_;
    TorchTrace trace_;
    ComputeRanges chosen_;
    std::vector<std::size_t> row_;  ///< indices of ranges, by their beginnings
    std::map<Action, int> counts_;  ///< ranges of an action that does not say its micro-batch
};

}  // namespace

void set_own_stage(TorchTrace& trace, int stage) {
    auto own = trace.stages.extract(own_stage);
    if (own.empty()) {
        return;
    }
    own.key() = stage;
    trace.stages.insert(std::move(own));
    for (std::vector<Span>* const spans : {&trace.spans, &trace.messages}) {
        for (Span& span : *spans) {
            span.action.stage = stage;
        }
    }
}

bool is_same_trace(const TorchTrace& one, const TorchTrace& other) {
    const bool name_ranks = one.rank.has_value() && other.rank.has_value();
    return !name_ranks && !one.spans.empty() && one.spans == other.spans;
}

TorchTrace torch_trace(TraceEvents events, string_view place, const RangeNames& names) {
    return TraceMaker(std::move(events), place, names).make();
}

TorchTrace parse_torch_trace(string_view text, string_view place, const RangeNames& names) {
    return torch_trace(parse_torch_events(text, place, names), place, names);
}

std::vector<TorchTrace> read_torch_traces(const std::filesystem::path& file,
                                          const RangeNames& names) {
    std::vector<TorchTrace> traces;
    if (is_nsys_file(file)) {
        for (TraceEvents& events : read_nsys_events(file, names)) {
            traces.push_back(torch_trace(std::move(events), file.string(), names));
        }
    } else if (is_otlp_file(file)) {
        for (TraceEvents& events : read_otlp_events(file, names)) {
            traces.push_back(torch_trace(std::move(events), file.string(), names));
        }
    } else {
        traces.push_back(torch_trace(read_torch_events(file, names), file.string(), names));
    }
    return traces;
}

}  // namespace pipetwin
