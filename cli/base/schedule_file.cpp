// SPDX-License-Identifier: Apache-2.0
#include "cli/base/schedule_file.h"

#include <string>
#include <string_view>

#include "cli/base/input.h"
#include "core/schedule/schedule_csv.h"

namespace pipetwin::cli {

Schedule read_schedule_file(const std::filesystem::path& file) {
    const std::string place = input_name(file);
    CellCounter counter(place);
    return parse_schedule_csv(
        read_input(file,
                   largest_schedule_file,
                   [&counter](std::string_view part) { counter.count(part); }),
        place);
}

}  // namespace pipetwin::cli
