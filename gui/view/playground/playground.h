// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/generators/closed_form.h"
#include "gui/view/run/run_data.h"

/// A pipeline of plain numbers to try schedules with: no file, no model.
namespace pipetwin::gui {

/// Settings of the playground. Times are milliseconds of all stages of a rank together: with v
/// chunks a stage takes a v-th of them, so that schedules cut the same work differently.
struct PlaygroundSettings {
    std::string schedule{"1f1b"};  ///< our name of a schedule
    int stages = 4;                ///< K: ranks
    int micro_batches = 8;         ///< M
    int chunks = 1;                ///< v: stages of a rank
    double forward_ms = 1;
    double backward_input_ms = 1;
    double backward_weight_ms = 1;
    std::vector<double> factors{};  ///< [model stage]: of its times; empty: 1 each
    double latency_ms = 0;          ///< of every message
    double transfer_ms = 0;         ///< for which a message occupies its link

    bool operator==(const PlaygroundSettings&) const = default;
};

/// Largest values that can be set: a step of them is simulated in a fraction of a second.
inline constexpr int most_playground_stages = 32;
inline constexpr int most_playground_micro_batches = 256;

/// Number of model stages that the factors are of: K v.
int factor_count(const PlaygroundSettings& settings);

/// The settings with another schedule, with two chunks where it takes several and there was one:
/// with one it is another schedule's order.
PlaygroundSettings with_schedule(PlaygroundSettings settings, const std::string& schedule);

/// The settings with chunks and micro-batches that their schedule takes: of several numbers the
/// nearest. Unchanged where no number does; then the step says why.
PlaygroundSettings fitted(PlaygroundSettings settings);

/// One rank of a simulated step.
struct PlaygroundRank {
    Duration busy{};
    Duration idle{};
    int stashed = 0;  ///< most pairs of a micro-batch and a stage that it keeps at once
    std::string why;  ///< one sentence on what it waits for
};

/// The schedules that a comparison begins with: the usual one, and one that halves its bubble.
inline constexpr std::array<std::string_view, 2> compared_schedules{"1f1b", "interleaved-1f1b"};

/// "1f1b, 4 ranks, 8 micro-batches", and what else differs from the first settings.
std::string words_of(const PlaygroundSettings& settings);

/// What the playground shows of its settings.
struct PlaygroundStep {
    PlaygroundSettings settings;
    std::shared_ptr<const RunData> run;  ///< null where `problem` says why
    std::string problem;
    Duration step{};
    double bubble = 0;     ///< 1 - work / (K T), simulated
    ClosedForm form;       ///< the bubble that theory gives
    std::string headline;  ///< how idle ranks are, and the largest cause
    std::string cause;     ///< that cause, as the glossary calls it; empty: no rank is idle
    std::vector<PlaygroundRank> ranks;
};

/// Plans and simulates the settings. Never throws: what cannot be planned is a problem in words.
/// Takes as long as the search of the schedule, where it has one: call it on a worker.
PlaygroundStep play(const PlaygroundSettings& settings);

}  // namespace pipetwin::gui
