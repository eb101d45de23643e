// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/torch_events.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/base/undertaking.h"
#include "core/interop/traces/event_words.h"
#include "core/text/json_dialect.h"
#include "core/text/json_number.h"

namespace pipetwin {

namespace {

using nlohmann::json;
using std::string_view;

/// The latest moment, in microseconds since 1970: the year 2096. So sums fit into nanoseconds.
constexpr std::int64_t latest_moment = 4'000'000'000'000'000;
/// The longest event in microseconds: 104 days, 2^53 nanoseconds.
constexpr std::int64_t longest_event = 9'000'000'000'000;

/// A time of an event as it is written.
struct TimeField {
    std::optional<Duration> value{};
    std::string text{};  ///< only of a value that is no time

    void take(string_view written, std::int64_t most, bool is_string) {
        value = microseconds_of(written, most);
        if (!value) {
            text = is_string ? fmt::format("\"{}\"", written.substr(0, 40))
                             : std::string(written.substr(0, 40));
        }
    }
};

/// The fields of the event that is being read.
struct JsonEvent {
    std::string name;
    std::string category;
    std::string phase;
    std::string process;
    std::string thread;
    TimeField begin;
    TimeField length;
    std::optional<std::int64_t> correlation;
    std::optional<std::int64_t> sequence;
    std::int64_t forward_thread = 0;
    std::string collective;
    int source = -1;
    int target = -1;
};

/// The characters of a trace, with numbers as Python and Kineto write them (NaN, Infinity).
class TraceText {
  public:
    explicit TraceText(ByteSource& source) : source_(source) { look(); }

    bool at_end() const { return source_.at_end(); }
    const char& current() const { return seen_; }
    void next() {
        source_.next();
        look();
    }
    /// The word behind the number that the parser has read last; empty: none.
    string_view take_word() { return filter_.take_word(); }

  private:
    void look() {
        if (!source_.at_end()) {
            seen_ = filter_.pass(source_.current());
        }
    }

    ByteSource& source_;
    PythonNumberFilter filter_;
    char seen_ = 0;
};

/// Sees the JSON event by event and keeps those of use.
class EventReader final : public nlohmann::json_sax<json> {
  public:
    EventReader(ByteSource& source,
                TraceText& text,
                string_view place,
                const RangeNames& names,
                const TraceLimits& limits)
        : source_(source), text_(text), place_(place), names_(names), kept_(limits) {}

    TraceEvents take() {
        if (!has_events_) {
            throw Error(
                ErrorKind::BadInput,
                std::string(place_),
                "no \"traceEvents\", expected Chrome trace JSON as torch.profiler writes it",
                "in Python: profile.export_chrome_trace(\"rank0.json.gz\")");
        }
        expect_kernels();
        return std::move(events_);
    }

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool binary(json::binary_t&) override { return true; }
    bool number_integer(std::int64_t value) override { return whole_number(value); }
    bool number_unsigned(std::uint64_t value) override {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        return whole_number(static_cast<std::int64_t>(std::min(value, most)));
    }
    bool number_float(double value, const std::string& written) override {
        const string_view word = text_.take_word();
        if (depth_ == event_depth_) {
            take_field(word.empty() ? json_number(value, written).digits : std::string(word),
                       false);
        }
        return token();
    }

    bool string(std::string& text) override {
        token();
        if (depth_ == event_depth_) {
            take_text(text);
        } else if (is_in_args() && args_key_ == "Collective name") {
            event_.collective = std::move(text);
        }
        return true;
    }

    bool start_object(std::size_t) override {
        open();
        events_.has_device = events_.has_device || (depth_ == 3 && top_key_ == "deviceProperties");
        if (depth_ == event_depth_) {
            event_ = {};
            key_.clear();
        }
        return true;
    }

    bool end_object() override {
        if (depth_ == event_depth_) {
            take_event();
        }
        close();
        return true;
    }

    bool start_array(std::size_t) override {
        const bool is_whole_file = depth_ == 0;
        const bool is_events = is_whole_file || (depth_ == 1 && top_key_ == "traceEvents");
        open();
        if (is_events) {
            event_depth_ = depth_ + 1;
            has_events_ = true;
        }
        return true;
    }

    bool end_array() override {
        if (depth_ + 1 == event_depth_) {
            event_depth_ = none;
        }
        close();
        return true;
    }

    bool key(std::string& name) override {
        token();
        if (depth_ == 1) {
            top_key_ = name;
        }
        if (is_in_args()) {
            args_key_ = std::move(name);
        } else if (depth_ == 2 || depth_ == event_depth_) {
            key_ = std::move(name);
        }
        return true;
    }

    bool parse_error(std::size_t,
                     const std::string&,
                     const nlohmann::detail::exception& error) override {
        if (source_.at_end() && has_events_) {
            return take_cut();
        }
        string_view reason = error.what();
        for (const string_view lead : {"] ", " - "}) {
            const std::size_t found = reason.find(lead);
            if (found != string_view::npos) {
                reason.remove_prefix(found + lead.size());
            }
        }
        throw Error(ErrorKind::BadInput,
                    source_.position(),
                    std::string(reason.substr(0, 200)),
                    source_.at_end()
                        ? "the file ends before its first event: export the trace again"
                        : "the file is damaged or no JSON: export the trace again");
    }

  private:
    /// Keeps what is whole of a file that ends too early: a profiler was killed, or a disk full.
    bool take_cut() {
        if (whole_events_ == 0) {
            throw Error(ErrorKind::BadInput,
                        source_.position(),
                        "the file ends here, before its first whole event",
                        "export the trace again");
        }
        events_.cut = fmt::format(
            "the file ends too early, at {}: {} before that {}, what the profiler had not written "
            "yet is missing",
            source_.position(),
            counted(whole_events_, "whole event"),
            verb_for(whole_events_, "counts", "count"));
        return false;
    }

    /// Calls without the kernels that they launched would give the times of the CPU for those of
    /// the GPU: profilers write kernels last.
    void expect_kernels() const {
        if (!events_.cut.empty() && !events_.has_kernels && !events_.launches.empty()) {
            throw Error(
                ErrorKind::BadInput,
                source_.position(),
                "the file ends here, before the kernels of the GPU, which a profiler writes "
                "last",
                "export the trace again; a trace of fewer steps is written sooner");
        }
    }

    static constexpr int none = -1;
    static constexpr int deepest = 512;
    static constexpr std::size_t longest_shown = 200;  ///< of a name that an error may show
    static constexpr std::size_t node_bytes = 128;     ///< of a map's entry and its strings, about

    bool token() {
        source_.token_ended();
        return true;
    }

    void open() {
        if (++depth_ > deepest) {
            throw Error(ErrorKind::BadInput,
                        source_.position(),
                        fmt::format("nested deeper than {}", deepest),
                        "no profiler nests that deep: export the trace again");
        }
    }
    void close() { --depth_; }

    /// Counts the memory for something that is kept.
    void keep(std::size_t bytes) {
        kept_.add(bytes, [this] { return source_.position(); });
    }

    /// Whether the next value stands in an event's "args".
    bool is_in_args() const {
        return event_depth_ != none && depth_ == event_depth_ + 1 && key_ == "args";
    }

    bool whole_number(std::int64_t value) {
        token();
        if (depth_ == event_depth_) {
            take_field(fmt::format_int(value).str(), false);
        } else if (is_in_args()) {
            if (args_key_ == "correlation") {
                event_.correlation = value;
            } else if (args_key_ == "Sequence number") {
                event_.sequence = value;
            } else if (args_key_ == "Fwd thread id") {
                event_.forward_thread = value;
            } else if (args_key_ == "Src Rank" && value >= 0 && value <= largest_traced_rank) {
                event_.source = static_cast<int>(value);
            } else if (args_key_ == "Dst Rank" && value >= 0 && value <= largest_traced_rank) {
                event_.target = static_cast<int>(value);
            }
        } else if (depth_ == 1 && top_key_ == "baseTimeNanoseconds") {
            if (value > 0 && value <= latest_moment * 1000) {
                events_.clock_base = Duration{value};
            }
        } else if (depth_ == 2 && top_key_ == "distributedInfo") {
            const bool is_count = value >= 0 && value <= largest_traced_rank;
            if (is_count && key_ == "rank") {
                events_.rank = static_cast<int>(value);
            } else if (is_count && key_ == "world_size") {
                events_.world_size = static_cast<int>(value);
            }
        }
        return true;
    }

    /// A number, or a string where a number is expected.
    void take_field(const std::string& text, bool is_string) {
        if (key_ == "dur") {
            event_.length.take(text, longest_event, is_string);
        } else if (key_ == "ts") {
            event_.begin.take(text, latest_moment, is_string);
        } else if (key_ == "pid") {
            event_.process = text;
        } else if (key_ == "tid") {
            event_.thread = text;
        }
    }

    void take_text(std::string& text) {
        if (!is_printable(text)) {
            text = printable(text);
        }
        if (key_ == "name") {
            event_.name = std::move(text);
        } else if (key_ == "cat") {
            event_.category = std::move(text);
        } else if (key_ == "ph") {
            event_.phase = std::move(text);
        } else {
            take_field(text, true);
        }
    }

    int lane(bool on_device) {
        std::string key = fmt::format("{} {} {}", on_device ? 1 : 0, event_.process, event_.thread);
        const std::size_t bytes = node_bytes + 2 * key.size();
        const auto [known, is_new] =
            lanes_.emplace(std::move(key), static_cast<int>(events_.lanes.size()));
        if (is_new) {
            keep(bytes);
            string_view name = event_.thread;
            name.remove_prefix(name.starts_with("stream ") ? 7 : 0);
            events_.lanes.push_back({.name = std::string(name), .on_device = on_device});
        }
        return known->second;
    }

    void take_event() {
        ++whole_events_;
        const string_view category = event_.category;
        const bool is_kernel = category == "kernel" || category == "Kernel";
        events_.has_kernels = events_.has_kernels || is_kernel;
        if (event_.phase != "X") {
            return;
        }
        if (is_kernel) {
            take_kernel();
            return;
        }
        const bool is_call = category.ends_with("_runtime") || category.ends_with("_driver") ||
                             category == "Runtime";
        if (is_call) {
            take_launch();
            return;
        }
        if (category == "cpu_op") {
            take_host_work();
        }
        if (names_.keeps_operators() && category == "cpu_op") {
            take_operator();
        }
        const bool is_annotation =
            category.empty() || category.find("annotation") != string_view::npos;
        if (is_annotation || event_.name.find(':') != std::string::npos) {
            take_annotation(is_annotation, category.starts_with("gpu_"));
        }
    }

    void take_kernel() {
        if (!event_.begin.value || !event_.length.value) {
            events_.damaged_kernel = events_.damaged_kernels == 0
                                         ? event_.name.substr(0, longest_shown)
                                         : events_.damaged_kernel;
            ++events_.damaged_kernels;
            return;
        }
        const auto [known, is_new] =
            kernel_names_.emplace(event_.name, static_cast<int>(events_.kernel_names.size()));
        if (is_new) {
            keep(node_bytes + 2 * event_.name.size());
            events_.kernel_names.push_back(event_.name);
        }
        keep(sizeof(TraceKernel));
        events_.kernels.push_back({.lane = lane(true),
                                   .name = known->second,
                                   .work = kernel_work(event_.name, event_.collective),
                                   .begin = *event_.begin.value,
                                   .length = *event_.length.value,
                                   .correlation = event_.correlation,
                                   .source = event_.source,
                                   .target = event_.target});
    }

    void take_launch() {
        if (event_.correlation && event_.begin.value) {
            keep(sizeof(TraceLaunch));
            events_.launches.push_back(
                {.correlation = *event_.correlation,
                 .lane = lane(false),
                 .begin = *event_.begin.value,
                 .is_of_kernel = event_.name.find("LaunchKernel") != std::string::npos});
        }
    }

    /// The kind of work that an operator is; none where it says nothing about the pipeline.
    std::optional<HostWork::Kind> kind_of_work() const {
        const string_view name = event_.name;
        if (name.starts_with("autograd::engine::evaluate_function")) {
            return HostWork::Kind::Node;
        }
        if (const string_view word = message_word(name); !word.empty()) {
            return word == "send" ? HostWork::Kind::Send : HostWork::Kind::Receive;
        }
        const bool is_of_forward = event_.sequence.value_or(-1) >= 0 && event_.forward_thread == 0;
        return is_of_forward ? std::optional(HostWork::Kind::Operator) : std::nullopt;
    }

    /// Profilers write what is around an operator before it, so most of what is inside is left out.
    void take_host_work() {
        const std::optional<HostWork::Kind> kind = kind_of_work();
        if (!kind || !event_.begin.value || !event_.length.value) {
            return;
        }
        const HostWork work{.kind = *kind,
                            .lane = lane(false),
                            .begin = *event_.begin.value,
                            .length = *event_.length.value,
                            .number = event_.sequence.value_or(-1)};
        const auto [last, is_new] = last_work_.emplace(work.lane, work);
        const bool is_inside =
            !is_new && last->second.begin <= work.begin && work.end() <= last->second.end();
        if (!is_inside || is_new) {
            last->second = work;
            keep(sizeof(HostWork));
            events_.host_work.push_back(work);
        }
    }

    void take_operator() {
        if (event_.sequence.value_or(-1) >= 0 && event_.begin.value && event_.length.value) {
            keep(sizeof(TraceOperator));
            events_.operators.push_back({.sequence = *event_.sequence,
                                         .forward_thread = event_.forward_thread,
                                         .lane = lane(false),
                                         .begin = *event_.begin.value,
                                         .length = *event_.length.value});
        }
    }

    void take_annotation(bool is_annotation, bool on_device) {
        std::optional<NamedAction> action;
        try {
            if (is_annotation || !names_.are_patterns()) {
                action = names_.find(event_.name);
            }
        } catch (const Error& error) {
            throw error.at(source_.position());
        }
        if (action && action->is_pair) {
            ++events_.overlapped_pairs;
        } else if (action) {
            take_range(*action, on_device);
        } else if (event_.begin.value && event_.length.value) {
            take_mark(on_device);
        }
    }

    void take_mark(bool on_device) {
        const Duration begin = *event_.begin.value;
        const Duration length = *event_.length.value;
        if (const auto number = number_behind(event_.name, "ProfilerStep#")) {
            keep(sizeof(TraceStep));
            events_.steps.push_back(
                {.number = *number, .lane = lane(on_device), .begin = begin, .length = length});
        } else if (event_.name.starts_with("Optimizer.")) {
            const int which = event_.name.starts_with("Optimizer.step") ? 0 : -1;
            keep(sizeof(TraceStep));
            events_.optimizer_steps.push_back(
                {.number = which, .lane = lane(on_device), .begin = begin, .length = length});
        } else if (const string_view word = message_word(event_.name); !word.empty()) {
            keep(sizeof(TraceMessage));
            const auto [source, target] = ends_of_message(event_.name);
            events_.messages.push_back({.is_send = word == "send",
                                        .lane = lane(on_device),
                                        .begin = begin,
                                        .length = length,
                                        .source = source,
                                        .target = target});
        }
    }

    void take_range(const NamedAction& action, bool on_device) {
        TraceRange range{.action = action,
                         .lane = lane(on_device),
                         .begin = event_.begin.value,
                         .length = event_.length.value};
        if (!range.length) {
            const std::string& written = event_.length.text;
            range.name = event_.name.substr(0, longest_shown);
            range.place = source_.position();
            range.defect =
                written.empty()
                    ? fmt::format("range '{}' has no \"dur\", expected microseconds", range.name)
                    : fmt::format("range '{}' has \"dur\": {}, expected microseconds from 0 to {}",
                                  range.name,
                                  written,
                                  longest_event);
        }
        keep(sizeof(TraceRange) + range.name.size() + range.place.size() + range.defect.size());
        events_.ranges.push_back(std::move(range));
    }

    ByteSource& source_;
    TraceText& text_;
    string_view place_;
    const RangeNames& names_;
    KeptMemory kept_;
    TraceEvents events_;
    std::map<std::string, int> lanes_;
    std::map<std::string, int> kernel_names_;
    std::map<int, HostWork> last_work_;  ///< [lane]: the last that is not inside of another
    bool has_events_ = false;
    std::int64_t whole_events_ = 0;
    int depth_ = 0;
    int event_depth_ = none;  ///< of an event's own keys, inside the list of events
    std::string top_key_;
    std::string key_;
    std::string args_key_;
    JsonEvent event_;
};

TraceEvents events_of(string_view place,
                      ByteSource::Blocks blocks,
                      const RangeNames& names,
                      const TraceLimits& limits = {}) {
    const Undertaking undertaking(
        fmt::format("the events of the trace {}", place),
        "a trace of fewer steps does, or a higher limit of memory ('ulimit -v' shows it)");
    ByteSource source(place, std::move(blocks), limits);
    TraceText text(source);
    EventReader reader(source, text, place, names, limits);
    json::sax_parse(ByteIterator<TraceText>(&text), ByteIterator<TraceText>(), &reader);
    return reader.take();
}

}  // namespace

TraceEvents parse_torch_events(string_view text, string_view place, const RangeNames& names) {
    return events_of(place, blocks_of_text(text), names);
}

TraceEvents read_torch_events(const std::filesystem::path& file,
                              const RangeNames& names,
                              const TraceLimits& limits) {
    return events_of(file.string(), blocks_of_file(file, limits), names, limits);
}

}  // namespace pipetwin
