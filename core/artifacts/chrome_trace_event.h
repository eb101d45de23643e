#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>

#include "core/base/units.h"
#include "core/schedule/action.h"

/// One event of a Chrome trace, as simdjson has parsed it. None of these throws: what is not as our
/// traces have it is false.
namespace pipetwin::chrome_trace {

/// What an event may hold.
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

/// What an event says, before anything of it is believed.
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

bool read_event(const simdjson::dom::element& value, Event& event);

/// Of a slice. Only `edge` or `cell` is there.
struct Place {
    std::int64_t step = -1;
    std::int64_t cell = -1;
    std::int64_t edge = -1;
    Duration wait{-1};
};

bool read_place(const simdjson::dom::object& arguments, Place& place);

/// From 0 to 2^53.
bool read_whole(const simdjson::dom::element& value, std::int64_t& into);
bool read_text(const simdjson::dom::element& value, std::string_view& into);

/// "PP:2F0", without making a text of the action.
bool is_name_of(std::string_view name, const Action& action);

}  // namespace pipetwin::chrome_trace
