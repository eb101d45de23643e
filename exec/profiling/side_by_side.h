// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exec/profiling/measured_pipeline.h"

namespace pipetwin::exec {

/// Pipelines that take their steps at the same time, each with a core of its own: what layers take
/// while other cores are busy. One pipeline is alone.
class SideBySide {
  public:
    /// Takes some steps to warm up.
    explicit SideBySide(std::vector<std::unique_ptr<MeasuredPipeline>> pipelines);

    /// Takes a step of each pipeline, and keeps what it took.
    void step();

    /// [pipeline] what the last step took.
    const Samples& last() const { return steps_.back(); }
    /// The largest share of the last step that a pipeline lost to others.
    double last_stolen() const { return stolen(steps_.back()); }

    int steps() const { return static_cast<int>(steps_.size()); }
    /// How many steps lost at most `most_stolen`.
    int clean_steps() const;
    /// [pipeline] those steps; where every one lost more, the calmest third of all.
    std::vector<Samples> calm_steps() const;

  private:
    Samples all_at_once();
    static double stolen(const Samples& step);

    std::vector<std::unique_ptr<MeasuredPipeline>> pipelines_;
    std::vector<Samples> steps_;  ///< [step][pipeline]
};

}  // namespace pipetwin::exec
