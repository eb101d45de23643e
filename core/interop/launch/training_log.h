// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/logged_losses.h"

namespace pipetwin {

/// A step that a training program reported; a mean where it reports several at once.
struct LoggedStep {
    int line = 0;  ///< from 1
    std::int64_t iteration = 0;
    double seconds = 0;                       ///< 0: the program says a rate alone
    double mean_seconds = 0;                  ///< of all steps since the start; 0: not said
    std::optional<double> elapsed_seconds{};  ///< since the start, whole seconds; none: not said
    double samples_per_second = 0;            ///< of all replicas; 0: not said
    double device_tokens_per_second = 0;      ///< tokens of a step by devices; 0: not said
    bool is_first = false;                    ///< that the program reported after a start
    std::optional<int> batch{};               ///< samples, over all replicas
    std::optional<double> device_tflops{};    ///< TFLOP/s of a device, as the program counts

    bool operator==(const LoggedStep&) const = default;
};

/// A timer that Megatron printed behind its steps, for one step: the least and the most over ranks.
struct LoggedTimer {
    std::string name{};             ///< "forward-compute"
    std::optional<double> least{};  ///< seconds; none: the log has the most alone
    double most = 0;                ///< seconds
    bool of_one_rank = false;       ///< of the rank that wrote the log, as up to 2022
    int reports = 0;                ///< both are the medians of so many

    bool operator==(const LoggedTimer&) const = default;
};

/// Whether Megatron's timer "forward-backward" holds the sums of gradients over replicas: not in
/// logs of 2023 and earlier, which time these sums by themselves ("grads-all-reduce").
bool has_sums_in_pipeline(const std::vector<LoggedTimer>& timers);

/// What the log of a training program says was measured.
struct TrainingLog {
    /// Each iteration once, in the order of the log, those without an update left out; where the
    /// log has blocks of Megatron's arguments those behind the first.
    std::vector<LoggedStep> steps{};
    /// The most memory that any rank took; none: the log does not say.
    std::optional<std::int64_t> peak_bytes{};
    /// By their names, without those behind the first step of a start where there are others.
    std::vector<LoggedTimer> timers{};
    /// Each iteration once, in the order of the log; where it has blocks of Megatron's arguments
    /// those behind the first.
    std::vector<LoggedLoss> losses{};
    /// What of the log was not read, or reads as more than it says, with its lines: a number that
    /// the end of the log cuts, reports of a later start that repeat iterations, iterations whose
    /// loss was no number in reports that have one.
    std::vector<std::string> notes{};
};

/// Reads the lines in which programs report their steps, whatever stands in front of them:
///
///     Megatron-LM   iteration N/ M | ... | elapsed time per iteration (ms): T | ...
///                   memory (MB) | ... | max allocated: X | ...
///                   (min, max) time across ranks (ms):, max time across ranks (ms):, times across
///                   ranks (ms):, or time (ms) | name: T | ..., and lines with timers behind them
///     torchtitan    step: N  loss: ...  memory: XGiB(...)  tps: R  tflops: F  mfu: ...
///     DeepSpeed     steps: N loss: L iter time (s): T samples/sec: R
///                   ... global_step=N, ... CurrSamplesPerSec=R, ... MaxMemAllocated=XGB
///     MaxText       completed step: N, seconds: T, TFLOP/s/device: F, ...
///     Trainer       {'train_runtime': ..., 'train_samples_per_second': R, ...}, of the whole run
///     nanotron      iteration: N / M | ... | time_per_iteration_ms: T | ...
///                   ... Peak allocated XMiB ...
///     NeMo          ... global_step: N | max_memory_allocated: X | train_step_timing in s: T | ...
///     ms-swift      {..., 'iteration': 'N/M', 'elapsed_time': '1m 2s', ..., 'train_speed(s/it)':
///     T},
///                   a mean since the start or the resumption
///
/// A number that ends with the log, without a line feed behind it, may be cut and is not read.
///
/// The losses are those in these lines, and in those of the Trainer ("{'loss': 2.3, ...}").
///
/// (megatron/training/training.py, training_log and report_memory;
/// torchtitan/components/metrics.py; deepspeed/runtime/pipe/engine.py, train_batch, and
/// deepspeed/utils/timer.py, ThroughputTimer.)
TrainingLog parse_training_log(std::string_view text);

/// The number of processes that DeepSpeed prints with its configuration ("world_size ... 16");
/// none: it is not there.
std::optional<int> logged_world_size(std::string_view text);

/// What turns rates into times; 0: not known.
struct StepSizes {
    std::optional<int> batch{};   ///< samples of a step, over all replicas
    double tokens_of_device = 0;  ///< tokens of a step by devices
};

/// What a log says of one step.
struct MeasuredStep {
    double seconds = 0;                     ///< the median
    std::optional<double> device_tflops{};  ///< the median; none: not all steps say it
    int steps = 0;                          ///< how many it is the median of
    bool has_start = false;                 ///< true if they are the first after a start
    int first_line = 0;
    int last_line = 0;
};

/// The median of the steps with the samples of `sizes` (none: any), without the first after each
/// start, which takes longer; of these where there are no others. None: there is no such step, or
/// only the rate is known, and not what it is a rate of.
std::optional<MeasuredStep> measured_step(const TrainingLog& log, const StepSizes& sizes);

}  // namespace pipetwin
