// SPDX-License-Identifier: Apache-2.0
#include "tests/gui/canned.h"

#include <cmath>

#include "core/base/error.h"
#include "core/schedule/lower.h"

namespace pipetwin::gui {

namespace {

/// Lays a GPipe step out, action after action.
class CannedStep {
  public:
    CannedStep(Origin origin, const CannedShape& shape, int step)
        : origin_(origin), shape_(shape), step_(step) {
        const auto ranks = static_cast<std::size_t>(shape.ranks);
        timeline_.origin = origin;
        timeline_.ranks.resize(ranks);
        now_.resize(ranks);
        arrival_.resize(static_cast<std::size_t>(shape.micro_batches));
    }

    Timeline make() {
        for (int rank = 0; rank < shape_.ranks; ++rank) {
            for (int m = 0; m < shape_.micro_batches; ++m) {
                forward(rank, m);
            }
        }
        for (int rank = shape_.ranks - 1; rank >= 0; --rank) {
            for (int m = shape_.micro_batches - 1; m >= 0; --m) {
                backward(rank, m);
            }
            compute(rank, {.op = Op::Optimizer, .stage = rank}, 0.5);
        }
        return timeline_;
    }

  private:
    void forward(int rank, int m) {
        if (rank > 0) {
            receive(rank, {.op = Op::RecvForward, .stage = rank, .micro_batch = m});
        }
        compute(rank, {.op = Op::Forward, .stage = rank, .micro_batch = m}, 1);
        if (rank + 1 < shape_.ranks) {
            send(rank, {.op = Op::SendForward, .stage = rank, .micro_batch = m});
        }
    }

    void backward(int rank, int m) {
        if (rank + 1 < shape_.ranks) {
            receive(rank, {.op = Op::RecvBackward, .stage = rank, .micro_batch = m});
        }
        compute(rank, {.op = Op::Backward, .stage = rank, .micro_batch = m}, 2);
        if (rank > 0) {
            send(rank, {.op = Op::SendBackward, .stage = rank, .micro_batch = m});
        }
    }

    Duration& now(int rank) { return now_[static_cast<std::size_t>(rank)]; }
    Duration& arrival(int m) { return arrival_[static_cast<std::size_t>(m)]; }

    void add(int rank, const Span& span) {
        timeline_.ranks[static_cast<std::size_t>(rank)].push_back(span);
        now(rank) = span.end;
    }

    void compute(int rank, const Action& action, double milliseconds) {
        const int wobble = (7 * rank + 3 * action.micro_batch) % 5 - 1;
        const double factor =
            origin_ == Origin::Predicted ? 1 : 1 + shape_.jitter * wobble + 0.01 * step_;
        const Duration begin = now(rank);
        const Duration length{std::llround(1e6 * milliseconds * factor)};
        add(rank, {.action = action, .begin = begin, .ready = begin, .end = begin + length});
    }

    void send(int rank, const Action& action) {
        const Duration at = now(rank);
        add(rank, {.action = action, .begin = at, .ready = at, .end = at});
        arrival(action.micro_batch) = at;
    }

    void receive(int rank, const Action& action) {
        const Duration begin = now(rank);
        const Duration ready = std::max(begin, arrival(action.micro_batch));
        add(rank, {.action = action, .begin = begin, .ready = ready, .end = ready});
    }

    Origin origin_;
    CannedShape shape_;
    int step_;
    Timeline timeline_;
    std::vector<Duration> now_;
    std::vector<Duration> arrival_;
};

}  // namespace

Timeline canned_timeline(Origin origin, const CannedShape& shape, int step) {
    return CannedStep(origin, shape, step).make();
}

RunData canned_run(const CannedShape& shape) {
    RunData run;
    run.path = "canned";
    run.schedule_name = "gpipe";
    run.micro_batches = shape.micro_batches;
    TimelineSet predicted;
    predicted.steps = {canned_timeline(Origin::Predicted, shape)};
    TimelineSet measured;
    for (int step = 0; step < shape.steps; ++step) {
        measured.steps.push_back(canned_timeline(Origin::Measured, shape, step));
    }
    DrawnSide upper = drawn_side(predicted);
    DrawnSide lower = drawn_side(measured);
    run.twin = {.predicted = std::move(upper.steps), .measured = std::move(lower.steps)};
    run.predicted = std::move(upper.data);
    run.measured = std::move(lower.data);
    run.comparison = compare(predicted, measured);
    return run;
}

SpanRef find(const RunData& run, Side side, const Action& action) {
    for (int rank = 0; rank < run.twin.rank_count(); ++rank) {
        const RowIndex& row = *run.twin.row(side, run.main_step(), rank);
        for (int cell = 0; cell < row.size(); ++cell) {
            if (row.action(cell) == action) {
                return {.side = side, .step = run.main_step(), .rank = rank, .cell = cell};
            }
        }
    }
    PIPETWIN_EXPECT(false, "the canned run has this action");
    return {};
}

}  // namespace pipetwin::gui
