// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/live_steps.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using nlohmann::json;

constexpr int live_version = 1;
constexpr std::size_t numbers_per_span = 3;

Origin origin_of(const JsonObject& object) {
    const std::string word = object.text("origin");
    for (const Origin origin : {Origin::Measured, Origin::Emulated, Origin::Predicted}) {
        if (to_string(origin) == word) {
            return origin;
        }
    }
    object.refuse("origin", "predicted, measured or emulated");
}

}  // namespace

std::string print_live_header(const LiveHeader& header) {
    const json line{{"live", live_version},
                    {"plan_hash", header.plan_hash},
                    {"schedule", header.schedule_name},
                    {"origin", std::string(to_string(header.origin))},
                    {"rows", print_schedule_csv(header.schedule)}};
    return line.dump() + '\n';
}

std::string print_live_step(const LiveStep& step) {
    fmt::memory_buffer line;
    const auto out = std::back_inserter(line);
    fmt::format_to(out, "{{\"step\":{},\"spans\":[", step.step);
    bool first_row = true;
    for (const std::vector<Span>& row : step.timeline.ranks) {
        fmt::format_to(out, "{}[", std::exchange(first_row, false) ? "" : ",");
        bool first = true;
        for (const Span& span : row) {
            fmt::format_to(out,
                           "{}{},{},{}",
                           std::exchange(first, false) ? "" : ",",
                           span.begin.count(),
                           span.ready.count(),
                           span.end.count());
        }
        line.push_back(']');
    }
    fmt::format_to(out, "]}}\n");
    return fmt::to_string(line);
}

std::string LiveReader::line_place() const {
    return fmt::format("{}:{}", place_, line_ + 1);
}

void LiveReader::take_header(std::string_view line) {
    const std::string place = line_place();
    const json document = parse_json(line, place);
    const JsonObject object(document, place, "");
    object.expect_keys(
        std::array<std::string_view, 5>{"live", "plan_hash", "schedule", "origin", "rows"});
    if (object.whole("live") != live_version) {
        object.refuse("live", fmt::format("{}", live_version));
    }
    header_.plan_hash = object.text("plan_hash");
    header_.schedule_name = object.text("schedule");
    header_.origin = origin_of(object);
    header_.schedule = parse_schedule_csv(object.text("rows"), place + ": /rows");
    if (!validate(header_.schedule).empty()) {
        object.refuse("rows", "a valid schedule");
    }
}

LiveStep LiveReader::step_of(std::string_view line) const {
    const std::string place = line_place();
    const json document = parse_json(line, place);
    const JsonObject object(document, place, "");
    object.expect_keys(std::array<std::string_view, 2>{"step", "spans"});
    LiveStep step;
    step.step = static_cast<int>(object.whole("step"));
    step.timeline.origin = header_.origin;
    const auto found = document.find("spans");
    const json rows = found == document.end() ? json() : *found;
    const auto refuse = [&](const std::string& what) {
        throw Error(ErrorKind::BadInput,
                    place + ": /spans",
                    what,
                    "the file was edited, or another run has written to it");
    };
    if (!rows.is_array() || rows.size() != header_.schedule.ranks.size()) {
        refuse(fmt::format("no rows, expected {} of them", header_.schedule.ranks.size()));
    }
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        const std::vector<Action>& actions = header_.schedule.ranks[rank];
        const json& numbers = rows[rank];
        if (!numbers.is_array() || numbers.size() != numbers_per_span * actions.size()) {
            refuse(fmt::format("row {} has {} numbers, expected {}, three for each action",
                               rank,
                               numbers.size(),
                               numbers_per_span * actions.size()));
        }
        Duration last{};
        std::vector<Span>& row = step.timeline.ranks.emplace_back();
        for (std::size_t cell = 0; cell < actions.size(); ++cell) {
            std::array<Duration, numbers_per_span> times{};
            for (std::size_t i = 0; i < numbers_per_span; ++i) {
                const json& number = numbers[numbers_per_span * cell + i];
                times[i] = Duration{number.is_number_integer() ? number.get<std::int64_t>() : -1};
                if (times[i] < last || times[i] > longest_step) {
                    refuse(fmt::format(
                        "row {}, cell {}: {}, expected a time that is not before the previous one",
                        rank,
                        cell,
                        number.dump()));
                }
                last = times[i];
            }
            row.push_back(
                {.action = actions[cell], .begin = times[0], .ready = times[1], .end = times[2]});
        }
    }
    return step;
}

std::vector<LiveStep> LiveReader::feed(std::string_view appended) {
    rest_ += appended;
    std::vector<LiveStep> steps;
    std::size_t begin = 0;
    for (std::size_t end = rest_.find('\n'); end != std::string::npos;
         end = rest_.find('\n', begin)) {
        const std::string_view line = std::string_view(rest_).substr(begin, end - begin);
        if (line_ == 0) {
            take_header(line);
        } else {
            steps.push_back(step_of(line));
        }
        ++line_;
        begin = end + 1;
    }
    rest_.erase(0, begin);
    return steps;
}

}  // namespace pipetwin
