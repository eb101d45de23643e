// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/side_by_side.h"

#include <algorithm>
#include <future>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin::exec {

SideBySide::SideBySide(std::vector<std::unique_ptr<MeasuredPipeline>> pipelines)
    : pipelines_(std::move(pipelines)) {
    constexpr int warm_up = 2;
    for (int step = 0; step < warm_up; ++step) {
        all_at_once();
    }
}

void SideBySide::step() {
    steps_.push_back(all_at_once());
}

int SideBySide::clean_steps() const {
    return static_cast<int>(std::ranges::count_if(
        steps_, [](const Samples& step) { return stolen(step) <= most_stolen; }));
}

std::vector<Samples> SideBySide::calm_steps() const {
    std::vector<Samples> calm = steps_;
    std::ranges::stable_sort(calm, {}, &SideBySide::stolen);
    const std::size_t third = (calm.size() + 2) / 3;
    const std::size_t clean = as_index(clean_steps());
    calm.resize(clean > 0 ? clean : third);
    std::vector<Samples> of_pipelines(pipelines_.size());
    for (Samples& step : calm) {
        for (std::size_t index = 0; index < step.size(); ++index) {
            of_pipelines[index].push_back(std::move(step[index]));
        }
    }
    return of_pipelines;
}

Samples SideBySide::all_at_once() {
    std::vector<std::future<StepSample>> others;
    for (std::size_t index = 1; index < pipelines_.size(); ++index) {
        others.push_back(
            std::async(std::launch::async, [this, index] { return pipelines_[index]->step(); }));
    }
    Samples samples{pipelines_.front()->step()};
    for (std::future<StepSample>& other : others) {
        samples.push_back(other.get());
    }
    return samples;
}

double SideBySide::stolen(const Samples& step) {
    return std::ranges::max(step, {}, &StepSample::stolen).stolen;
}

}  // namespace pipetwin::exec
