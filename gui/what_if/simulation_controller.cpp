// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/simulation_controller.h"

#include <chrono>
#include <utility>

#include <QtConcurrentRun>

#include "gui/base/workers.h"
#include "gui/view/what_if/what_if.h"

namespace pipetwin::gui {

namespace {

constexpr double most_seconds_at_once = 0.005;

/// F and B with their messages, more or less.
double actions_of(const WhatIf& settings) {
    return 6.0 * settings.stages * settings.chunks * settings.micro_batches;
}

}  // namespace

WhatIfResult simulate_what_if(const WhatIfSource& source,
                              const WhatIf& settings,
                              sim::RecordLinks links) {
    const auto begin = std::chrono::steady_clock::now();
    WhatIfSimulation simulation = apply(source, settings, links);
    WhatIfResult result{.settings = settings, .outcome = simulation.outcome, .run = nullptr};
    if (settings == source.settings()) {
        result.run = source.share_run();
    } else if (result.outcome.step != nullptr) {
        result.run = what_if_run(source, settings, std::move(simulation));
    }
    result.took = std::chrono::steady_clock::now() - begin;
    return result;
}

SimulationController::SimulationController(QObject* parent) : QObject(parent) {
    connect(
        &worker_, &QFutureWatcher<AnswerPointer>::finished, this, &SimulationController::finish);
    connect(&reader_, &QFutureWatcher<SourcePointer>::finished, this, [this] {
        if (std::exchange(reading_, false)) {
            take_source(reader_.result());
        }
    });
}

void SimulationController::show_run(std::shared_ptr<const RunData> run) {
    pending_.reset();
    outdated_ = true;
    seconds_per_action_.reset();
    source_.reset();
    if (run == nullptr || run->planned != nullptr || run->empty()) {
        reading_ = false;
        take_source(run == nullptr ? nullptr : std::make_shared<const WhatIfSource>(run));
        return;
    }
    // The medians of a trace take as long as it is large.
    reading_ = true;
    reader_.setFuture(QtConcurrent::run(workers(), [run = std::move(run)]() -> SourcePointer {
        return std::make_shared<const WhatIfSource>(run);
    }));
}

void SimulationController::take_source(SourcePointer source) {
    source_ = std::move(source);
    emit source_changed();
}

bool SimulationController::is_fast(const WhatIf& settings) const {
    return seconds_per_action_ &&
           *seconds_per_action_ * actions_of(settings) < most_seconds_at_once;
}

void SimulationController::want(const WhatIf& settings) {
    outdated_ = true;
    if (is_fast(settings)) {
        pending_.reset();
        take(simulate_what_if(*source_, settings, links_));
    } else if (worker_.isRunning()) {
        pending_ = settings;
    } else {
        start(settings);
    }
}

void SimulationController::start(const WhatIf& settings) {
    outdated_ = false;
    worker_.setFuture(QtConcurrent::run(
        workers(), [source = source_, settings, links = links_]() -> AnswerPointer {
            return std::make_shared<const Answer>(source,
                                                  simulate_what_if(*source, settings, links));
        }));
}

void SimulationController::finish() {
    const AnswerPointer answer = worker_.result();
    if (pending_) {
        const WhatIf settings = *std::exchange(pending_, std::nullopt);
        start(settings);
    } else if (!outdated_ && answer->source == source_) {
        take(answer->result);
    }
}

void SimulationController::take(const WhatIfResult& result) {
    seconds_per_action_ = to_seconds(result.took) / actions_of(result.settings);
    emit simulated(result);
}

}  // namespace pipetwin::gui
