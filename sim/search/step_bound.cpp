#include "sim/search/step_bound.h"

#include <algorithm>
#include <utility>

namespace pipetwin::sim {

namespace {

std::size_t at(int index) {
    return static_cast<std::size_t>(index);
}

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
    Duration before_weights(const BoundQuestion& question) const {
        return question.micro_batches * (forward + input) + question.recomputed * forward;
    }
    Duration all(const BoundQuestion& question) const {
        return before_weights(question) + question.micro_batches * weight;
    }
    /// One backward on its way back.
    Duration backward(const BoundQuestion& question) const {
        return input + (question.split ? Duration{} : weight);
    }
};

Work work_of(const LayerSums& sums, bool split, int first, int end) {
    const auto part = [&](const std::vector<Duration>& of) { return of[at(end)] - of[at(first)]; };
    return {.forward = part(sums.forward) + sums.dispatch,
            .input = part(sums.backward_input) + sums.dispatch,
            .weight = part(sums.backward_weight) + (split ? sums.dispatch : Duration{})};
}

}  // namespace

Duration StepBound::cost(int stage, int first, int end) const {
    const Work work = work_of(sums_, question_.split, first, end);
    const Duration fill = sums_.forward[at(first)] + stage * sums_.dispatch;
    const Duration drain = sums_.backward_input[at(first)] + stage * sums_.dispatch +
                           (question_.split ? Duration{} : sums_.backward_weight[at(first)]);
    Duration update = sums_.update[at(end)] - sums_.update[at(first)] + sums_.dispatch;
    if (question_.replicas.replicas > 1 && !question_.overlap_reduction) {
        update += all_reduce_time(question_.all_reduce,
                                  question_.replicas,
                                  sums_.weights[at(end)] - sums_.weights[at(first)]);
    }
    const Duration all = work.all(question_);
    return fill +
           std::max(all + update, (question_.split ? work.before_weights(question_) : all) + drain);
}

bool StepBound::fits(int stage, int first, int end) const {
    if (!question_.memory_limit) {
        return true;
    }
    const Bytes saved = sums_.saved[at(end)] - sums_.saved[at(first)];
    const int in_flight = question_.all_at_once
                              ? question_.in_flight
                              : std::min(question_.in_flight, question_.stages - stage);
    Bytes stash = in_flight * saved;
    if (question_.recomputed > 0) {
        // The one at work whole, and where all are recomputed the inputs of the others.
        const bool inputs = question_.recomputed == question_.micro_batches;
        stash = std::max(saved, inputs ? in_flight * sums_.least_boundary : Bytes{});
    }
    return sums_.state[at(end)] - sums_.state[at(first)] + stash <= *question_.memory_limit;
}

bool StepBound::keeps(const std::vector<int>& layers_per_stage, Duration limit) const {
    int first = 0;
    for (int stage = 0; stage < question_.stages; ++stage) {
        const int end = first + layers_per_stage[at(stage)];
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

std::optional<Duration> StepBound::least() const {
    // Any partition keeps the time of all work on one stage; what may fail is the memory.
    Duration high = cost(question_.stages - 1, 0, sums_.layers());
    if (!keeps(high)) {
        return std::nullopt;
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
    std::vector<int> sizes(at(question_.stages));
    int end = sums_.layers();
    for (int stage = question_.stages - 1; stage > 0; --stage) {
        int first = end - 1;
        while (first > stage && allows(stage, first - 1, end, limit)) {
            --first;
        }
        sizes[at(stage)] = end - first;
        end = first;
    }
    sizes.front() = end;
    return sizes;
}

Duration bound_of_pieces(const LayerSums& sums,
                         const BoundQuestion& question,
                         const std::vector<int>& layers_per_piece,
                         bool v_shape) {
    const int ranks = question.stages;
    std::vector<Work> of_rank(at(ranks));
    std::vector<Work> of_first_piece;
    int first = 0;
    for (int piece = 0; std::cmp_less(piece, layers_per_piece.size()); ++piece) {
        const int end = first + layers_per_piece[at(piece)];
        const Work work = work_of(sums, question.split, first, end);
        const bool turned = v_shape && piece >= ranks;
        of_rank[at(turned ? 2 * ranks - 1 - piece : piece % ranks)] += work;
        if (piece < ranks) {
            of_first_piece.push_back(work);
        }
        first = end;
    }
    Duration bound{};
    Duration fill{};
    Duration drain{};
    for (int rank = 0; rank < ranks; ++rank) {
        const Work& work = of_rank[at(rank)];
        const Duration all = work.all(question);
        const Duration before = question.split ? work.before_weights(question) : all;
        bound = std::max(bound, fill + std::max(all, before + drain));
        fill += of_first_piece[at(rank)].forward;
        drain += of_first_piece[at(rank)].backward(question);
    }
    return bound;
}

Duration share_of_work(const LayerSums& sums, int stages, int micro_batches) {
    const Duration all =
        sums.forward.back() + sums.backward_input.back() + sums.backward_weight.back();
    return micro_batches * (all / stages);
}

}  // namespace pipetwin::sim
