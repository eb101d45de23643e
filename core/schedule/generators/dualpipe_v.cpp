// SPDX-License-Identifier: Apache-2.0
#include <deque>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin::schedules {

namespace {

/// Writes one rank's row, phase by phase as the paper's code has them. Chunk 0 is the rank's piece
/// on the way down, chunk 1 that on the way up.
class DualPipeRow {
  public:
    DualPipeRow(RowWriter& row, int rank, int p, int m) : row_(row), rank_(rank), p_(p), m_(m) {}

    void write() {
        repeat(2 * (p_ - rank_ - 1), [this] { forward(0); });
        repeat(rank_ + 1, [this] {
            forward(0);
            forward(1);
        });
        repeat(p_ - rank_ - 1, [this] {
            input_gradient(1);
            oldest_weight_gradient();
            forward(1);
        });
        for (int k = 0; k < m_ - 2 * p_ + rank_ + 1; ++k) {
            // The last rank has just done this forward's neighbour: nothing to overlap with yet.
            both(0, 1, k > 0 || rank_ != p_ - 1);
            both(1, 0, true);
        }
        repeat(p_ - rank_ - 1, [this] {
            backward(1);
            both(1, 0, true);
        });
        drain();
        repeat(p_ - rank_ - 1, [this] {
            oldest_weight_gradient();
            input_gradient(0);
        });
        while (!pending_.empty()) {
            oldest_weight_gradient();
        }
    }

  private:
    template <class Body>
    static void repeat(int times, Body body) {
        for (int k = 0; k < times; ++k) {
            body();
        }
    }

    void forward(int chunk) { row_.next(Op::Forward, chunk); }
    void backward(int chunk) { row_.add(Op::Backward, chunk, backwards_[index(chunk)]++); }
    void input_gradient(int chunk) {
        const int micro_batch = backwards_[index(chunk)]++;
        row_.add(Op::BackwardInput, chunk, micro_batch);
        pending_.push_back({chunk, micro_batch});
    }
    void oldest_weight_gradient() {
        row_.add(Op::BackwardWeight, pending_.front().chunk, pending_.front().micro_batch);
        pending_.pop_front();
    }
    void both(int forward_chunk, int backward_chunk, bool overlapped) {
        forward(forward_chunk);
        backward(backward_chunk);
        if (overlapped) {
            row_.overlap_last_two();
        }
    }

    /// From its middle on the backwards are split: their weight gradients fill the end.
    void drain() {
        bool split = false;
        const auto one = [this, &split](int chunk) {
            if (split) {
                input_gradient(chunk);
            } else {
                backward(chunk);
            }
        };
        for (int pair = 0; pair < rank_ + 1; ++pair) {
            const bool middle = pair == (rank_ + 1) / 2;
            split = split || (middle && rank_ % 2 == 1);
            one(1);
            split = split || middle;
            one(0);
        }
    }

    static std::size_t index(int chunk) { return as_index(chunk); }

    struct Pending {
        int chunk = 0;
        int micro_batch = 0;
    };
    RowWriter& row_;
    int rank_;
    int p_;
    int m_;
    std::array<int, 2> backwards_{};  ///< B and I so far, by chunk
    std::deque<Pending> pending_;     ///< weight gradients to be computed
};

/// DualPipeV: two chunks per rank in a V; in the middle of the step every rank runs a forward of
/// one micro-batch and a backward of another as one overlapped pair, whose computation hides the
/// communication between experts of the other.
///
///     rank 0   0 1 2 0 a A 1 3 b b . 2 a a c c . 3 b b d d c C d D
///     rank 1   . 0 0 1 1 2 a a 2 a a 3 b b 3 b b c c c c . d d D D
///
/// (Two ranks, four micro-batches; F = I = W, pairs drawn one after the other.) The idle time of
/// the worst rank is (p - 1)(F&B + B - 3 W), where F&B is an overlapped pair; every rank keeps 2p +
/// 1 activations. Needs m >= 2p.
///
/// Source: DeepSeek-AI, "DualPipe" (github.com/deepseek-ai/DualPipe), cut in half as proposed by
/// Qi et al.
Schedule dualpipe_v(const ScheduleShape& shape, const GeneratorOptions&) {
    require_two_chunks(shape, "dualpipe-v");
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    require_rule(m >= 2 * p,
                 "dualpipe-v",
                 fmt::format("needs at least {} micro-batches, two per rank, got {}", 2 * p, m),
                 {"set {} or more", {{"pipeline.micro_batches", fmt::to_string(2 * p)}}});
    Schedule schedule = v_placement(shape);
    fill_rows(schedule, [p, m](int rank, RowWriter& row) { DualPipeRow(row, rank, p, m).write(); });
    return schedule;
}

}  // namespace

const ScheduleTraits dualpipe_v_traits{
    .name = "dualpipe-v",
    .torch_name = "DualPipeV",
    .kin = "dualpipe",
    .kin_differs =
        "take 'dualpipe-v': the same pairs of forward and backward, folded into a V on "
        "half the ranks, with one copy of the weights. DualPipe itself, in which two "
        "ranks hold each stage, is not generated",
    .generate = dualpipe_v,
    .chunks = ChunkCounts::Two,
    .placement = StagePlacement::V,
    .split = BackwardSplit::Sometimes,
    .searched = Searched::Yes,
    .stashes = [](const ScheduleShape& shape, int) { return LiveStashes{2 * shape.ranks + 1}; },
};

}  // namespace pipetwin::schedules
