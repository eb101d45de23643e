// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace pipetwin {

/// A loss that a training program reported.
struct LoggedLoss {
    int line = 0;                ///< from 1
    std::int64_t iteration = 0;  ///< 0: the program does not say it
    double loss = 0;             ///< as printed, NaN and infinity included

    bool operator==(const LoggedLoss&) const = default;
};

/// The loss in a line that reports a step or, as the Trainer's lines, nothing but losses; NaN where
/// the program leaves out a loss that is no number, as Megatron-LM does, and the line says that the
/// norm of the gradient or an iteration was none, too; none: the line has none.
std::optional<double> logged_loss(std::string_view line);

/// Iterations in a line of Megatron-LM's whose loss was no number; 0: the line says none.
int logged_nan_iterations(std::string_view line);

/// Whether the Trainer of Hugging Face or ms-swift printed the line: "{'loss': 2.3, ...}".
bool is_trainer_loss(std::string_view line);

/// A report far above those before.
struct LossSpike {
    LoggedLoss at{};
    double before = 0;  ///< median of up to eight reports before

    bool operator==(const LossSpike&) const = default;
};

/// How the loss of a run went.
struct LossCourse {
    int reports = 0;
    std::optional<LoggedLoss> first{};  ///< that is a number; none: no report is
    std::optional<LoggedLoss> last{};   ///< that is a number
    int not_finite = 0;                 ///< reports that are NaN or infinite
    std::optional<LoggedLoss> first_not_finite{};
    /// The highest report above those before, by at least 0.5 and a quarter of their median; none:
    /// there is no such report behind four others.
    std::optional<LossSpike> spike{};

    bool operator==(const LossCourse&) const = default;
};

/// None: there is no report.
std::optional<LossCourse> loss_course(const std::vector<LoggedLoss>& losses);

}  // namespace pipetwin
