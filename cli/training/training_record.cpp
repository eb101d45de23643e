// SPDX-License-Identifier: Apache-2.0
#include "cli/training/training_record.h"

#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "cli/base/stop_signal.h"
#include "exec/base/retry.h"
#include "exec/executor/backend.h"

namespace pipetwin::cli {

namespace {

void note_start(const std::filesystem::path& checkpoints,
                int first_step,
                const std::optional<exec::Checkpoints::Loaded>& loaded,
                Console& console) {
    if (!loaded) {
        console.note(fmt::format("no checkpoint in {}: the run starts from the beginning",
                                 checkpoints.string()));
        return;
    }
    for (const std::string& damaged : loaded->damaged) {
        console.note(fmt::format("a damaged checkpoint is left out: {}", damaged));
    }
    console.note(
        fmt::format("continues with step {} from {}", first_step, loaded->folder.string()));
}

}  // namespace

void TrainingRecord::follow(exec::TrainingOptions& training, const Plan& plan) {
    training.checkpoints = folder_.file(run_file::checkpoints);
    training.on_start = [this, &plan](int first_step, const auto& loaded) {
        if (options_.resume) {
            note_start(folder_.file(run_file::checkpoints), first_step, loaded, console_);
        }
        if (first_step < run_.scenario.training.steps) {
            begin(first_step, plan);
        }
    };
    if (options_.live) {
        training.on_timeline = [this](int step, const Timeline& timeline) {
            live_->add(step, timeline);
        };
    }
    training.on_step = [this](const exec::StepReport& step) { return add(step); };
    training.before_checkpoint = [this] {
        metrics_->bring_to_disk();
        folder_.bring_to_disk();
    };
    training.on_translated = [this](double share) {
        if (!translating_) {
            translating_.emplace(console_, "translating held-out texts");
        }
        translating_->update(share);
    };
    training.on_warning = [this](const std::string& text) { console_.note(text); };
}

void TrainingRecord::finish() {
    try {
        if (metrics_) {
            metrics_->finish(exec::disk_patience);
        }
    } catch (const Error& error) {
        run_.lost = error;
    }
    try {
        if (live_) {
            live_->finish(exec::disk_patience);
        }
    } catch (const Error& error) {  // for a program that watched; no result of the training
        console_.note(fmt::format("{}: {}", error.place(), error.text()));
    }
}

void TrainingRecord::begin(int first_step, const Plan& plan) {
    data_.refuse_found();
    // The folder goes on to tell when this record has gone.
    const auto tell = [&console = console_](const std::string& text) { console.note(text); };
    folder_.keep_on(exec::disk_patience, tell);
    metrics_.emplace(folder_.file(run_file::metrics), first_step, tell);
    if (options_.live) {
        live_.emplace(folder_.file(run_file::live), live_header(plan));
    }
}

LiveHeader TrainingRecord::live_header(const Plan& plan) const {
    const Scenario::ClusterPart& cluster = run_.scenario.cluster;
    const bool is_emulated = exec::traits(cluster.backend).is_emulated || cluster.emulate_links;
    return {.plan_hash = plan.hash(),
            .schedule_name = plan->schedule_name,
            .origin = is_emulated ? Origin::Emulated : Origin::Measured,
            .schedule = plan->schedule};
}

bool TrainingRecord::add(const exec::StepReport& step) {
    folder_.expect_still_there();
    metrics_->add(step);
    folder_.write_kept();
    data_.begin();  // only now where costs were given: the first step comes as soon as it can
    on_step_(step);
    for (const std::string& note : step.notes) {
        console_.note(note);
    }
    data_.refuse_found();
    const bool goes_on = StopSignal::received() == 0;
    if (goes_on && rounds_ != nullptr) {
        rounds_->after_step(step);
    }
    return goes_on;
}

}  // namespace pipetwin::cli
