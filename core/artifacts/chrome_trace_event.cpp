// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/chrome_trace_event.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace pipetwin::chrome_trace {

namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;
using std::string_view;

constexpr std::array<std::pair<string_view, Field>, 10> fields{{{"ph", Phase},
                                                                {"name", Name},
                                                                {"cat", Category},
                                                                {"pid", Process},
                                                                {"tid", Thread},
                                                                {"ts", Time},
                                                                {"dur", Length},
                                                                {"args", Arguments},
                                                                {"id", Id},
                                                                {"bp", Binding}}};

/// Microseconds to whole nanoseconds, as the strict reader does it.
bool read_time(const element& value, Duration& into) {
    double microseconds = 0;
    if (value.type() == element_type::INT64) {
        std::int64_t whole = 0;
        if (!read_whole(value, whole)) {
            return false;
        }
        microseconds = static_cast<double>(whole);
    } else if (value.get(microseconds) != simdjson::SUCCESS ||
               value.type() != element_type::DOUBLE) {
        return false;
    }
    const double nanoseconds = microseconds * 1000;
    if (!(nanoseconds >= 0 && nanoseconds <= 9e15)) {
        return false;
    }
    into = Duration{std::llround(nanoseconds)};
    return true;
}

bool read_field(Field field, const element& value, Event& event) {
    std::int64_t unused = 0;
    string_view text;
    switch (field) {
        case Phase:
            return read_text(value, event.phase);
        case Name:
            return read_text(value, event.name);
        case Category:
        case Binding:
            return read_text(value, text);
        case Process:
            return read_whole(value, event.process);
        case Thread:
            return read_whole(value, event.thread);
        case Id:
            return read_whole(value, unused);
        case Time:
            return read_time(value, event.time);
        case Length:
            return read_time(value, event.length);
        case Arguments:
            return value.get(event.arguments) == simdjson::SUCCESS;
    }
    return false;
}

}  // namespace

bool read_whole(const element& value, std::int64_t& into) {
    return value.get(into) == simdjson::SUCCESS && into >= 0 && into <= std::int64_t{1} << 53U;
}

bool read_text(const element& value, string_view& into) {
    return value.get(into) == simdjson::SUCCESS;
}

bool read_event(const element& value, Event& event) {
    simdjson::dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
        return false;
    }
    for (const auto& [key, field_value] : object) {
        const auto* const known =
            std::ranges::find(fields, key, &std::pair<string_view, Field>::first);
        if (known == fields.end() || (event.seen & known->second) != 0 ||
            !read_field(known->second, field_value, event)) {
            return false;
        }
        event.seen |= known->second;
    }
    return true;
}

bool read_place(const simdjson::dom::object& arguments, Place& place) {
    for (const auto& [key, value] : arguments) {
        if (key == "wait_us" || key == "groups_us") {
            Duration& time = key == "wait_us" ? place.wait : place.in_groups;
            if (time >= Duration{0} || !read_time(value, time)) {
                return false;
            }
            continue;
        }
        std::int64_t* const into = key == "step"   ? &place.step
                                   : key == "cell" ? &place.cell
                                   : key == "edge" ? &place.edge
                                                   : nullptr;
        if (into == nullptr || *into >= 0 || !read_whole(value, *into)) {
            return false;
        }
    }
    return place.step >= 0;
}

bool is_name_of(string_view name, const Action& action) {
    constexpr string_view prefix = "PP:";
    std::array<char, 48> text{};
    char* at = std::ranges::copy(prefix, text.data()).out;
    at = std::to_chars(at, text.data() + text.size(), action.stage).ptr;
    at = std::ranges::copy(op_text(action.op), at).out;
    if (has_micro_batch(action.op)) {
        at = std::to_chars(at, text.data() + text.size(), action.micro_batch).ptr;
    }
    return name == string_view(text.data(), static_cast<std::size_t>(at - text.data()));
}

}  // namespace pipetwin::chrome_trace
