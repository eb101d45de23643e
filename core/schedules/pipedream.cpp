#include <fmt/format.h>

#include "core/schedules/generators.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule pipedream(const ScheduleShape& shape, std::string_view name) {
    require_one_chunk(shape, name);
    return one_f_one_b(shape);
}

}  // namespace pipetwin::schedules
