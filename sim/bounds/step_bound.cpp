// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/step_bound.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin::sim {

namespace {

/// One micro-batch on some layers of one rank.
struct Work {
    Duration forward{};
    Duration input{};
    Duration weight{};

    Work& operator+=(const Work& other) {
        forward += other.forward;
        input += other.input;
        weight += other.weight;
        return *this;
    }
    /// What lies before a rank's last F, B or I, at the least.
    Duration before_weights(const BoundQuestion& question, int recomputed) const {
        return question.micro_batches * (forward + input) + recomputed * forward;
    }
    Duration all(const BoundQuestion& question, int recomputed) const {
        return before_weights(question, recomputed) + question.micro_batches * weight;
    }
    /// One backward on its way back.
    Duration backward(const BoundQuestion& question) const {
        return input + (question.puts_off() ? Duration{} : weight);
    }
};

/// A W has a dispatch of its own only where every backward is split.
Work work_of(const LayerSums& sums, BackwardSplit split, int first, int end) {
    const auto part = [&](const std::vector<Duration>& of) {
        return of[as_index(end)] - of[as_index(first)];
    };
    return {.forward = part(sums.forward) + sums.dispatch,
            .input = part(sums.backward_input) + sums.dispatch,
            .weight = part(sums.backward_weight) +
                      (split == BackwardSplit::Always ? sums.dispatch : Duration{})};
}

Duration update_of(const LayerSums& sums, const BoundQuestion& question, int first, int end) {
    const Duration update =
        sums.update[as_index(end)] - sums.update[as_index(first)] + sums.dispatch;
    if (question.replicas.members == 1 || question.overlap_reduction) {
        return update;
    }
    return update + all_reduce_time(question.all_reduce,
                                    question.replicas,
                                    sums.weights[as_index(end)] - sums.weights[as_index(first)]);
}

/// What a rank holds of one micro-batch on one of its pieces, or the least of them.
struct StashBytes {
    Bytes input{};
    Bytes saved{};
    Bytes split{};  ///< in addition, from I to W
};

/// By a rank with these stashes at once.
Bytes held_at_least(const StashBytes& of, bool recomputes, const LiveStashes& live) {
    // A stash that waits for its W may hold less than before its I. `pending` says only how many
    // wait at least, so the bound then takes all of them as waiting.
    const bool gives_back = of.split < Bytes{};
    if (!recomputes) {
        return live.all * of.saved + (gives_back ? live.all : live.pending) * of.split;
    }
    // Whole are those that wait for their W and the one at work; of the others there is the input.
    const int whole = std::max(live.pending, 1);
    return whole * of.saved + (live.all - whole) * of.input +
           (gives_back ? whole : live.pending) * of.split;
}

}  // namespace

/// Time of the first forward from the first layer up to the stage.
Duration StepBound::before(int stage, int first) const {
    return sums_.forward[as_index(first)] + stage * sums_.dispatch + question_.hops_to(stage);
}

/// Time of the last backward from the stage back to the first layer.
Duration StepBound::after(int stage, int first) const {
    return sums_.backward_input[as_index(first)] + stage * sums_.dispatch +
           question_.hops_to(stage) +
           (question_.puts_off() ? Duration{} : sums_.backward_weight[as_index(first)]);
}

/// Time of one micro-batch from the stage to the last one and back.
Duration StepBound::way(int stage, int first) const {
    const auto behind = [&](const std::vector<Duration>& of) {
        return of.back() - of[as_index(first)];
    };
    const int stages = question_.stages;
    return behind(sums_.forward) + behind(sums_.backward_input) +
           (question_.puts_off() ? Duration{} : behind(sums_.backward_weight)) +
           2 * ((stages - stage) * sums_.dispatch + question_.hops_to(stages - 1) -
                question_.hops_to(stage));
}

Duration StepBound::cycles(int stage, int first, int end) const {
    const int at_once = question_.in_flight[as_index(stage)];
    const int cycles = (question_.micro_batches - 1) / at_once;
    const int more = (question_.micro_batches - 1) % at_once;
    const Duration forward =
        sums_.forward[as_index(end)] - sums_.forward[as_index(first)] + sums_.dispatch;
    return before(stage, first) + (cycles + 1) * way(stage, first) + more * forward +
           after(stage, first);
}

/// For its first backward, and for the last.
Duration StepBound::waits(int stage, int first, int end) const {
    const int stages = question_.stages;
    const int micro_batches = question_.micro_batches;
    const Work work = work_of(sums_, question_.split, first, end);
    const Duration backward = work.backward(question_);
    const int recomputed = this->recomputed(stage, first, end);
    const Duration again = recomputed > 0 ? work.forward : Duration{};
    const Duration all_again = std::max(recomputed - 1, 0) * again;
    const Duration hops = (stages - 1 - stage) * sums_.dispatch + question_.hops_to(stages - 1) -
                          question_.hops_to(stage);
    const Duration there = sums_.forward.back() - sums_.forward[as_index(end)] + hops;
    const Duration back = sums_.backward_input.back() - sums_.backward_input[as_index(end)] + hops +
                          (question_.puts_off() ? Duration{}
                                                : sums_.backward_weight.back() -
                                                      sums_.backward_weight[as_index(end)]);
    const Duration away = after(stage, first);
    const Duration update = update_of(sums_, question_, first, end);
    const Duration backwards = micro_batches * backward + all_again;
    const Duration weights = question_.puts_off() ? micro_batches * work.weight : Duration{};
    const Duration end_of_all = std::max(weights + update, away);
    if (question_.forwards_first) {
        return before(stage, first) + micro_batches * work.forward + there + back + backwards +
               end_of_all;
    }
    const int in_flight = question_.in_flight[as_index(stage)];
    const int later = std::max(micro_batches - in_flight, 0);
    const Duration first_backward = before(stage, first) + work.forward + there + back;
    const Duration start = first_backward + later * work.forward + backwards + end_of_all;
    if (later == 0) {
        return start;
    }
    return std::max(start,
                    first_backward + later * (work.forward + backward) + (later - 1) * again +
                        there + back + backward + away);
}

Duration StepBound::cost(int stage, int first, int end) const {
    const Work work = work_of(sums_, question_.split, first, end);
    const Duration update = update_of(sums_, question_, first, end);
    const int again = recomputed(stage, first, end);
    const Duration all = work.all(question_, again);
    Duration cost = before(stage, first) +
                    std::max(all + update,
                             (question_.puts_off() ? work.before_weights(question_, again) : all) +
                                 after(stage, first));
    const bool knows_in_flight = !question_.in_flight.empty();
    if (knows_in_flight) {
        cost = std::max(cost, cycles(stage, first, end));
    }
    if (knows_in_flight || question_.forwards_first) {
        cost = std::max(cost, waits(stage, first, end));
    }
    return cost;
}

/// Whether it holds what it has to hold at least, if it computes forwards again or not.
bool StepBound::holds(int stage, int first, int end, bool recomputes) const {
    if (!question_.memory_limit) {
        return true;
    }
    const StashBytes of{.input = stage == 0 ? sums_.input : sums_.least_boundary,
                        .saved = sums_.saved[as_index(end)] - sums_.saved[as_index(first)],
                        .split = sums_.split_of(first, end)};
    return sums_.state[as_index(end)] - sums_.state[as_index(first)] +
               held_at_least(of, recomputes, question_.stashes_of(stage)) <=
           *question_.memory_limit;
}

bool StepBound::fits(int stage, int first, int end) const {
    return holds(stage, first, end, question_.recomputed > 0);
}

/// How many micro-batches a stage computes again.
int StepBound::recomputed(int stage, int first, int end) const {
    const bool keeps_all = question_.where_needed && holds(stage, first, end, false);
    return keeps_all ? 0 : question_.recomputed;
}

bool StepBound::keeps(const std::vector<int>& layers_per_stage, Duration limit) const {
    int first = 0;
    for (int stage = 0; stage < question_.stages; ++stage) {
        const int end = first + layers_per_stage[as_index(stage)];
        if (!allows(stage, first, end, limit)) {
            return false;
        }
        first = end;
    }
    return true;
}

/// The boundary behind every stage, or nothing. A layer is left for each stage to come.
std::vector<int> StepBound::furthest_ends(Duration limit) const {
    std::vector<int> ends;
    int first = 0;
    for (int stage = 0; stage < question_.stages; ++stage) {
        int low = first;
        int high = sums_.layers() - (question_.stages - 1 - stage);
        while (low < high) {
            const int middle = low + (high - low + 1) / 2;
            if (allows(stage, first, middle, limit)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        if (low == first) {
            return {};
        }
        ends.push_back(low);
        first = low;
    }
    return first == sums_.layers() ? ends : std::vector<int>{};
}

std::optional<Duration> StepBound::least(Duration ceiling) const {
    // Any partition keeps the time of all work on one stage, there and back for every micro-batch;
    // what may fail is the memory.
    const int last = question_.stages - 1;
    Duration high = cost(last, 0, sums_.layers()) + (question_.micro_batches + 2) * way(0, 0);
    if (!keeps(high)) {
        return std::nullopt;
    }
    if (ceiling < high) {
        if (!keeps(ceiling)) {
            return ceiling;
        }
        high = ceiling;
    }
    Duration low{-1};  // kept by none
    while (high - low > Duration{1} && high - low > high / 10'000) {
        const Duration middle = low + (high - low) / 2;
        (keeps(middle) ? high : low) = middle;
    }
    return low + Duration{1};
}

std::vector<int> StepBound::longest_first(Duration limit) const {
    std::vector<int> sizes = furthest_ends(limit);
    for (std::size_t stage = sizes.size(); stage-- > 1;) {
        sizes[stage] -= sizes[stage - 1];
    }
    return sizes;
}

std::vector<int> StepBound::longest_last(Duration limit) const {
    if (!keeps(limit)) {
        return {};
    }
    std::vector<int> sizes(as_index(question_.stages));
    int end = sums_.layers();
    for (int stage = question_.stages - 1; stage > 0; --stage) {
        int first = end - 1;
        while (first > stage && allows(stage, first - 1, end, limit)) {
            --first;
        }
        sizes[as_index(stage)] = end - first;
        end = first;
    }
    sizes.front() = end;
    return sizes;
}

namespace {

constexpr Bytes more_than_any{std::numeric_limits<std::int64_t>::max()};

/// What the pieces of one rank come to.
struct RankSum {
    Work first{};  ///< its first piece
    Work all{};
    Duration update{};
    Bytes state{};
    StashBytes smallest{.input = more_than_any, .saved = more_than_any, .split = more_than_any};
};

}  // namespace

std::optional<Duration> bound_of_pieces(const LayerSums& sums,
                                        const BoundQuestion& question,
                                        const Pieces& pieces) {
    const auto smaller = [](Bytes& least, Bytes bytes) { least = std::min(least, bytes); };
    const int ranks = question.stages;
    std::vector<RankSum> of_rank(as_index(ranks));
    int first = 0;
    for (int piece = 0; std::cmp_less(piece, pieces.layers.size()); ++piece) {
        const int end = first + pieces.layers[as_index(piece)];
        const bool turned = pieces.v_shape && piece >= ranks;
        RankSum& rank = of_rank[as_index(turned ? 2 * ranks - 1 - piece : piece % ranks)];
        const Work work = work_of(sums, question.split, first, end);
        if (piece < ranks) {
            rank.first = work;
        }
        rank.all += work;
        rank.update += update_of(sums, question, first, end);
        rank.state += sums.state[as_index(end)] - sums.state[as_index(first)];
        smaller(rank.smallest.input, piece == 0 ? sums.input : sums.least_boundary);
        smaller(rank.smallest.saved, sums.saved[as_index(end)] - sums.saved[as_index(first)]);
        smaller(rank.smallest.split, sums.split_of(first, end));
        first = end;
    }
    Duration bound{};
    Duration fill{};
    Duration drain{};
    for (int r = 0; r < ranks; ++r) {
        const RankSum& rank = of_rank[as_index(r)];
        const LiveStashes held = question.stashes_of(r);
        const auto holds = [&](bool recomputes) {
            return !question.memory_limit ||
                   rank.state + held_at_least(rank.smallest, recomputes, held) <=
                       *question.memory_limit;
        };
        if (!holds(question.recomputed > 0)) {
            return std::nullopt;
        }
        const int recomputed = question.where_needed && holds(false) ? 0 : question.recomputed;
        const Duration hops = question.hops_to(r);
        const Duration all = rank.all.all(question, recomputed);
        const Duration before =
            question.puts_off() ? rank.all.before_weights(question, recomputed) : all;
        bound = std::max(bound, fill + hops + std::max(all + rank.update, before + drain + hops));
        fill += rank.first.forward;
        drain += rank.first.backward(question);
    }
    return bound;
}

Duration share_of_work(const LayerSums& sums, int stages, int micro_batches) {
    const Duration all =
        sums.forward.back() + sums.backward_input.back() + sums.backward_weight.back();
    return micro_batches * (all / stages);
}

}  // namespace pipetwin::sim
