// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/training_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "core/base/median.h"
#include "core/interop/launch/log_lines.h"

namespace pipetwin {

namespace {

constexpr double bytes_of_a_megabyte = 1024.0 * 1024.0;  // as report_memory has it

/// The number behind a text in a line; none: there is none.
template <typename Number>
std::optional<Number> number_behind(std::string_view line, std::string_view text) {
    const std::size_t at = line.find(text);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view rest = trimmed_line(line.substr(at + text.size()));
    Number number{};
    const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    return status == std::errc{} && end != rest.data() ? std::optional(number) : std::nullopt;
}

bool is_positive(std::optional<double> number) {
    return number && std::isfinite(*number) && *number > 0;
}

/// Reads the steps of one log; one object for each.
class LoggedSteps {
  public:
    /// Steps before the first block of arguments are of another run.
    void take(std::string_view line, int number, TrainingLog& log) {
        if (line.find("---- end of arguments ----") != std::string_view::npos) {
            if (!has_block_) {
                log.steps.clear();
                seen_.clear();
            }
            has_block_ = true;
            begins_ = true;
        }
        take_step(line, number, log);
    }

  private:
    void take_step(std::string_view line, int number, TrainingLog& log);

    std::set<std::int64_t> seen_{};
    bool has_block_ = false;
    bool begins_ = true;  ///< the next step is the first of a start
};

void LoggedSteps::take_step(std::string_view line, int number, TrainingLog& log) {
    const std::optional<double> time =
        number_behind<double>(line, "elapsed time per iteration (ms):");
    const std::optional<std::int64_t> iteration = number_behind<std::int64_t>(line, "iteration ");
    constexpr double longest = 1e10;
    if (!is_positive(time) || *time > longest || !iteration || !seen_.insert(*iteration).second) {
        return;
    }
    const bool is_first = std::exchange(begins_, false);
    if (number_behind<int>(line, "number of skipped iterations:").value_or(0) > 0) {
        return;  // without an update
    }
    const std::optional<double> tflops =
        number_behind<double>(line, "throughput per GPU (TFLOP/s/GPU):");
    log.steps.push_back({.line = number,
                         .iteration = *iteration,
                         .seconds = *time / 1000,
                         .is_first = is_first,
                         .batch = number_behind<int>(line, "global batch size:"),
                         .device_tflops = is_positive(tflops) ? tflops : std::nullopt});
}

void take_memory(std::string_view line, TrainingLog& log) {
    const std::optional<double> megabytes = number_behind<double>(line, "max allocated:");
    constexpr double most = 1e9;
    if (line.find("memory (MB)") != std::string_view::npos && is_positive(megabytes) &&
        *megabytes < most) {
        const auto bytes = static_cast<std::int64_t>(*megabytes * bytes_of_a_megabyte);
        log.peak_bytes = std::max(log.peak_bytes.value_or(0), bytes);
    }
}

}  // namespace

TrainingLog parse_training_log(std::string_view text) {
    TrainingLog log;
    LoggedSteps steps;
    for_each_log_line(text, [&](std::string_view line, int number) {
        steps.take(line, number, log);
        take_memory(line, log);
    });
    return log;
}

std::optional<MeasuredStep> measured_step(const TrainingLog& log, std::optional<int> batch) {
    std::vector<LoggedStep> steps = log.steps;
    const bool has_others = !std::ranges::all_of(steps, &LoggedStep::is_first);
    std::erase_if(steps, [&](const LoggedStep& step) { return has_others && step.is_first; });
    std::erase_if(steps, [batch](const LoggedStep& step) {
        return batch && step.batch && *step.batch != *batch;
    });
    if (steps.empty()) {
        return std::nullopt;
    }
    std::vector<double> seconds;
    std::vector<double> tflops;
    for (const LoggedStep& step : steps) {
        seconds.push_back(step.seconds);
        if (step.device_tflops) {
            tflops.push_back(*step.device_tflops);
        }
    }
    MeasuredStep measured{.seconds = median(seconds),
                          .steps = static_cast<int>(steps.size()),
                          .has_start = !has_others,
                          .first_line = steps.front().line,
                          .last_line = steps.back().line};
    if (tflops.size() == steps.size()) {
        measured.device_tflops = median(tflops);
    }
    return measured;
}

}  // namespace pipetwin
