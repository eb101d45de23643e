#include "core/timeline/compare.h"

#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

/// A run folder stands for one of its traces.
std::filesystem::path trace_file(const std::filesystem::path& path, std::string_view in_folder) {
    return std::filesystem::is_directory(path) ? path / in_folder : path;
}

}  // namespace

void execute(const CompareOptions& options, Console& console) {
    if (options.measured.empty() && !std::filesystem::is_directory(options.predicted)) {
        throw Error(
            ErrorKind::Usage,
            options.predicted.string(),
            "no second timeline to compare with",
            "pipetwin compare PREDICTED MEASURED, or pipetwin compare RUN with a run folder");
    }
    const std::filesystem::path& measured_path =
        options.measured.empty() ? options.predicted : options.measured;
    const Trace predicted = read_chrome_trace(trace_file(options.predicted, run_file::predicted));
    const Trace measured = read_chrome_trace(trace_file(measured_path, run_file::measured));
    const Comparison comparison = compare(predicted.timelines, measured.timelines);
    console.result(options.common.json ? json_text(comparison_json(comparison))
                                       : comparison_text(comparison, console));
}

}  // namespace pipetwin::cli
