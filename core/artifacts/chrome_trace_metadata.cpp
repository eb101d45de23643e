// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/chrome_trace_metadata.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/artifacts/chrome_trace_words.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/schedule/edge.h"
#include "core/schedule/rows_hash.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"

namespace pipetwin::chrome_trace {

namespace {

using std::string_view;

constexpr std::array<string_view, 15> metadata_keys{"schema_version",
                                                    "tool_version",
                                                    "origin",
                                                    "plan_hash",
                                                    "schedule",
                                                    "rows",
                                                    "channel_capacity",
                                                    "samples",
                                                    "replicas",
                                                    "step_begins_ns",
                                                    "step_numbers",
                                                    "peak_bytes",
                                                    "breakdown_ns",
                                                    "replayed_step_ns",
                                                    "noise"};
constexpr string_view foreign_hint =
    "'pipetwin run', 'train' and 'simulate' write such traces; 'pipetwin import' converts the "
    "files "
    "of other programs";

Origin read_origin(const JsonObject& object) {
    const std::string word = object.text("origin");
    for (const Origin origin : {Origin::Predicted, Origin::Measured, Origin::Emulated}) {
        if (to_string(origin) == word) {
            return origin;
        }
    }
    object.refuse("origin", "predicted, measured or emulated");
}

int count_in(const JsonObject& object, string_view key) {
    const std::int64_t value = object.whole(key);
    if (value > std::numeric_limits<int>::max()) {
        object.refuse(key, "a number below 2^31");
    }
    return static_cast<int>(value);
}

class MetadataReader {
  public:
    explicit MetadataReader(string_view place) : place_(place) {}

    Metadata take() { return std::move(result_); }

    void read(const JsonObject& object) {
        object.expect_keys(metadata_keys);
        if (object.whole("schema_version") != schema_version) {
            object.refuse("schema_version", fmt::format("{}", schema_version));
        }
        result_.trace.plan_hash = object.text("plan_hash");
        result_.trace.schedule_name = object.text("schedule");
        result_.trace.schedule =
            parse_schedule_csv(object.text("rows"), fmt::format("{}: /pipetwin/rows", place_));
        expect_valid(result_.trace.schedule);
        const std::string& hash = result_.trace.plan_hash;
        if (!hash.empty() && hash != rows_hash(result_.trace.schedule)) {
            object.refuse("plan_hash",
                          fmt::format("{}, as these rows have", rows_hash(result_.trace.schedule)),
                          "the file was put together from two plans or edited; write it anew");
        }
        if (!object.is_null("channel_capacity")) {
            result_.trace.channel_capacity = count_in(object, "channel_capacity");
        }
        if (!object.is_null("samples")) {
            result_.trace.samples = object.whole("samples");
        }
        constexpr int most_replicas = 65536;
        result_.replicas = object.has("replicas") ? as_index(count_in(object, "replicas")) : 1;
        if (result_.replicas < 1 || result_.replicas > most_replicas) {
            object.refuse("replicas", fmt::format("1 to {}", most_replicas));
        }
        for (const std::int64_t begin : object.wholes("step_begins_ns")) {
            result_.begins.push_back(Duration{begin});
        }
        if (result_.begins.empty()) {
            object.refuse("step_begins_ns", "at least one step");
        }
        if (!std::ranges::is_sorted(result_.begins)) {
            object.refuse("step_begins_ns",
                          "steps that begin one after the other",
                          "the file was edited; write it anew");
        }
        if (object.has("step_numbers")) {
            read_step_numbers(object);
        }
        for (const std::int64_t peak : object.wholes("peak_bytes")) {
            result_.trace.timelines.peak_bytes.push_back(Bytes{peak});
        }
        if (!object.is_null("breakdown_ns")) {
            read_breakdown(object.object("breakdown_ns"));
        }
        if (object.has("replayed_step_ns") && !object.is_null("replayed_step_ns")) {
            result_.trace.timelines.replayed_step = Duration{object.whole("replayed_step_ns")};
        }
        read_noise(object.object("noise"));
        result_.origin = read_origin(object);
    }

  private:
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

    void read_step_numbers(const JsonObject& object) {
        std::vector<int>& numbers = result_.trace.timelines.numbers;
        for (const std::int64_t number : object.wholes("step_numbers")) {
            const bool ascends = numbers.empty() || number > numbers.back();
            if (!ascends || number > std::numeric_limits<int>::max()) {
                object.refuse("step_numbers", "ascending numbers below 2^31");
            }
            numbers.push_back(static_cast<int>(number));
        }
        if (numbers.size() != result_.begins.size()) {
            object.refuse(
                "step_numbers",
                fmt::format("{}, as step_begins_ns has", counted(result_.begins.size(), "number")));
        }
    }

    void read_breakdown(const JsonObject& object) {
        std::vector<string_view> keys;
        // NOLINTNEXTLINE(misc-const-correctness): written through pointers to members
        Breakdown breakdown;
        for (const BreakdownPart& part : breakdown_parts) {
            // Older versions wrote "bubble", the word for the whole idle share of a step.
            const bool is_old = part.value == &Breakdown::fill_and_drain && object.has("bubble");
            const string_view key = is_old ? "bubble" : part.key;
            keys.push_back(key);
            breakdown.*part.value = Duration{object.whole(key)};
        }
        object.expect_keys(keys);
        result_.trace.timelines.breakdown = breakdown;
    }

    /// None where the trace is of a version that did not keep it.
    static std::optional<double> costs_apart(const JsonObject& object) {
        return object.has("costs_apart") ? std::optional(object.number_or("costs_apart", 1))
                                         : std::nullopt;
    }

    void read_noise(const JsonObject& object) {
        object.expect_keys(std::array<string_view, 7>{"stolen_percent",
                                                      "p90_over_p10",
                                                      "dropped_steps",
                                                      "steps",
                                                      "costs_apart",
                                                      "sharing_ranks",
                                                      "shared_cores"});
        const auto count_if_known = [&object](string_view key) {
            return object.has(key) ? count_in(object, key) : 0;
        };
        result_.trace.timelines.noise = {.stolen_percent = object.number_or("stolen_percent", 0),
                                         .p90_over_p10 = object.number_or("p90_over_p10", 1),
                                         .dropped_steps = count_in(object, "dropped_steps"),
                                         .steps = count_in(object, "steps"),
                                         .costs_apart = costs_apart(object),
                                         .sharing_ranks = count_if_known("sharing_ranks"),
                                         .shared_cores = count_if_known("shared_cores")};
    }

    string_view place_;
    Metadata result_;
};

}  // namespace

std::size_t Metadata::actions() const {
    std::size_t sum = 0;
    for (const auto& row : trace.schedule.ranks) {
        sum += replicas * row.size();
    }
    return sum;
}

void expect_room(const Metadata& metadata, std::uint64_t size, string_view place) {
    constexpr std::uint64_t shortest_slice = 32;                 // bytes; in truth 80
    constexpr std::uint64_t harmless = std::uint64_t{16} << 20;  // a short file may be a cut one
    if (metadata.actions() > std::max(size, harmless) / shortest_slice) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: /traceEvents", place),
                    fmt::format("{} bytes cannot hold the {} of a step",
                                size,
                                counted(metadata.actions(), "action")),
                    "the file was cut short or edited; write it anew");
    }
}

Metadata read_metadata(const JsonObject& top, string_view place) {
    if (!top.has("pipetwin")) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    "not a trace that pipetwin wrote: the object \"pipetwin\" is missing",
                    std::string(foreign_hint));
    }
    top.expect_keys(std::array<string_view, 3>{"displayTimeUnit", "pipetwin", "traceEvents"});
    MetadataReader reader(place);
    reader.read(top.object("pipetwin"));
    return reader.take();
}

Timeline empty_step(const Schedule& schedule, Origin origin, std::size_t replicas) {
    Timeline step;
    step.origin = origin;
    for (const auto& row : schedule.ranks) {
        auto& spans = step.ranks.emplace_back();
        spans.reserve(row.size());
        for (const Action& action : row) {
            spans.push_back({.action = action});
        }
    }
    step.replicas.assign(replicas - 1, step.ranks);
    return step;
}

std::vector<std::vector<Action>> sends_by_edge(const Schedule& schedule) {
    std::vector<std::vector<Action>> sends(edge_count(schedule));
    for (const auto& row : schedule.ranks) {
        for (const Action& action : row) {
            if (is_send(action.op)) {
                sends.at(as_index(edge_of(schedule, action))).push_back(action);
            }
        }
    }
    return sends;
}

}  // namespace pipetwin::chrome_trace
