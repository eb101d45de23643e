// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/metrics_file.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/json_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/file_blocks.h"
#include "exec/base/retry.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_metrics_bytes = std::size_t{64} << 30U;

/// The step that a line of metrics is of; -1 for what is no such line.
int step_of(std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) {
        return -1;
    }
    const auto step = json.find("step");
    return step != json.end() && step->is_number_integer() ? step->get<int>() : -1;
}

/// The whole lines that a file of metrics begins with, as far as they are of steps before a given
/// one.
class WholeLines {
  public:
    explicit WholeLines(int first_step) : first_step_(first_step) {}

    void take(std::string_view block) {
        while (!ended_) {
            const std::size_t end = block.find('\n');
            line_ += block.substr(0, end);
            if (end == std::string_view::npos) {
                return;
            }
            block.remove_prefix(end + 1);
            const int step = step_of(line_);
            ended_ = step <= last_step_ || step >= first_step_;
            if (!ended_) {
                last_step_ = step;
                bytes_ += static_cast<std::int64_t>(line_.size()) + 1;
                ++count_;
            }
            line_.clear();
        }
    }

    std::int64_t bytes() const { return bytes_; }
    int count() const { return count_; }

  private:
    int first_step_;
    int last_step_ = -1;
    int count_ = 0;
    std::int64_t bytes_ = 0;
    std::string line_;
    bool ended_ = false;
};

/// Bytes of the lines that stay.
std::int64_t kept_bytes(const std::filesystem::path& path,
                        int first_step,
                        const std::function<void(const std::string&)>& tell) {
    std::error_code ignored;
    if (first_step == 0) {
        return 0;
    }
    WholeLines lines(first_step);
    if (std::filesystem::exists(path, ignored)) {
        read_blocks(path, most_metrics_bytes, [&](std::string_view block) { lines.take(block); });
    }
    if (lines.count() < first_step) {
        tell(fmt::format(
            "{} contains {} of the {} before step {}: the others were torn or lost, and are "
            "not computed again",
            path.string(),
            counted(lines.count(), "whole line"),
            first_step,
            first_step));
    }
    return lines.bytes();
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path,
                         int first_step,
                         std::function<void(const std::string&)> tell,
                         std::size_t most_in_memory)
    : tell_(std::move(tell)), file_(path, kept_bytes(path, first_step, tell_), most_in_memory) {
    finish(exec::disk_patience);
}

void MetricsFile::add(const exec::StepReport& step) {
    const bool written = file_.add(step_json(step).dump() + '\n');
    if (!written && !has_failed_) {
        try {
            file_.expect_written();
        } catch (const Error& error) {
            tell_(fmt::format("{}: {}; training continues, its lines are written later",
                              error.place(),
                              error.text()));
        }
    }
    has_failed_ = !written;
    if (written || told_dropped_ == 0) {
        tell_dropped();
    }
}

/// Tells that lines begin to be dropped, and when the disk has room again how many were.
void MetricsFile::tell_dropped() {
    const std::int64_t dropped = file_.dropped();
    if (dropped > told_dropped_) {
        tell_(fmt::format(
            "{}: {} dropped, because the disk has been full for too long; training continues, and "
            "checkpoints do not need them",
            file_.path().string(),
            told_dropped_ == 0 && has_failed_
                ? "lines are"
                : fmt::format(
                      "{} {}", counted(dropped, "line"), verb_for(dropped, "was", "were"))));
        told_dropped_ = dropped;
    }
}

void MetricsFile::bring_to_disk() {
    try {
        file_.write_kept();
        file_.bring_to_disk();
    } catch (const Error& error) {
        tell_(fmt::format("{}: {}; training continues", error.place(), error.text()));
    }
}

void MetricsFile::finish(std::chrono::milliseconds patience) {
    file_.finish(patience);
    has_failed_ = false;
    tell_dropped();
}

}  // namespace pipetwin::cli
