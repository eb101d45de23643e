// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>

#include "core/base/units.h"
#include "core/schedule/action.h"

/// One event of a Chrome trace, as simdjson has parsed it. No function here throws: each returns
/// false for what our traces do not hold.
namespace pipetwin::chrome_trace {

/// Bits of the keys that an event may have.
enum Field : unsigned {
    Phase = 1U << 0U,
    Name = 1U << 1U,
    Category = 1U << 2U,
    Process = 1U << 3U,
    Thread = 1U << 4U,
    Time = 1U << 5U,
    Length = 1U << 6U,
    Arguments = 1U << 7U,
    Id = 1U << 8U,
    Binding = 1U << 9U,
};

/// Values of an event's keys, not checked yet.
struct Event {
    unsigned seen = 0;  ///< Field
    std::string_view phase;
    std::string_view name;
    std::int64_t process = 0;
    std::int64_t thread = 0;
    Duration time{};
    Duration length{};
    simdjson::dom::object arguments;
};

/// Reads an event's keys; false for an unknown or doubled key, and for a value of the wrong type.
bool read_event(const simdjson::dom::element& value, Event& event);

/// Place of a slice's span in a timeline, from the slice's arguments. Either `edge` or `cell` is
/// there.
struct Place {
    std::int64_t step = -1;
    std::int64_t cell = -1;
    std::int64_t edge = -1;
    Duration wait{-1};
    Duration in_groups{-1};
};

/// Reads the arguments of a slice; false for an unknown or doubled key, and for a value of the
/// wrong type.
bool read_place(const simdjson::dom::object& arguments, Place& place);

/// Reads a whole number from 0 to 2^53; false for anything else.
bool read_whole(const simdjson::dom::element& value, std::int64_t& into);
/// Reads a string; false for anything else.
bool read_text(const simdjson::dom::element& value, std::string_view& into);

/// True if the name is "PP:" and the action's text, as in "PP:2F0"; makes no text of the action.
bool is_name_of(std::string_view name, const Action& action);

}  // namespace pipetwin::chrome_trace
