// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/training_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/interop/launch/log_lines.h"
#include "core/interop/launch/logged_timers.h"

namespace pipetwin {

namespace {

constexpr double bytes_of_a_megabyte = 1024.0 * 1024.0;  // as report_memory has it
constexpr double bytes_of_a_gigabyte = 1024.0 * bytes_of_a_megabyte;

/// The number behind a text, as "1,234.5"; 0: there is none that is more.
double grouped_number_behind(std::string_view line, std::string_view text) {
    const std::size_t at = line.find(text);
    if (at == std::string_view::npos) {
        return 0;
    }
    const std::string_view rest = trimmed_line(line.substr(at + text.size()));
    std::string number(rest.substr(0, rest.find_first_not_of("0123456789,.")));
    std::erase(number, ',');
    const std::optional<double> found = number_behind<double>(number, "");
    return is_positive(found) ? *found : 0;
}

/// Reads the steps of one log; one object for each.
class LoggedSteps {
  public:
    /// Steps before the first block of arguments are of another run.
    void take(std::string_view line, int number, TrainingLog& log) {
        if (line.find("---- end of arguments ----") != std::string_view::npos) {
            if (!has_block_) {
                log.steps.clear();
                log.losses.clear();
                seen_.clear();
                seen_losses_.clear();
                repeats_ = {};
                nan_reports_ = {};
            } else {
                begins_again_ = true;
            }
            has_block_ = true;
            begins_ = true;
        }
        constexpr std::array<std::string_view, 5> starts{"Training starts at step",
                                                         "Running with configs: {",
                                                         "Running with args: {",
                                                         "json = {",
                                                         "Config param model_name:"};
        const bool is_start = std::ranges::any_of(starts, [line](std::string_view start) {
            return line.find(start) != std::string_view::npos;
        });
        begins_ = begins_ || is_start;
        begins_again_ = begins_again_ || (is_start && !log.steps.empty());
        take_step(line, number, log);
    }

    /// Adds what a reader of the log must know.
    void finish(TrainingLog& log) const;

  private:
    void take_step(std::string_view line, int number, TrainingLog& log);
    void add(LoggedStep step, TrainingLog& log);
    bool settle_mean(LoggedStep& step);
    void find_start(const LoggedStep& step);
    /// Adds the loss of a line that reports an iteration (0: not said, as the Trainer's).
    void take_loss(std::string_view line, int number, std::int64_t iteration, TrainingLog& log);
    void add_loss(const LoggedLoss& loss, TrainingLog& log);

    /// Notes a report that a later start repeats. Ranks and engines may repeat the last reports.
    void note_repeat(const LoggedStep& step, std::size_t at, const TrainingLog& log);

    /// Reports that the result does not have as they are.
    struct Passed {
        int count = 0;
        int first_line = 0;
        int last_line = 0;
        int first_read = 0;  ///< line of the report that was read for the first
        int last_read = 0;

        void add(int line, int read = 0) {
            first_line = count == 0 ? line : first_line;
            first_read = count == 0 ? read : first_read;
            last_line = line;
            last_read = read;
            ++count;
        }
    };

    std::map<std::int64_t, std::size_t> seen_{};  ///< by iterations: the steps before
    Passed repeats_{};
    Passed nan_reports_{};  ///< that have a loss nevertheless
    int nan_iterations_ = 0;
    bool begins_again_ = false;   ///< a further block of arguments, or start, has come
    bool repeats_again_ = false;  ///< the report before is one of a later start
    std::set<std::int64_t> seen_losses_{};
    bool has_block_ = false;
    bool begins_ = true;     ///< the next step is the first of a start
    double mean_until_ = 0;  ///< of all steps from the start up to the next iteration, in seconds
    std::int64_t mean_iteration_ = 0;
    double mean_elapsed_ = 0;              ///< seconds from the start up to that iteration
    std::int64_t mean_start_ = 0;          ///< the iteration that a checkpoint was resumed from
    std::optional<double> least_start_{};  ///< bounds of that iteration by all reports of the start
    std::optional<double> most_start_{};
};

/// Adds a step that no line before has.
void LoggedSteps::add(LoggedStep step, TrainingLog& log) {
    constexpr double longest = 1e7;
    constexpr double highest_rate = 1e9;
    if (step.seconds > longest || step.samples_per_second > highest_rate ||
        step.device_tokens_per_second > highest_rate) {
        return;
    }
    const auto [seen, is_new] = seen_.emplace(step.iteration, log.steps.size());
    if (!is_new) {
        note_repeat(step, seen->second, log);
        return;
    }
    begins_again_ = false;
    repeats_again_ = false;
    const bool is_mean = step.seconds == 0 && step.iteration == 0;  // of all steps
    step.is_first = std::exchange(begins_, false) && !is_mean;
    log.steps.push_back(step);
}

void LoggedSteps::note_repeat(const LoggedStep& step, std::size_t at, const TrainingLog& log) {
    constexpr std::size_t near = 2;
    const bool is_later = begins_again_ || at + near < log.steps.size() || repeats_again_;
    repeats_again_ = is_later;
    if (is_later && at < log.steps.size()) {
        repeats_.add(step.line, log.steps[at].line);
    }
}

void LoggedSteps::finish(TrainingLog& log) const {
    if (repeats_.count > 0) {
        log.notes.push_back(
            fmt::format("lines {} to {} repeat iterations that lines {} to {} report: of these the "
                        "first start was read, and the later {} left out",
                        repeats_.first_line,
                        repeats_.last_line,
                        repeats_.first_read,
                        repeats_.last_read,
                        counted(repeats_.count, "report")));
    }
    if (nan_reports_.count > 0) {
        log.notes.push_back(
            fmt::format("the loss was no number in {} of {} that print a loss of the others, the "
                        "first in line {}",
                        counted(nan_iterations_, "iteration"),
                        counted(nan_reports_.count, "report"),
                        nan_reports_.first_line));
    }
}

/// Makes the mean of the steps since the report before of means since the start; false: the report
/// before has as many steps.
bool LoggedSteps::settle_mean(LoggedStep& step) {
    const bool falls = step.elapsed_seconds && *step.elapsed_seconds < mean_elapsed_;
    if (step.iteration < mean_iteration_ || falls) {  // another start
        mean_iteration_ = 0;
        mean_start_ = 0;
        least_start_.reset();
        most_start_.reset();
        begins_ = true;
    }
    mean_elapsed_ = step.elapsed_seconds.value_or(0);
    find_start(step);
    const auto before =
        static_cast<double>(std::max<std::int64_t>(0, mean_iteration_ - mean_start_));
    const auto until = static_cast<double>(step.iteration - mean_start_);
    step.seconds =
        until > before ? (step.mean_seconds * until - mean_until_ * before) / (until - before) : 0;
    mean_until_ = step.mean_seconds;
    mean_iteration_ = step.iteration;
    return step.seconds > 0;
}

/// Narrows down where the run went on: the mean is the elapsed time, of which whole seconds are
/// printed, by the steps since then.
void LoggedSteps::find_start(const LoggedStep& step) {
    constexpr std::int64_t most_iterations = 1'000'000'000'000'000;
    if (!step.elapsed_seconds || step.iteration > most_iterations) {
        return;
    }
    constexpr double rounding = 1e-6;  // of the printed mean
    const auto iteration = static_cast<double>(step.iteration);
    const double most_steps =
        (*step.elapsed_seconds + 1) / std::max(step.mean_seconds - rounding, rounding);
    const double least_steps =
        std::max(1.0, *step.elapsed_seconds / (step.mean_seconds + rounding));
    least_start_ = std::max(least_start_.value_or(0), std::ceil(iteration - most_steps));
    most_start_ = std::min(most_start_.value_or(iteration), std::floor(iteration - least_steps));
    // The middle of the bounds is nearest to all; a run from the beginning is the usual one.
    const double start = *least_start_ <= 0 ? 0 : std::floor((*least_start_ + *most_start_) / 2);
    mean_start_ = static_cast<std::int64_t>(std::clamp(start, 0.0, iteration - 1));
}

std::optional<LoggedStep> megatron_step(std::string_view line) {
    const std::optional<double> time =
        number_behind<double>(line, "elapsed time per iteration (ms):");
    const std::optional<std::int64_t> iteration = number_behind<std::int64_t>(line, "iteration ");
    if (!is_positive(time) || !iteration) {
        return std::nullopt;
    }
    const std::optional<double> tflops =
        number_behind<double>(line, "throughput per GPU (TFLOP/s/GPU):");
    std::optional<LoggedStep> step(std::in_place);
    step->iteration = *iteration;
    step->seconds = *time / 1000;
    step->batch = number_behind<int>(line, "global batch size:");
    step->device_tflops = is_positive(tflops) ? tflops : std::nullopt;
    return step;
}

std::optional<LoggedStep> titan_step(std::string_view line) {
    const std::optional<std::int64_t> iteration = number_behind<std::int64_t>(line, "step:");
    const double rate = grouped_number_behind(line, " tps:");
    const bool validates = line.find("validate step:") != std::string_view::npos;
    if (!iteration || rate == 0 || validates) {
        return std::nullopt;
    }
    const double tflops = grouped_number_behind(line, " tflops:");
    return LoggedStep{.iteration = *iteration,
                      .device_tokens_per_second = rate,
                      .device_tflops = tflops > 0 ? std::optional(tflops) : std::nullopt};
}

/// A report of the engine of pipelines, or of the timer that all other engines have.
std::optional<LoggedStep> deepspeed_step(std::string_view line) {
    const std::optional<double> time = number_behind<double>(line, "iter time (s):");
    const std::optional<std::int64_t> step = number_behind<std::int64_t>(line, "steps:");
    if (is_positive(time) && step) {
        return LoggedStep{.iteration = *step, .seconds = *time};
    }
    const std::optional<double> rate = number_behind<double>(line, "CurrSamplesPerSec=");
    const std::optional<std::int64_t> global = number_behind<std::int64_t>(line, "global_step=");
    if (!is_positive(rate) || !global) {
        return std::nullopt;
    }
    return LoggedStep{.iteration = *global, .samples_per_second = *rate};
}

std::optional<LoggedStep> maxtext_step(std::string_view line) {
    const std::optional<std::int64_t> step = number_behind<std::int64_t>(line, "completed step:");
    const std::optional<double> time = number_behind<double>(line, "seconds:");
    if (!step || !is_positive(time)) {
        return std::nullopt;
    }
    const std::optional<double> tflops = number_behind<double>(line, "TFLOP/s/device:");
    return LoggedStep{.iteration = *step,
                      .seconds = *time,
                      .device_tflops = is_positive(tflops) ? tflops : std::nullopt};
}

/// The Trainer says the mean of a whole run at its end: "{'train_runtime': 120.5, ...,
/// 'train_samples_per_second': 8.4, ...}".
std::optional<LoggedStep> trainer_step(std::string_view line) {
    const std::optional<double> rate = number_behind<double>(line, "train_samples_per_second':");
    if (!is_positive(rate) || line.find("train_runtime") == std::string_view::npos) {
        return std::nullopt;
    }
    return LoggedStep{.samples_per_second = *rate};
}

/// nanotron shortens its numbers: "1.23K" milliseconds.
std::optional<LoggedStep> nanotron_step(std::string_view line) {
    constexpr std::string_view word = "time_per_iteration_ms:";
    const std::optional<std::int64_t> step = number_behind<std::int64_t>(line, "iteration:");
    const std::optional<double> time = number_behind<double>(line, word);
    if (!step || !is_positive(time)) {
        return std::nullopt;
    }
    const std::string_view rest = trimmed_line(line.substr(line.find(word) + word.size()));
    const std::size_t unit = rest.find_first_not_of("0123456789.");
    const bool is_thousands = unit != std::string_view::npos && rest[unit] == 'K';
    const std::optional<double> tflops = number_behind<double>(line, "model_tflops_per_gpu:");
    return LoggedStep{.iteration = *step,
                      .seconds = *time / (is_thousands ? 1 : 1000),
                      .device_tflops = is_positive(tflops) ? tflops : std::nullopt};
}

/// NeMo 2: "Training epoch 0, iteration 8/29 | ... | global_step: 8 | ... train_step_timing in s:
/// 27.01 | ... | TFLOPS_per_GPU: 85.8"; NeMo 1 has "global_step=8, ... train_step_timing in s=27".
std::optional<LoggedStep> nemo_step(std::string_view line) {
    const auto number_of = [line](std::string_view name) {
        const std::optional<double> found = number_behind<double>(line, fmt::format("{}:", name));
        return found ? found : number_behind<double>(line, fmt::format("{}=", name));
    };
    const std::optional<double> time = number_of("train_step_timing in s");
    const std::optional<double> step = number_of("global_step");
    if (!is_positive(time) || !step) {
        return std::nullopt;
    }
    const std::optional<double> tflops = number_of("TFLOPS_per_GPU");
    return LoggedStep{.iteration = static_cast<std::int64_t>(std::min(*step, 1e15)),
                      .seconds = *time,
                      .batch = number_behind<int>(line, "global_batch_size:"),
                      .device_tflops = is_positive(tflops) ? tflops : std::nullopt};
}

/// The seconds of "1d 2h 3m 4s", of which the units that are 0 may be left out; none: the text does
/// not begin so.
std::optional<double> seconds_in_words(std::string_view text) {
    std::optional<double> seconds;
    while (const std::optional<std::int64_t> number = number_behind<std::int64_t>(text, "")) {
        text.remove_prefix(std::min(text.find_first_not_of(" 0123456789"), text.size()));
        constexpr std::string_view units = "smhd";
        constexpr std::array<double, units.size()> lengths{1, 60, 3600, 86400};
        const std::size_t unit = text.empty() ? std::string_view::npos : units.find(text.front());
        if (unit == std::string_view::npos || *number < 0) {
            return seconds;
        }
        seconds = seconds.value_or(0) + static_cast<double>(*number) * lengths[unit];
        text.remove_prefix(1);
    }
    return seconds;
}

/// ms-swift says the mean of all steps since the start, a resumption included: "{'loss': ...,
/// 'iteration': '20/100', 'elapsed_time': '1m 44s', ... 'train_speed(s/it)': 5.2}"; older releases
/// without quotes around the numbers.
std::optional<LoggedStep> swift_step(std::string_view line) {
    const auto behind = [line](std::string_view key) {
        const std::size_t at = line.find(key);
        std::string_view rest =
            at == std::string_view::npos ? std::string_view() : line.substr(at + key.size());
        rest.remove_prefix(std::min(rest.find_first_not_of(": '\""), rest.size()));
        return rest;
    };
    const std::optional<double> time = number_behind<double>(behind("train_speed(s/it)'"), "");
    std::string_view step = behind("'iteration'");
    step = step.empty() ? behind("'global_step/max_steps'") : step;
    const std::optional<std::int64_t> iteration = number_behind<std::int64_t>(step, "");
    if (!is_positive(time) || !iteration || *iteration < 1) {
        return std::nullopt;
    }
    return LoggedStep{.iteration = *iteration,
                      .mean_seconds = *time,
                      .elapsed_seconds = seconds_in_words(behind("'elapsed_time'"))};
}

void LoggedSteps::take_loss(std::string_view line,
                            int number,
                            std::int64_t iteration,
                            TrainingLog& log) {
    if (const std::optional<double> loss = logged_loss(line)) {
        add_loss({.line = number, .iteration = iteration, .loss = *loss}, log);
        const int nan_iterations = logged_nan_iterations(line);
        if (nan_iterations > 0 && !std::isnan(*loss)) {
            nan_reports_.add(number);
            nan_iterations_ += nan_iterations;
        }
    }
}

void LoggedSteps::add_loss(const LoggedLoss& loss, TrainingLog& log) {
    if (loss.iteration == 0 || seen_losses_.insert(loss.iteration).second) {
        log.losses.push_back(loss);
    }
}

/// Programs that grew out of Megatron-LM report a step in its words, and DeepSpeed below them in
/// its own.
void LoggedSteps::take_step(std::string_view line, int number, TrainingLog& log) {
    std::optional<LoggedStep> step = megatron_step(line);
    if (step && number_behind<int>(line, "number of skipped iterations:").value_or(0) > 0) {
        if (seen_.emplace(step->iteration, log.steps.size()).second) {
            begins_ = false;  // without an update
        }
        take_loss(line, number, step->iteration, log);
        return;
    }
    for (const auto read :
         {titan_step, deepspeed_step, maxtext_step, nanotron_step, nemo_step, trainer_step}) {
        if (!step && !has_block_) {
            step = read(line);
        }
    }
    if (!step && !has_block_) {
        step = swift_step(line);
        if (step && !settle_mean(*step)) {
            return;
        }
    }
    if (step || (!has_block_ && is_trainer_loss(line))) {
        take_loss(line, number, step ? step->iteration : 0, log);
    }
    if (step) {
        step->line = number;
        add(*step, log);
    }
}

void take_memory(std::string_view line, TrainingLog& log) {
    double bytes = 0;
    if (line.find("memory (MB)") != std::string_view::npos) {
        bytes = number_behind<double>(line, "max allocated:").value_or(0) * bytes_of_a_megabyte;
    } else if (line.find("GiB(") != std::string_view::npos) {
        bytes = number_behind<double>(line, " memory:").value_or(0) * bytes_of_a_gigabyte;
    } else if (line.find("Peak allocated") != std::string_view::npos) {  // nanotron
        const std::string_view rest = line.substr(line.find("Peak allocated"));
        const double number = grouped_number_behind(
            rest, rest.starts_with("Peak allocated:") ? "Peak allocated:" : "Peak allocated");
        bytes = rest.find("MiB") != std::string_view::npos ? number * bytes_of_a_megabyte : 0;
    } else if (line.find("train_step_timing in s") != std::string_view::npos) {  // NeMo
        const std::optional<double> most = number_behind<double>(line, "max_memory_allocated:");
        bytes = most ? *most : number_behind<double>(line, "peak_memory_usage:").value_or(0);
    } else {
        bytes = number_behind<double>(line, "MaxMemAllocated=").value_or(0) * bytes_of_a_gigabyte;
    }
    constexpr double most = 1e15;
    if (is_positive(bytes) && bytes < most) {
        log.peak_bytes = std::max(log.peak_bytes.value_or(0), static_cast<std::int64_t>(bytes));
    }
}

/// Seconds of a step; none: what its rate is of is not known.
std::optional<double> seconds_of(const LoggedStep& step, const StepSizes& sizes) {
    if (step.seconds > 0) {
        return step.seconds;
    }
    if (step.samples_per_second > 0 && sizes.batch) {
        return *sizes.batch / step.samples_per_second;
    }
    if (step.device_tokens_per_second > 0 && sizes.tokens_of_device > 0) {
        return sizes.tokens_of_device / step.device_tokens_per_second;
    }
    return std::nullopt;
}

}  // namespace

std::optional<int> logged_world_size(std::string_view text) {
    std::optional<int> found;
    for_each_log_line(text, [&found](std::string_view line, int) {
        constexpr std::string_view word = " world_size ";
        const std::size_t at = line.find(word);
        if (found || at == std::string_view::npos) {
            return;
        }
        std::string_view rest = line.substr(at + word.size());
        rest.remove_prefix(std::min(rest.find_first_not_of(". "), rest.size()));
        found = number_behind<int>(rest, "");
        if (found && *found < 1) {
            found.reset();
        }
    });
    return found;
}

namespace {

/// Where a number begins that ends with the text, without a line feed behind it; the size of the
/// text: there is none.
std::size_t cut_number(std::string_view text) {
    const std::size_t at = text.find_last_not_of("0123456789.,eE+-") + 1;
    const bool is_number = text.find_first_of("0123456789", at) != std::string_view::npos;
    return is_number ? at : text.size();
}

}  // namespace

TrainingLog parse_training_log(std::string_view text) {
    TrainingLog log;
    LoggedSteps steps;
    LoggedTimers timers;
    const std::size_t cut = cut_number(text);
    const auto last = static_cast<int>(std::ranges::count(text, '\n')) + 1;
    bool loses_report = false;
    for_each_log_line(text.substr(0, cut), [&](std::string_view line, int number) {
        if (cut < text.size() && number == last) {
            TrainingLog whole;
            LoggedSteps().take(fmt::format("{}{}", line, text.substr(cut)), number, whole);
            TrainingLog part;
            LoggedSteps().take(line, number, part);
            loses_report = part.steps != whole.steps || part.losses != whole.losses;
        }
        steps.take(line, number, log);
        take_memory(line, log);
        const bool has_step = !log.steps.empty();
        timers.take(line, has_step, has_step && log.steps.back().is_first);
    });
    steps.finish(log);
    if (loses_report) {
        log.notes.push_back(fmt::format(
            "the log ends within line {}, so its last number, '{}', may be cut and was not read",
            last,
            text.substr(cut)));
    }
    log.timers = timers.found();
    return log;
}

std::optional<MeasuredStep> measured_step(const TrainingLog& log, const StepSizes& sizes) {
    std::vector<LoggedStep> steps = log.steps;
    const bool has_others = !std::ranges::all_of(steps, &LoggedStep::is_first);
    std::erase_if(steps, [&](const LoggedStep& step) { return has_others && step.is_first; });
    std::erase_if(steps, [&sizes](const LoggedStep& step) {
        const bool is_other = sizes.batch && step.batch && *step.batch != *sizes.batch;
        return is_other || !seconds_of(step, sizes);
    });
    if (steps.empty()) {
        return std::nullopt;
    }
    std::vector<double> seconds;
    std::vector<double> tflops;
    for (const LoggedStep& step : steps) {
        seconds.push_back(seconds_of(step, sizes).value());
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
