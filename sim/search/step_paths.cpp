// SPDX-License-Identifier: Apache-2.0
#include "sim/search/step_paths.h"

#include <algorithm>
#include <functional>

#include "core/plan/plan.h"

namespace pipetwin::sim {

PieceTimes piece_times(const LayerCosts& costs, std::span<const int> kind_of_piece) {
    PieceTimes times;
    for (const int kind : kind_of_piece) {
        auto& forward = times.forward.emplace_back(1, 0.0);
        auto& backward_input = times.backward_input.emplace_back(1, 0.0);
        auto& backward_weight = times.backward_weight.emplace_back(1, 0.0);
        const auto add = [](std::vector<double>& to, Duration time) {
            to.push_back(to.back() + static_cast<double>(time.count()));
        };
        for (const LayerSample& sample : costs.samples.front()[as_index(kind)]) {
            add(forward, sample.forward);
            add(backward_input, sample.backward_input);
            add(backward_weight, sample.backward_weight);
        }
    }
    return times;
}

namespace {

/// Nanoseconds that the actions of a chain take with layers `first` to `end` - 1 of a piece's.
double length_of(const StepPath::Counts& counts,
                 const PieceTimes& times,
                 std::size_t piece,
                 int first,
                 int end) {
    const auto of = [&](const std::vector<double>& before) {
        return before[as_index(end)] - before[as_index(first)];
    };
    return counts.forward * of(times.forward[piece]) +
           counts.backward_input * of(times.backward_input[piece]) +
           counts.backward_weight * of(times.backward_weight[piece]);
}

double length_of(const StepPath& path, const PieceTimes& times, std::span<const int> first_layers) {
    double sum = path.all_else;
    for (std::size_t piece = 0; piece < path.of_piece.size(); ++piece) {
        sum += length_of(
            path.of_piece[piece], times, piece, first_layers[piece], first_layers[piece + 1]);
    }
    return sum;
}

/// Index of a shift of boundaries by layers from -2 to 2.
std::size_t shift_index(int layers) {
    return as_index(layers + most_moved - (layers > 0 ? 1 : 0));
}

}  // namespace

StepPath step_path(const Causes& causes,
                   Duration step,
                   const PieceTimes& times,
                   std::span<const int> first_layers) {
    StepPath path{.of_piece = std::vector<StepPath::Counts>(times.forward.size())};
    const std::optional<SpanPlace> last = last_span(causes.timeline());
    for (const Cause& cause : last ? causes.of_end(*last) : std::vector<Cause>{}) {
        const Op op = cause.action.op;
        if (cause.reason == Reason::HostCopy || !is_compute(op)) {
            continue;
        }
        StepPath::Counts& counts =
            path.of_piece[as_index(model_stage_of(causes.plan()->schedule, cause.action.stage))];
        counts.forward += op == Op::Forward || op == Op::Recompute ? 1 : 0;
        counts.backward_input += op == Op::Backward || op == Op::BackwardInput ? 1 : 0;
        counts.backward_weight += op == Op::Backward || op == Op::BackwardWeight ? 1 : 0;
    }
    path.all_else = static_cast<double>(step.count()) - length_of(path, times, first_layers);
    return path;
}

PathLengths::PathLengths(std::span<const StepPath> paths,
                         const PieceTimes& times,
                         std::span<const int> first_layers)
    : pieces_(first_layers.size() - 1) {
    const int layers = first_layers.back();
    paths_.reserve(paths.size());
    sums_.reserve(paths.size() * 2 * as_index(most_moved) * (pieces_ + 1));
    for (const StepPath& path : paths) {
        paths_.push_back(
            {.length = length_of(path, times, first_layers), .first_sum = sums_.size()});
        for (int by = -most_moved; by <= most_moved; ++by) {
            if (by == 0) {
                continue;
            }
            sums_.insert(sums_.end(), 2, 0.0);
            for (std::size_t piece = 1; piece < pieces_; ++piece) {
                const int at = first_layers[piece];
                const int to = std::clamp(at + by, 0, layers);
                // The piece in front gets the layers between, or gives them away.
                sums_.push_back(sums_.back() +
                                length_of(path.of_piece[piece - 1], times, piece - 1, at, to) -
                                length_of(path.of_piece[piece], times, piece, at, to));
            }
        }
    }
    std::ranges::stable_sort(paths_, std::greater{}, &Path::length);
}

double PathLengths::longest_after(const Move& move, double most) const {
    const bool is_forward = move.from < move.to;
    const std::size_t shift = shift_index(is_forward ? -move.layers : move.layers);
    const std::size_t first = as_index(std::min(move.from, move.to)) + 1;
    const std::size_t last = as_index(std::max(move.from, move.to)) + 1;
    double longest = 0;
    for (const Path& path : paths_) {
        const double* const sums = &sums_[path.first_sum + shift * (pieces_ + 1)];
        longest = std::max(longest, path.length + sums[last] - sums[first]);
        if (longest > most) {
            break;
        }
    }
    return longest;
}

}  // namespace pipetwin::sim
