// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/artifacts/chrome_trace_metadata.h"
#include "core/artifacts/chrome_trace_stream.h"
#include "core/artifacts/chrome_trace_words.h"
#include "core/artifacts/report_noise.h"
#include "core/artifacts/trace_contradictions.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/undertaking.h"
#include "core/schedule/edge.h"
#include "core/text/file_blocks.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using namespace chrome_trace;
using nlohmann::json;
using std::string_view;

constexpr std::size_t max_trace_bytes = std::size_t{1} << 30;

/// Reads the events into rows that the metadata has laid out.
class Reader {
  public:
    /// `bytes` long is the text of the document.
    Reader(const json& document, std::size_t bytes, string_view place)
        : document_(document), bytes_(bytes), place_(place) {}

    Trace read() {
        const JsonObject top(document_, place_, "");
        Metadata metadata = read_metadata(top, place_);
        expect_room(metadata);
        lay_out_rows(std::move(metadata));
        for (const JsonObject& event : top.objects("traceEvents")) {
            read_event(event);
        }
        expect_complete();
        return std::move(trace_);
    }

  private:
    /// Throws if the metadata promise more rows than the text can hold: else a few numbers of a
    /// damaged file could ask for terabytes.
    void expect_room(const Metadata& metadata) const {
        constexpr std::size_t shortest_slice = 8;  // bytes; in truth 80
        const std::size_t most = bytes_ / shortest_slice;
        if (metadata.begins.size() > most / std::max<std::size_t>(metadata.actions(), 1)) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}: /traceEvents", place_),
                        fmt::format("{} bytes cannot hold the {} of each of {}",
                                    bytes_,
                                    counted(metadata.actions(), "action"),
                                    counted(metadata.begins.size(), "step")),
                        "the file was cut short or edited; write it anew");
        }
    }

    void lay_out_rows(Metadata metadata) {
        begins_ = std::move(metadata.begins);
        trace_ = std::move(metadata.trace);
        const auto& rows = trace_.schedule.ranks;
        trace_.memory.resize(rows.size());
        for (std::size_t step = 0; step < begins_.size(); ++step) {
            trace_.timelines.steps.push_back(
                empty_step(trace_.schedule, metadata.origin, metadata.replicas));
            auto& seen = seen_.emplace_back();
            for (std::size_t row = 0; row < metadata.replicas * rows.size(); ++row) {
                seen.emplace_back(rows[row % rows.size()].size(), false);
            }
        }
    }

    void read_event(const JsonObject& event) {
        const std::string phase = event.text("ph");
        if (phase == "X") {
            event.expect_keys(
                std::array<string_view, 8>{"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"});
            read_slice(event);
        } else if (phase == "C") {
            event.expect_keys(std::array<string_view, 5>{"ph", "name", "pid", "ts", "args"});
            read_counter(event);
        } else if (phase != "M" && phase != "s" && phase != "f") {
            // Names and arrows follow from the rows, so they need not be read.
            event.refuse("ph", "X, C, M, s or f");
        }
    }

    void read_slice(const JsonObject& event) {
        const JsonObject args = event.object("args");
        args.expect_keys(
            std::array<string_view, 5>{"step", "cell", "edge", "wait_us", "groups_us"});
        const std::size_t step = index_in(args, "step", begins_.size());
        const std::int64_t lane = event.whole("tid");
        Span span;
        span.begin = time_in(event, "ts") - begins_[step];
        span.end = span.begin + time_in(event, "dur");
        span.ready = args.has("wait_us") ? span.begin + time_in(args, "wait_us") : span.begin;
        if (lane == LinkLane) {
            read_link(event, args, span, trace_.timelines.steps[step]);
            return;
        }
        if (lane == CopyOutLane || lane == CopyInLane) {
            read_host_copy(event, args, span, trace_.timelines.steps[step]);
            return;
        }
        const std::size_t place = index_in(event, "pid", trace_.timelines.steps[step].row_count());
        auto& row = trace_.timelines.steps[step].row_at(place);
        const std::size_t cell = index_in(args, "cell", row.size());
        span.action = row[cell].action;
        expect_name(event, span.action);
        if (lane != lane_of(span.action.op)) {
            event.refuse("tid", fmt::format("{}", static_cast<int>(lane_of(span.action.op))));
        }
        if (seen_[step][place][cell]) {
            args.refuse("cell", "each cell once per step");
        }
        seen_[step][place][cell] = true;
        row[cell] = span;
        if (args.has("groups_us")) {
            Timeline& timeline = trace_.timelines.steps[step];
            if (place >= timeline.ranks.size()) {
                args.refuse("groups_us", "none in rows of other replicas");
            }
            note_in_groups(timeline, place, cell, time_in(args, "groups_us"));
        }
    }

    /// The action of a link's span is its k-th send: messages travel in order.
    void read_link(const JsonObject& event, const JsonObject& args, Span span, Timeline& timeline) {
        const std::size_t edges = edge_count(trace_.schedule);
        const std::size_t edge = index_in(args, "edge", edges);
        timeline.links.resize(edges);
        const std::size_t message = timeline.links[edge].size();
        const std::vector<Action>& sends = sends_of(edge);
        if (message >= sends.size()) {
            args.refuse("edge", fmt::format("an edge with more than {} messages", sends.size()));
        }
        span.action = sends[message];
        expect_name(event, span.action);
        timeline.links[edge].push_back(span);
    }

    void read_host_copy(const JsonObject& event,
                        const JsonObject& args,
                        Span span,
                        Timeline& timeline) {
        const std::size_t rank = index_in(event, "pid", trace_.schedule.ranks.size());
        const std::vector<Action>& row = trace_.schedule.ranks[rank];
        span.action = row[index_in(args, "cell", row.size())];
        expect_name(event, span.action);
        timeline.host_copies.resize(2 * trace_.schedule.ranks.size());
        const std::size_t direction = event.whole("tid") == CopyOutLane ? 0 : 1;
        timeline.host_copies[2 * rank + direction].push_back(span);
    }

    const std::vector<Action>& sends_of(std::size_t edge) {
        if (sends_.empty()) {
            sends_ = sends_by_edge(trace_.schedule);
        }
        return sends_.at(edge);
    }

    void read_counter(const JsonObject& event) {
        const std::size_t rank = index_in(event, "pid", trace_.memory.size());
        const JsonObject args = event.object("args");
        MemoryPoint point;
        point.time = time_in(event, "ts");
        for (int kind = 0; kind < memory_kind_count; ++kind) {
            const auto memory_kind = static_cast<MemoryKind>(kind);
            point.use[memory_kind] = Bytes{args.whole(to_string(memory_kind))};
        }
        trace_.memory[rank].push_back(point);
    }

    void expect_complete() {
        for (std::size_t step = 0; step < seen_.size(); ++step) {
            const std::size_t ranks = trace_.schedule.ranks.size();
            for (std::size_t row = 0; row < seen_[step].size(); ++row) {
                for (std::size_t cell = 0; cell < seen_[step][row].size(); ++cell) {
                    if (!seen_[step][row][cell]) {
                        const std::size_t replica = row / ranks;
                        throw Error(
                            ErrorKind::BadInput,
                            fmt::format("{}: /traceEvents", place_),
                            fmt::format("{} of step {}, {}rank {}, cell {} is missing",
                                        to_string(trace_.schedule.ranks[row % ranks][cell]),
                                        step,
                                        replica > 0 ? fmt::format("replica {}, ", replica) : "",
                                        row % ranks,
                                        cell),
                            "the file was cut short or edited; write it anew");
                    }
                }
            }
        }
        const bool no_memory =
            std::ranges::all_of(trace_.memory, [](const auto& points) { return points.empty(); });
        if (no_memory) {
            trace_.memory.clear();
        }
    }

    void expect_name(const JsonObject& event, const Action& action) const {
        const std::string expected = "PP:" + to_string(action);
        if (event.text("name") != expected) {
            event.refuse("name", fmt::format("{}, the action of this cell", expected));
        }
    }

    /// Microseconds to whole nanoseconds.
    static Duration time_in(const JsonObject& object, string_view key) {
        if (!object.has(key)) {
            object.missing(key, "microseconds");
        }
        const double nanoseconds = object.number_or(key, 0) * 1000;
        if (nanoseconds > 9e15) {
            object.refuse(key, "less than 9e12 microseconds");
        }
        return Duration{std::llround(nanoseconds)};
    }

    static std::size_t index_in(const JsonObject& object, string_view key, std::size_t count) {
        const std::int64_t value = object.whole(key);
        if (std::cmp_greater_equal(value, count)) {
            object.refuse(key, fmt::format("a number below {}", count));
        }
        return as_index(value);
    }

    const json& document_;
    std::size_t bytes_;
    string_view place_;
    Trace trace_;
    std::vector<Duration> begins_;
    std::vector<std::vector<std::vector<bool>>> seen_;  ///< [step][Timeline::row_at][cell]
    std::vector<std::vector<Action>> sends_;            ///< [edge]
};

/// The reader of every layout and the one that says exactly what is wrong; it takes 20 times the
/// memory of the text.
Trace parse_strictly(string_view text, string_view place) {
    const json document = parse_json(text, place, {.max_bytes = max_trace_bytes});
    return Reader(document, text.size(), place).read();
}

/// Up to here a trace is read again to say what is wrong with it.
constexpr std::size_t largest_strict = std::size_t{16} << 20;

/// The trace itself. Throws Error(BadInput) where its steps contradict themselves.
Trace consistent(Trace trace, string_view place) {
    if (std::optional<std::string> found = contradiction(trace)) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: /traceEvents", place),
                    *std::move(found),
                    "the file was edited or damaged; write it anew");
    }
    return trace;
}

TraceStream stream_of(const std::filesystem::path& file) {
    std::error_code unknown;  // what cannot be opened is refused below
    const std::uintmax_t size = std::filesystem::file_size(file, unknown);
    TraceStream stream(file.string(), unknown ? 0 : size);
    read_blocks(file, max_trace_bytes, [&](string_view block) { stream.feed(block); });
    stream.finish();
    return stream;
}

}  // namespace

Trace parse_chrome_trace(string_view text, string_view place) {
    TraceStream stream(std::string(place), text.size());
    constexpr std::size_t block = std::size_t{1} << 16;
    for (std::size_t at = 0; at < text.size(); at += block) {
        stream.feed(text.substr(at, block));
    }
    stream.finish();
    if (stream.complete()) {
        return consistent(stream.take(), place);
    }
    if (text.size() <= largest_strict) {
        return consistent(parse_strictly(text, place), place);
    }
    throw stream.error();
}

Trace read_chrome_trace(const std::filesystem::path& file) {
    const Undertaking undertaking(
        fmt::format("the steps of the trace {}", file.string()),
        "a trace of fewer steps does, or a higher limit of memory ('ulimit -v' shows it)");
    TraceStream stream = stream_of(file);
    if (!stream.complete() && stream.bytes() > largest_strict) {
        throw stream.error();
    }
    Trace trace = stream.complete()
                      ? stream.take()
                      : parse_strictly(read_file(file, max_trace_bytes), file.string());
    trace = consistent(std::move(trace), file.string());
    complete_noise(trace, file);
    return trace;
}

TraceSoFar read_chrome_trace_so_far(const std::filesystem::path& file) {
    TraceStream stream = stream_of(file);
    if (stream.complete()) {
        TraceSoFar whole{.trace = consistent(stream.take(), file.string())};
        complete_noise(whole.trace, file);
        return whole;
    }
    Error error = stream.error();
    if (stream.bytes() <= largest_strict) {
        try {
            return {.trace = parse_strictly(read_file(file, max_trace_bytes), file.string())};
        } catch (const Error& exact) {
            error = exact;
        }
    }
    if (!stream.has_metadata()) {
        throw error;
    }
    TraceSoFar result{.trace = {}, .ended_at = stream.stop()};
    const std::size_t steps = stream.step_count();
    result.trace = stream.take();
    const std::size_t whole = result.trace.timelines.steps.size();
    std::vector<int>& numbers = result.trace.timelines.numbers;
    numbers.resize(std::min(whole, numbers.size()));
    const std::string byte = fmt::format("at byte {} of {}", stream.stop(), stream.bytes());
    result.problem = whole > 0 && whole == steps
                         ? fmt::format("{}: the file is cut short or damaged {} ({}); the {} shown",
                                       file.string(),
                                       byte,
                                       error.text(),
                                       steps == 1 ? "step before it is"
                                                  : fmt::format("{} steps before it are", steps))
                         : fmt::format("{}: only {} of {} can be shown: reading ended {}: {}",
                                       file.string(),
                                       whole,
                                       counted(steps, "step"),
                                       byte,
                                       error.text());
    return result;
}

}  // namespace pipetwin
