#include "core/formats/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/edge.h"
#include "core/error.h"
#include "core/formats/chrome_trace_words.h"
#include "core/formats/json_object.h"
#include "core/formats/json_text.h"
#include "core/formats/schedule_csv.h"
#include "core/validate.h"

namespace pipetwin {

namespace {

using namespace chrome_trace;
using nlohmann::json;
using std::string_view;

constexpr std::size_t max_trace_bytes = std::size_t{1} << 30;

constexpr std::array<string_view, 13> metadata_keys{"schema_version",
                                                    "tool_version",
                                                    "origin",
                                                    "plan_hash",
                                                    "schedule",
                                                    "rows",
                                                    "channel_capacity",
                                                    "samples",
                                                    "step_begins_ns",
                                                    "peak_bytes",
                                                    "breakdown_ns",
                                                    "replayed_step_ns",
                                                    "noise"};
constexpr string_view foreign_hint =
    "this reads the traces that run, train and simulate write; another program's trace has to be "
    "imported first";

Origin read_origin(const JsonObject& object) {
    const std::string word = object.text("origin");
    for (const Origin origin : {Origin::Predicted, Origin::Measured, Origin::Emulated}) {
        if (to_string(origin) == word) {
            return origin;
        }
    }
    object.refuse("origin", "predicted, measured or emulated");
}

/// Reads the events into rows that the metadata has laid out.
class Reader {
  public:
    Reader(const json& document, string_view place) : document_(document), place_(place) {}

    Trace read() {
        const JsonObject top(document_, place_, "");
        if (!top.has("pipetwin")) {
            throw Error(ErrorKind::BadInput,
                        std::string(place_),
                        "no trace of ours: the object \"pipetwin\" is missing",
                        std::string(foreign_hint));
        }
        top.expect_keys(std::array<string_view, 3>{"displayTimeUnit", "pipetwin", "traceEvents"});
        read_metadata(top.object("pipetwin"));
        for (const JsonObject& event : top.objects("traceEvents")) {
            read_event(event);
        }
        expect_complete();
        return std::move(trace_);
    }

  private:
    void read_metadata(const JsonObject& object) {
        object.expect_keys(metadata_keys);
        if (object.whole("schema_version") != schema_version) {
            object.refuse("schema_version", fmt::format("{}", schema_version));
        }
        trace_.plan_hash = object.text("plan_hash");
        trace_.schedule_name = object.text("schedule");
        trace_.schedule =
            parse_schedule_csv(object.text("rows"), fmt::format("{}: /pipetwin/rows", place_));
        expect_valid(trace_.schedule);
        if (!object.is_null("channel_capacity")) {
            trace_.channel_capacity = count_in(object, "channel_capacity");
        }
        if (!object.is_null("samples")) {
            trace_.samples = object.whole("samples");
        }
        for (const std::int64_t begin : object.wholes("step_begins_ns")) {
            begins_.push_back(Duration{begin});
        }
        if (begins_.empty()) {
            object.refuse("step_begins_ns", "at least one step");
        }
        for (const std::int64_t peak : object.wholes("peak_bytes")) {
            trace_.timelines.peak_bytes.push_back(Bytes{peak});
        }
        if (!object.is_null("breakdown_ns")) {
            read_breakdown(object.object("breakdown_ns"));
        }
        if (object.has("replayed_step_ns") && !object.is_null("replayed_step_ns")) {
            trace_.timelines.replayed_step = Duration{object.whole("replayed_step_ns")};
        }
        read_noise(object.object("noise"));
        lay_out_rows(read_origin(object));
    }

    void expect_valid(const Schedule& schedule) const {
        const std::vector<Violation> violations = validate(schedule);
        if (!violations.empty()) {
            const Violation& first = violations.front();
            throw Error(
                ErrorKind::BadInput,
                fmt::format("{}: /pipetwin/rows", place_),
                fmt::format(
                    "no valid schedule: rank {}, {}: {}", first.rank, first.action, first.why),
                "the file was edited; write it anew");
        }
    }

    void read_breakdown(const JsonObject& object) {
        std::vector<string_view> keys;
        // NOLINTNEXTLINE(misc-const-correctness): written through pointers to members
        Breakdown breakdown;
        for (const BreakdownPart& part : breakdown_parts) {
            keys.push_back(part.word);
            breakdown.*part.value = Duration{object.whole(part.word)};
        }
        object.expect_keys(keys);
        trace_.timelines.breakdown = breakdown;
    }

    void read_noise(const JsonObject& object) {
        object.expect_keys(
            std::array<string_view, 4>{"stolen_percent", "p90_over_p10", "dropped_steps", "steps"});
        trace_.timelines.noise = {.stolen_percent = object.number_or("stolen_percent", 0),
                                  .p90_over_p10 = object.number_or("p90_over_p10", 1),
                                  .dropped_steps = count_in(object, "dropped_steps"),
                                  .steps = count_in(object, "steps")};
    }

    /// Every span of every step, still without times.
    void lay_out_rows(Origin origin) {
        const auto& rows = trace_.schedule.ranks;
        trace_.memory.resize(rows.size());
        for (std::size_t step = 0; step < begins_.size(); ++step) {
            Timeline& timeline = trace_.timelines.steps.emplace_back();
            timeline.origin = origin;
            auto& seen = seen_.emplace_back();
            for (const auto& row : rows) {
                seen.emplace_back(row.size(), false);
                auto& spans = timeline.ranks.emplace_back();
                for (const Action& action : row) {
                    spans.push_back({.action = action});
                }
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
        args.expect_keys(std::array<string_view, 4>{"step", "cell", "edge", "wait_us"});
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
        const std::size_t rank = index_in(event, "pid", trace_.schedule.ranks.size());
        if (lane == CopyOutLane || lane == CopyInLane) {
            read_host_copy(event, args, span, trace_.timelines.steps[step]);
            return;
        }
        auto& row = trace_.timelines.steps[step].ranks[rank];
        const std::size_t cell = index_in(args, "cell", row.size());
        span.action = row[cell].action;
        expect_name(event, span.action);
        if (lane != lane_of(span.action.op)) {
            event.refuse("tid", fmt::format("{}", static_cast<int>(lane_of(span.action.op))));
        }
        if (seen_[step][rank][cell]) {
            args.refuse("cell", "each cell once per step");
        }
        seen_[step][rank][cell] = true;
        row[cell] = span;
    }

    /// The action of a link's span is its k-th send: messages travel in order.
    void read_link(const JsonObject& event, const JsonObject& args, Span span, Timeline& timeline) {
        const std::size_t stages = trace_.schedule.rank_of_stage.size();
        const std::size_t edges = stages < 2 ? 0 : 2 * (stages - 1);
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

    /// All sends of an edge in row order.
    const std::vector<Action>& sends_of(std::size_t edge) {
        if (sends_.empty()) {
            sends_.resize(2 * trace_.schedule.rank_of_stage.size());
            for (const auto& row : trace_.schedule.ranks) {
                for (const Action& action : row) {
                    if (is_send(action.op)) {
                        sends_.at(static_cast<std::size_t>(edge_of(action))).push_back(action);
                    }
                }
            }
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
            for (std::size_t rank = 0; rank < seen_[step].size(); ++rank) {
                for (std::size_t cell = 0; cell < seen_[step][rank].size(); ++cell) {
                    if (!seen_[step][rank][cell]) {
                        throw Error(ErrorKind::BadInput,
                                    fmt::format("{}: /traceEvents", place_),
                                    fmt::format("{} of step {}, rank {}, cell {} is missing",
                                                to_string(trace_.schedule.ranks[rank][cell]),
                                                step,
                                                rank,
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

    static int count_in(const JsonObject& object, string_view key) {
        const std::int64_t value = object.whole(key);
        if (value > std::numeric_limits<int>::max()) {
            object.refuse(key, "a number below 2^31");
        }
        return static_cast<int>(value);
    }

    static std::size_t index_in(const JsonObject& object, string_view key, std::size_t count) {
        const std::int64_t value = object.whole(key);
        if (std::cmp_greater_equal(value, count)) {
            object.refuse(key, fmt::format("a number below {}", count));
        }
        return static_cast<std::size_t>(value);
    }

    const json& document_;
    string_view place_;
    Trace trace_;
    std::vector<Duration> begins_;
    std::vector<std::vector<std::vector<bool>>> seen_;  ///< [step][rank][cell]
    std::vector<std::vector<Action>> sends_;            ///< [edge]
};

}  // namespace

Trace parse_chrome_trace(string_view text, string_view place) {
    const json document = parse_json(text, place, {.max_bytes = max_trace_bytes});
    return Reader(document, place).read();
}

Trace read_chrome_trace(const std::filesystem::path& file) {
    return parse_chrome_trace(read_file(file, max_trace_bytes), file.string());
}

}  // namespace pipetwin
