// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/recorder.h"

#include <utility>

#include "core/base/error.h"
#include "exec/base/cores.h"

namespace pipetwin::exec {

Recorder::Recorder(std::vector<Action> row) : row_(std::move(row)) {
    moments_.reserve(row_.size());
}

void Recorder::restart() {
    moments_.clear();
    wall_ = {};
    cpu_ = {};
}

void Recorder::begin_compute() {
    cpu_began_ = thread_cpu_time();
    compute_began_ = std::chrono::steady_clock::now();
}

void Recorder::end_compute() {
    wall_ += std::chrono::steady_clock::now() - compute_began_;
    cpu_ += thread_cpu_time() - cpu_began_;
}

void Recorder::record(TimePoint begin, TimePoint ready, TimePoint end, Duration in_groups) {
    PIPETWIN_EXPECT(moments_.size() < row_.size(), "a row has one span for each action");
    moments_.push_back({.begin = begin, .ready = ready, .end = end, .in_groups = in_groups});
}

void Recorder::spans(TimePoint start, std::vector<Span>& spans) const {
    spans.clear();
    for (std::size_t cell = 0; cell < moments_.size(); ++cell) {
        const Moments& moments = moments_[cell];
        spans.push_back({.action = row_[cell],
                         .begin = moments.begin - start,
                         .ready = moments.ready - start,
                         .end = moments.end - start});
    }
}

void Recorder::times_in_groups(std::vector<Duration>& times) const {
    times.clear();
    for (const Moments& moments : moments_) {
        times.push_back(moments.in_groups);
    }
}

}  // namespace pipetwin::exec
