// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/analysis_loader.h"

#include <QtConcurrentRun>

#include "gui/base/workers.h"

namespace pipetwin::gui {

AnalysisLoader::AnalysisLoader(QObject* parent) : QObject(parent) {
    connect(&watcher_, &QFutureWatcher<Result>::finished, this, [this] {
        if (!working_) {
            return;  // nothing was wanted
        }
        working_ = false;
        analysis_ = watcher_.result();
        emit ready();
    });
}

void AnalysisLoader::want(const std::shared_ptr<const RunData>& run, Side side, int step) {
    const StepRows* const rows = run == nullptr ? nullptr : run->twin.step(side, step);
    if (run == run_ && rows == rows_ && rows != nullptr) {
        if (!working_) {
            emit ready();
        }
        return;
    }
    run_ = run;
    rows_ = rows;
    analysis_.reset();
    working_ = rows != nullptr;
    if (rows == nullptr) {
        watcher_.setFuture({});
        emit ready();
        return;
    }
    watcher_.setFuture(
        QtConcurrent::run(workers(), [run, side, step] { return analysis_of(run, side, step); }));
}

}  // namespace pipetwin::gui
