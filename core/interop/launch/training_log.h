// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace pipetwin {

/// A step that a training program reported; a mean where it reports several at once.
struct LoggedStep {
    int line = 0;  ///< from 1
    std::int64_t iteration = 0;
    double seconds = 0;
    bool is_first = false;                  ///< that the program reported after a start
    std::optional<int> batch{};             ///< samples, over all replicas
    std::optional<double> device_tflops{};  ///< TFLOP/s of a device, as the program counts

    bool operator==(const LoggedStep&) const = default;
};

/// What a log of Megatron-LM, or of a program that grew out of it, says was measured
/// (megatron/training/training.py, training_log and report_memory).
struct TrainingLog {
    /// Each iteration once, in the order of the log, those without an update left out; where the
    /// log has blocks of arguments those behind the first.
    std::vector<LoggedStep> steps{};
    /// The most memory that any rank allocated; none: the log does not say.
    std::optional<std::int64_t> peak_bytes{};
};

/// Reads the lines "iteration N/ M | ... | elapsed time per iteration (ms): T | ..." and "memory
/// (MB) | ... | max allocated: X | ...", whatever stands in front of them.
TrainingLog parse_training_log(std::string_view text);

/// What a log says of one step.
struct MeasuredStep {
    double seconds = 0;                     ///< the median
    std::optional<double> device_tflops{};  ///< the median; none: not all steps say it
    int steps = 0;                          ///< how many it is the median of
    bool has_start = false;                 ///< true if they are the first after a start
    int first_line = 0;
    int last_line = 0;
};

/// The median of the steps with `batch` samples (none: any), without the first after each start,
/// which takes longer; of these where there are no others. None: there is no such step.
std::optional<MeasuredStep> measured_step(const TrainingLog& log, std::optional<int> batch);

}  // namespace pipetwin
