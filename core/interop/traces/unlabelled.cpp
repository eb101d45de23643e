// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/unlabelled.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/units.h"
#include "core/interop/traces/launched_ranges.h"
#include "core/interop/traces/peer_messages.h"

namespace pipetwin {

namespace {

enum class Part { Unknown, Forward, Backward, Optimizer };

/// Kernels one after the other, without a message between them.
struct Piece {
    std::vector<const TraceKernel*> kernels;
    Part part = Part::Unknown;
    int step = 0;  ///< by the kernels of the optimizer before it

    Duration length() const {
        Duration end = kernels.front()->end();
        for (const TraceKernel* kernel : kernels) {
            end = std::max(end, kernel->end());
        }
        return end - kernels.front()->begin;
    }
};

/// A kernel that sends or receives, or a range around one.
struct MessageStretch {
    KernelWork work{};
    Duration begin{};
    Duration end{};
    std::optional<std::size_t> kernel{};  ///< index in TraceEvents::kernels; none: a range
};

/// A kernel or message in the order that pieces follow from.
struct Moment {
    Duration time{};
    const TraceKernel* compute = nullptr;  ///< null: a message stands here
};

bool is_message_work(KernelWork work) {
    return work == KernelWork::Send || work == KernelWork::Receive ||
           work == KernelWork::PointToPoint;
}

/// Cuts the kernels of a rank into pieces and finds what each of them is.
class PieceFinder {
  public:
    explicit PieceFinder(const TraceEvents& events)
        : events_(events), launches_(launches_of(events)) {
        choose_lane();
        find_messages();
        find_optimizer_times();
    }

    KernelStages find() {
        KernelStages stages;
        stages.has_messages = !messages_.empty();
        if (messages_.empty() || lane_ < 0) {
            stages.problem = "no kernel sends or receives";
            return stages;
        }
        cut();
        number_steps();
        std::erase_if(pieces_, [](const Piece& piece) { return piece.part == Part::Optimizer; });
        if (!by_thread(stages)) {
            split_joined_pieces();
        }
        if (stages.how.empty() && !(by_name(stages) || by_sequence(stages) || by_length(stages))) {
            stages.problem =
                "its kernels come in one kind of sequence and length, so forward and backward "
                "cannot be told apart";
            return stages;
        }
        for (const Piece& piece : pieces_) {
            if (piece.part == Part::Forward) {
                stages.forward.push_back(piece.length());
            } else if (piece.part == Part::Backward) {
                stages.backward.push_back(piece.length());
            }
        }
        const auto [fewer, more] = std::minmax({stages.forward.size(), stages.backward.size()});
        if (more > fewer + fewer / 4 + 1 || fewer == 0) {
            stages.problem = fmt::format(
                "{} between its messages {} like forwards and {} like backwards, expected as many "
                "of each",
                counted(stages.forward.size(), "piece"),
                verb_for(stages.forward.size(), "looks", "look"),
                stages.backward.size());
        }
        take_ranges(stages);
        return stages;
    }

  private:
    void number_steps() {
        bool in_optimizer = false;
        for (Piece& piece : pieces_) {
            const bool is_optimizer = piece.part == Part::Optimizer;
            step_ += is_optimizer && !in_optimizer ? 1 : 0;
            in_optimizer = is_optimizer;
            piece.step = step_;
        }
    }

    void take_ranges(KernelStages& stages) const {
        std::map<std::pair<int, Part>, int> counts;  // [step, part]
        for (const Piece& piece : pieces_) {
            ++counts[{piece.step, piece.part}];
        }
        std::map<std::pair<int, Part>, int> numbers;
        for (const Piece& piece : pieces_) {
            const bool is_whole =
                counts[{piece.step, Part::Forward}] == counts[{piece.step, Part::Backward}];
            if (piece.part == Part::Unknown || (step_ > 0 && !is_whole)) {
                continue;
            }
            NamedAction action{.op = piece.part == Part::Forward ? Op::Forward : Op::Backward,
                               .is_short = true};
            if (step_ > 0) {
                action.micro_batch = numbers[{piece.step, piece.part}]++;
            }
            stages.ranges.push_back({.action = action,
                                     .lane = lane_,
                                     .begin = piece.kernels.front()->begin,
                                     .length = piece.length()});
        }
    }

    bool has_launches() const { return !launches_.begin.empty(); }

    std::size_t index_of(const TraceKernel& kernel) const {
        return static_cast<std::size_t>(&kernel - events_.kernels.data());
    }

    void choose_lane() {
        std::map<int, std::size_t> counts;
        for (const TraceKernel& kernel : events_.kernels) {
            if (kernel.work == KernelWork::Compute) {
                ++counts[kernel.lane];
            }
        }
        const auto most =
            std::ranges::max_element(counts, {}, &std::pair<const int, std::size_t>::second);
        lane_ = most == counts.end() ? -1 : most->first;
    }

    /// Kernels of messages by their names, or by the ranges "nccl:send 0->1" around them; where no
    /// kernel is known to be one, those ranges alone; where there are none either, the kernels of
    /// communication that are not known to be collective.
    void find_messages() {
        const MessageRanges ranges(events_);
        for (const TraceKernel& kernel : events_.kernels) {
            if (!is_message_work(kernel.work) && kernel.work != KernelWork::Communication) {
                continue;
            }
            const TraceMessage* const around = ranges.around(kernel);
            if (around != nullptr) {
                add_message(kernel, around->is_send ? KernelWork::Send : KernelWork::Receive);
            } else if (is_message_work(kernel.work)) {
                add_message(kernel, kernel.work);
            }
        }
        if (messages_.empty()) {
            add_ranges_of_messages();
        }
        if (!messages_.empty()) {
            return;
        }
        for (const TraceKernel& kernel : events_.kernels) {
            if (kernel.work == KernelWork::Communication) {
                add_message(kernel, kernel.work);
            }
        }
    }

    void add_message(const TraceKernel& kernel, KernelWork work) {
        messages_.push_back(
            {.work = work, .begin = kernel.begin, .end = kernel.end(), .kernel = index_of(kernel)});
    }

    void add_ranges_of_messages() {
        for (const TraceMessage& message : events_.messages) {
            if (events_.lanes[as_index(message.lane)].on_device) {
                messages_.push_back(
                    {.work = message.is_send ? KernelWork::Send : KernelWork::Receive,
                     .begin = message.begin,
                     .end = message.begin + message.length});
            }
        }
    }

    std::vector<const TraceKernel*> compute() const {
        std::vector<const TraceKernel*> found;
        for (const TraceKernel& kernel : events_.kernels) {
            if (kernel.work == KernelWork::Compute && kernel.lane == lane_) {
                found.push_back(&kernel);
            }
        }
        std::ranges::stable_sort(found, {}, &TraceKernel::begin);
        return found;
    }

    /// Whether the kernel is the optimizer's: by its name, or launched in a range of the optimizer.
    bool is_optimizer(const TraceKernel& kernel) const {
        if (is_named_optimizer(events_.kernel_names[as_index(kernel.name)])) {
            return true;
        }
        const std::size_t index = index_of(kernel);
        if (!has_launches() || launches_.lane[index] < 0) {
            return false;
        }
        const Duration moment = launches_.begin[index];
        const auto after = optimizer_times_.upper_bound(moment);
        return after != optimizer_times_.begin() && moment <= std::prev(after)->second;
    }

    /// Takes the ranges of the host in which the optimizer works, in order of time.
    void find_optimizer_times() {
        for (const TraceStep& step : events_.optimizer_steps) {
            if (!events_.lanes[as_index(step.lane)].on_device) {
                Duration& end = optimizer_times_[step.begin];
                end = std::max(end, step.begin + step.length);
            }
        }
        Duration latest{};
        for (auto& [begin, end] : optimizer_times_) {
            latest = std::max(latest, end);
            end = latest;
        }
    }

    /// The order of launches where it is known: a send may begin after the next computation has.
    std::vector<Moment> by_launch(const std::vector<const TraceKernel*>& kernels) const {
        std::vector<Moment> moments;
        for (const TraceKernel* kernel : kernels) {
            moments.push_back({.time = launches_.begin[index_of(*kernel)], .compute = kernel});
        }
        for (const MessageStretch& message : messages_) {
            moments.push_back({.time = launches_.begin[*message.kernel]});
        }
        std::ranges::stable_sort(moments, {}, &Moment::time);
        return moments;
    }

    bool every_launch_is_known(const std::vector<const TraceKernel*>& kernels) const {
        return has_launches() &&
               std::ranges::all_of(kernels,
                                   [&](const TraceKernel* kernel) {
                                       return launches_.lane[index_of(*kernel)] >= 0;
                                   }) &&
               std::ranges::all_of(messages_, [&](const MessageStretch& message) {
                   return message.kernel && launches_.lane[*message.kernel] >= 0;
               });
    }

    /// The order on the device. A send begins when its computation is done, a receive ends before
    /// its computation begins; both are pending while others run, so only the moments between two
    /// kernels count.
    std::vector<Moment> by_device(const std::vector<const TraceKernel*>& kernels) const {
        std::vector<Moment> moments;
        for (const TraceKernel* kernel : kernels) {
            moments.push_back({.time = kernel->begin, .compute = kernel});
        }
        for (const MessageStretch& message : messages_) {
            if (message.work != KernelWork::Receive) {
                add_between(kernels, message.begin, moments);
            }
            if (message.work != KernelWork::Send) {
                add_between(kernels, message.end, moments);
            }
        }
        std::ranges::stable_sort(moments, {}, [](const Moment& moment) {
            return std::pair(moment.time, moment.compute != nullptr);
        });
        return moments;
    }

    /// Adds the moment if no kernel is running then; near to the begin or end of one it is moved
    /// out of it.
    static void add_between(const std::vector<const TraceKernel*>& kernels,
                            Duration time,
                            std::vector<Moment>& moments) {
        constexpr Duration near = std::chrono::microseconds(20);
        const auto after = std::ranges::upper_bound(kernels, time, {}, &TraceKernel::begin);
        if (after == kernels.begin()) {
            return;
        }
        const TraceKernel& running = **std::prev(after);
        const Duration most = std::min(near, running.length / 4);
        if (time + most >= running.end()) {
            moments.push_back({.time = std::max(time, running.end())});
        } else if (time - most <= running.begin) {
            moments.push_back({.time = running.begin});
        }
    }

    void cut() {
        const std::vector<const TraceKernel*> kernels = compute();
        const std::vector<Moment> moments =
            every_launch_is_known(kernels) ? by_launch(kernels) : by_device(kernels);
        bool is_new = true;
        for (const Moment& moment : moments) {
            if (moment.compute == nullptr) {
                is_new = true;
                continue;
            }
            const Part part = is_optimizer(*moment.compute) ? Part::Optimizer : Part::Unknown;
            if (is_new || pieces_.back().part != part) {
                pieces_.push_back({.kernels = {}, .part = part});
            }
            pieces_.back().kernels.push_back(moment.compute);
            is_new = false;
        }
    }

    /// Cuts each piece where `part_of` changes from one kernel to the next, and says what it is.
    template <class PartOf>
    void cut_by(PartOf part_of) {
        std::vector<Piece> pieces;
        for (const Piece& piece : pieces_) {
            bool is_first = true;
            for (const TraceKernel* kernel : piece.kernels) {
                const Part part = part_of(*kernel);
                if (is_first || pieces.back().part != part) {
                    pieces.push_back({.kernels = {}, .part = part, .step = piece.step});
                }
                pieces.back().kernels.push_back(kernel);
                is_first = false;
            }
        }
        pieces_ = std::move(pieces);
    }

    /// PyTorch launches backwards from a thread of its own; the first kernels are a forward's.
    bool by_thread(KernelStages& stages) {
        if (!has_launches() || pieces_.empty()) {
            return false;
        }
        const auto thread = [&](const TraceKernel& kernel) {
            return launches_.lane[index_of(kernel)];
        };
        std::set<int> threads;
        for (const Piece& piece : pieces_) {
            for (const TraceKernel* kernel : piece.kernels) {
                threads.insert(thread(*kernel));
            }
        }
        if (threads.size() < 2 || threads.contains(-1)) {
            return false;
        }
        const int forward = thread(*pieces_.front().kernels.front());
        cut_by([&](const TraceKernel& kernel) {
            return thread(kernel) == forward ? Part::Forward : Part::Backward;
        });
        stages.how = "the threads that launched their kernels";
        return true;
    }

    bool is_backward(const TraceKernel& kernel) const {
        return is_named_backward(events_.kernel_names[as_index(kernel.name)]);
    }

    using Sequence = std::vector<int>;

    /// A rank has a handful of kinds of pieces; among this many no two belong together.
    static constexpr std::size_t most_kinds = 512;

    static Sequence sequence_of(const Piece& piece) {
        Sequence names;
        for (const TraceKernel* kernel : piece.kernels) {
            names.push_back(kernel->name);
        }
        return names;
    }

    static bool begins_with(const Sequence& whole, const Sequence& begin) {
        return whole.size() > begin.size() && std::equal(begin.begin(), begin.end(), whole.begin());
    }

    /// Cuts a piece that is one kind of piece and then another: no message stands between a
    /// backward and the next forward on the first rank, nor between a forward and its backward on
    /// the last.
    void split_joined_pieces() {
        std::set<Sequence> kinds;
        for (const Piece& piece : pieces_) {
            kinds.insert(sequence_of(piece));
        }
        if (kinds.size() > most_kinds) {
            return;
        }
        std::map<Sequence, std::ptrdiff_t> splits;  // of kinds that are two others
        for (const Sequence& kind : kinds) {
            for (const Sequence& first : kinds) {
                if (!begins_with(kind, first)) {
                    continue;
                }
                const Sequence second(kind.begin() + std::ssize(first), kind.end());
                if (second != first && kinds.contains(second)) {
                    splits.emplace(kind, std::ssize(first));
                }
            }
        }
        std::vector<Piece> pieces;
        for (const Piece& piece : pieces_) {
            const auto split = splits.find(sequence_of(piece));
            if (split == splits.end()) {
                pieces.push_back(piece);
                continue;
            }
            const auto second = piece.kernels.begin() + split->second;
            pieces.push_back({.kernels = {piece.kernels.begin(), second}, .step = piece.step});
            pieces.push_back({.kernels = {second, piece.kernels.end()}, .step = piece.step});
        }
        pieces_ = std::move(pieces);
    }

    /// The kernels of a piece before the first one that is named as a backward's.
    Piece before_backward(const Piece& piece) const {
        const auto first = std::ranges::find_if(
            piece.kernels, [&](const TraceKernel* kernel) { return is_backward(*kernel); });
        return {
            .kernels = {piece.kernels.begin(), first}, .part = Part::Forward, .step = piece.step};
    }

    /// A piece with a kernel that is named as a backward's is one. It begins with its forward, as
    /// on the last rank, where those kernels are what other forwards are, or where there is no
    /// piece without such names.
    bool by_name(KernelStages& stages) {
        std::set<Sequence> forwards;
        std::size_t forward = 0;
        for (Piece& piece : pieces_) {
            const bool named = before_backward(piece).kernels.size() < piece.kernels.size();
            piece.part = named ? Part::Backward : Part::Forward;
            if (!named) {
                forwards.insert(sequence_of(piece));
                ++forward;
            }
        }
        stages.how = "the names of their kernels";
        if (forward == pieces_.size()) {
            return false;
        }
        const bool has_forwards = 4 * forward >= pieces_.size();
        std::vector<Piece> pieces;
        for (const Piece& piece : pieces_) {
            Piece before = before_backward(piece);
            const bool is_both = piece.part == Part::Backward && !before.kernels.empty() &&
                                 (!has_forwards || forwards.contains(sequence_of(before)));
            if (!is_both) {
                pieces.push_back(piece);
                continue;
            }
            const auto first = piece.kernels.begin() + std::ssize(before.kernels);
            pieces.push_back(std::move(before));
            pieces.push_back({.kernels = {first, piece.kernels.end()},
                              .part = Part::Backward,
                              .step = piece.step});
        }
        pieces_ = std::move(pieces);
        return true;
    }

    /// The shortest sequence that others, or the earliest itself, begin with is the forward's.
    bool by_sequence(KernelStages& stages) {
        if (pieces_.empty()) {
            return false;
        }
        Sequence forward = sequence_of(pieces_.front());
        std::set<Sequence> kinds;
        for (const Piece& piece : pieces_) {
            kinds.insert(sequence_of(piece));
        }
        for (const Sequence& kind : kinds) {
            forward = begins_with(forward, kind) ? kind : forward;
        }
        if (kinds.size() < 2) {
            return false;
        }
        for (Piece& piece : pieces_) {
            piece.part = sequence_of(piece) == forward ? Part::Forward : Part::Backward;
        }
        stages.how = "the sequences of their kernels, of which the earliest is a forward's";
        return true;
    }

    /// Two groups of lengths, each with a quarter of the pieces, and the widest gap between them,
    /// at least a fifth; the earliest piece is a forward. A piece as long as a forward and a
    /// backward is both, and left out.
    bool by_length(KernelStages& stages) {
        std::vector<Duration> lengths;
        for (const Piece& piece : pieces_) {
            lengths.push_back(piece.length());
        }
        std::ranges::sort(lengths);
        const std::size_t least = std::max<std::size_t>(1, lengths.size() / 4);
        double widest = 1.2;
        std::size_t border = 0;
        for (std::size_t i = least; i + least <= lengths.size(); ++i) {
            const double shorter = std::max(to_seconds(lengths[i - 1]), 1e-9);
            if (to_seconds(lengths[i]) / shorter > widest) {
                widest = to_seconds(lengths[i]) / shorter;
                border = i;
            }
        }
        if (border == 0) {
            return false;
        }
        const Duration longer = lengths[border];
        const Duration both = lengths.front() + longer;
        const bool forward_is_short = pieces_.front().length() < longer;
        std::erase_if(pieces_, [&](const Piece& piece) {
            return piece.length() > longer && piece.length() > both - both / 20 &&
                   piece.length() < both + both / 20;
        });
        for (Piece& piece : pieces_) {
            const bool is_short = piece.length() < longer;
            piece.part = is_short == forward_is_short ? Part::Forward : Part::Backward;
        }
        stages.how = "their lengths, of which the earliest is a forward's";
        return true;
    }

    const TraceEvents& events_;
    KernelLaunches launches_;
    std::map<Duration, Duration> optimizer_times_;  ///< [begin]: the latest end of what has begun
    int lane_ = -1;
    int step_ = 0;  ///< times that the optimizer worked
    std::vector<MessageStretch> messages_;
    std::vector<Piece> pieces_;
};

}  // namespace

KernelStages stages_of_kernels(const TraceEvents& events) {
    return PieceFinder(events).find();
}

}  // namespace pipetwin
