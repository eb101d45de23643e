// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "cli/base/console.h"
#include "cli/base/progress.h"
#include "cli/run_folder/live_file.h"
#include "cli/run_folder/metrics_file.h"
#include "cli/run_folder/run_folder.h"
#include "cli/training/run_options.h"
#include "cli/training/training_costs.h"
#include "core/base/error.h"
#include "core/costs/profile.h"
#include "core/scenario/settled_scenario.h"
#include "exec/data/data_check.h"
#include "exec/training/trainer.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::cli {

/// What is known before the first step, the same in all processes.
struct SettledRun {
    SettledScenario scenario;
    Profile profile{};
    std::optional<RunFolder> folder{};  ///< of the first process alone
    std::optional<Error> lost{};        ///< why a file that goes on with every step is not whole
};

/// What the first process keeps and says of a training while it goes on.
class TrainingRecord {
  public:
    /// `rounds` may be null: then nothing is measured between the steps.
    TrainingRecord(const RunOptions& options,
                   SettledRun& run,
                   exec::DataCheck& data,
                   const std::function<void(const exec::StepReport&)>& on_step,
                   RoundsBetweenSteps* rounds,
                   Console& console)
        : options_(options),
          run_(run),
          data_(data),
          folder_(run.folder.value()),
          on_step_(on_step),
          rounds_(rounds),
          console_(console) {}

    /// Asks the training to report here. The record and the plan outlive it.
    void follow(exec::TrainingOptions& training, const Plan& plan);

    /// Writes what the disk had no room for, as far as it has room now.
    void finish();

  private:
    /// Nothing refuses the training any more.
    void begin(int first_step, const Plan& plan);

    LiveHeader live_header(const Plan& plan) const;

    /// Whether the training goes on.
    bool add(const exec::StepReport& step);

    const RunOptions& options_;
    SettledRun& run_;
    exec::DataCheck& data_;
    RunFolder& folder_;
    const std::function<void(const exec::StepReport&)>& on_step_;
    RoundsBetweenSteps* rounds_;  ///< null: none
    Console& console_;
    std::optional<MetricsFile> metrics_;
    std::optional<LiveFile> live_;
    std::optional<Progress> translating_;
};

}  // namespace pipetwin::cli
