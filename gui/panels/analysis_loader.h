// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <QFutureWatcher>
#include <QObject>

#include "gui/view/analysis/step_analysis.h"

namespace pipetwin::gui {

/// Analyses a step on a worker. Only the last request is answered; nothing comes after the end of
/// the loader.
class AnalysisLoader : public QObject {
    Q_OBJECT

  public:
    explicit AnalysisLoader(QObject* parent = nullptr);

    /// Requests the analysis of a step; `ready` follows, at once if it is there. The analysis of
    /// another step is dropped.
    void want(const std::shared_ptr<const RunData>& run, Side side, int step);

    /// The analysis; null before it is there, and where the side has no such step.
    const StepAnalysis* get() const { return analysis_.get(); }
    std::shared_ptr<const StepAnalysis> share() const { return analysis_; }
    bool is_working() const { return working_; }

  signals:
    void ready();

  private:
    using Result = std::shared_ptr<const StepAnalysis>;

    QFutureWatcher<Result> watcher_;
    Result analysis_;
    std::shared_ptr<const RunData> run_;
    const StepRows* rows_ = nullptr;
    bool working_ = false;
};

}  // namespace pipetwin::gui
