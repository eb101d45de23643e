// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/logged_losses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/median.h"
#include "core/interop/launch/log_lines.h"

namespace pipetwin {

namespace {

/// The number behind a key, which may have blanks and a quote in front and a unit of thousands
/// behind it ("1.2K", nanotron).
std::optional<double> loss_behind(std::string_view line, std::string_view key) {
    const std::size_t at = line.find(key);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    std::string_view rest = line.substr(at + key.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(": ='\""), rest.size()));
    const std::optional<double> loss = number_behind<double>(rest, "");
    const std::size_t unit = rest.find_first_not_of("0123456789.");
    const bool is_thousands = unit != std::string_view::npos && rest[unit] == 'K';
    return loss && is_thousands ? *loss * 1000 : loss;
}

std::optional<LossSpike> spike_at(const std::vector<LoggedLoss>& finite, std::size_t at) {
    constexpr std::size_t fewest = 4;
    constexpr std::size_t most = 8;
    constexpr double least_rise = 0.5;
    constexpr double least_share = 0.25;
    if (at < fewest) {
        return std::nullopt;
    }
    std::vector<double> before;
    for (std::size_t i = at - std::min(at, most); i < at; ++i) {
        before.push_back(finite[i].loss);
    }
    const double middle = median(before);
    const double rise = finite[at].loss - middle;
    const bool is_spike = rise >= least_rise && rise >= least_share * std::abs(middle);
    return is_spike ? std::optional(LossSpike{finite[at], middle}) : std::nullopt;
}

}  // namespace

bool is_trainer_loss(std::string_view line) {
    return line.find("{'loss':") != std::string_view::npos &&
           (line.find("'learning_rate'") != std::string_view::npos ||
            line.find("'epoch'") != std::string_view::npos);
}

int logged_nan_iterations(std::string_view line) {
    return std::max(0, number_behind<int>(line, "number of nan iterations:").value_or(0));
}

std::optional<double> logged_loss(std::string_view line) {
    // The words of Megatron-LM and its relatives, GPT-NeoX and nanotron, NeMo 2 and 1, ms-swift
    // (with quotes) and the Trainer, then torchtitan, DeepSpeed and MaxText.
    constexpr std::array<std::string_view, 8> keys{"lm loss:",
                                                   "lm_loss:",
                                                   "reduced_train_loss:",
                                                   "reduced_train_loss=",
                                                   "'lm loss':",
                                                   "'loss':",
                                                   "| loss:",
                                                   " loss:"};
    for (const std::string_view key : keys) {
        // " loss:" is also the end of "mtp_1 loss:", behind Megatron-LM's missing "lm loss:".
        const bool is_of_megatron = line.find("elapsed time per iteration") != line.npos;
        if (key == " loss:" && is_of_megatron) {
            continue;
        }
        if (const std::optional<double> loss = loss_behind(line, key)) {
            return loss;
        }
    }
    // Megatron-LM prints averages above 0 alone (megatron/training/training.py, training_log).
    const bool leaves_out = line.find("elapsed time per iteration (ms):") != line.npos;
    const std::optional<double> norm = number_behind<double>(line, "grad norm:");
    const bool is_no_number = (norm && !std::isfinite(*norm)) || logged_nan_iterations(line) > 0;
    return leaves_out && is_no_number ? std::optional(std::numeric_limits<double>::quiet_NaN())
                                      : std::nullopt;
}

std::optional<LossCourse> loss_course(const std::vector<LoggedLoss>& losses) {
    if (losses.empty()) {
        return std::nullopt;
    }
    LossCourse course{.reports = static_cast<int>(losses.size())};
    std::vector<LoggedLoss> finite;
    for (const LoggedLoss& loss : losses) {
        if (std::isfinite(loss.loss)) {
            finite.push_back(loss);
            continue;
        }
        ++course.not_finite;
        if (!course.first_not_finite) {
            course.first_not_finite = loss;
        }
    }
    if (finite.empty()) {
        return course;
    }
    course.first = finite.front();
    course.last = finite.back();
    for (std::size_t i = 0; i < finite.size(); ++i) {
        const std::optional<LossSpike> spike = spike_at(finite, i);
        const auto rise = [](const LossSpike& of) { return of.at.loss - of.before; };
        if (spike && (!course.spike || rise(*spike) > rise(*course.spike))) {
            course.spike = spike;
        }
    }
    return course;
}

}  // namespace pipetwin
