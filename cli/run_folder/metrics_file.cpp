#include "cli/run_folder/metrics_file.h"

#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/text/json_output.h"
#include "core/base/error.h"
#include "core/text/input_file.h"
#include "core/text/own_file.h"
#include "exec/base/durable_file.h"

namespace pipetwin::cli {

namespace {

/// The first `count` lines of a file. Lines behind them are of steps that no checkpoint holds, and
/// may end in half a line.
std::string first_lines(const std::filesystem::path& path, int count) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
        return {};
    }
    constexpr std::size_t most = std::size_t{1} << 30U;
    std::istringstream file(InputFile(path).read_up_to(most));
    std::string lines;
    std::string line;
    for (int i = 0; i < count && std::getline(file, line); ++i) {
        lines += line + '\n';
    }
    return lines;
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, int first_step) : path_(std::move(path)) {
    replace_file(path_, first_lines(path_, first_step));
    stream_.open(path_, std::ios::app);
    check();
}

void MetricsFile::add(const exec::StepReport& step) {
    stream_ << step_json(step).dump() << '\n' << std::flush;
    check();
}

void MetricsFile::bring_to_disk() const {
    exec::flush_file(path_);
}

void MetricsFile::check() const {
    if (!stream_) {
        throw Error(
            ErrorKind::Io, path_.string(), "the file could not be written", "is the disk full?");
    }
}

}  // namespace pipetwin::cli
