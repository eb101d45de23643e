// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/report_noise.h"

#include <system_error>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/input_file.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

void complete_noise(Trace& trace, const std::filesystem::path& file) {
    constexpr std::size_t most_bytes = std::size_t{256} << 20U;
    Noise& noise = trace.timelines.noise;
    const std::filesystem::path report = file.parent_path() / "report.json";
    std::error_code ignored;
    if (!noise.is_known() || noise.costs_apart || file.filename() != "measured.trace.json" ||
        !std::filesystem::is_regular_file(report, ignored)) {
        return;
    }
    try {
        const std::string place = report.string();
        const nlohmann::json root = parse_json(InputFile(report).read_up_to(most_bytes), place);
        const JsonObject told = JsonObject(root, place, "").object("comparison").object("noise");
        // The report may be that of another training into the same folder.
        const bool is_of_trace = told.whole("steps") == noise.steps &&
                                 told.whole("dropped_steps") == noise.dropped_steps;
        if (is_of_trace) {
            noise.costs_apart = told.number_or("costs_apart", 1);
        }
    } catch (const Error&) {
        return;  // the noise stays as the trace says it
    }
}

}  // namespace pipetwin
