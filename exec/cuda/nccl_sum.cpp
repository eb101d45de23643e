#include "exec/cuda/nccl_sum.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/error.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/nccl_communicator.h"
#include "exec/number_range.h"

namespace pipetwin::cuda {
namespace {

using exec::GpuNumbers;
using exec::NumberRange;

/// Everything is listed on one stream, which no host has to look after: the GPU goes on by itself.
/// A sum of D members, seen from one of them; of each share a piece at a time, since what the
/// others have of it needs room:
///
///   send to member r its piece  -.  one group    slot of r <- its numbers of my piece
///   receive my piece from each  -'
///   slot 0 += slot 1 += ...        of the members before me, in their order
///   my piece += slot 0             x + y = y + x, so these are the bits of a sum in their order
///   my piece += slot of r          of the members after me, in their order
///   ... and the next piece; then, where all want all sums, my share to each and theirs here
///
/// NCCL's own sums have an order that is its own, and another one for each number of members, size
/// and network.
class NcclSum final : public exec::GpuSum {
  public:
    NcclSum(int device, std::span<const std::byte> id, const exec::GpuMember& member)
        : self_(member.index),
          members_(member.count),
          most_(piece_numbers(member.count)),
          slots_(gpu_bytes(device,
                           static_cast<std::size_t>((member.count - 1) * most_) * sizeof(float))),
          communicator_(
              device,
              id,
              {.rank = member.index, .ranks = member.count, .multiprocessors = multiprocessors}) {}

    void add(std::span<const GpuNumbers> numbers, bool all_shares) override {
        const std::int64_t count = count_of(numbers);
        const std::int64_t longest = exec::share_of(count, 0, members_).size;
        for (std::int64_t begin = 0; begin < longest; begin += most_) {
            list_piece(numbers, count, begin);
        }
        if (all_shares) {
            list_shares(numbers, sizeof(float));
        }
        end_list();
    }

    void exchange(std::span<const GpuNumbers> numbers, std::size_t bytes_each) override {
        list_shares(numbers, bytes_each);
        end_list();
    }

    bool all_begun() override {
        go_on();
        return steps_.empty();
    }

    std::int64_t complete() override {
        go_on();
        while (!ends_.empty() && is_done(ends_.front())) {
            spare_.push_back(std::move(ends_.front()));
            ends_.pop_front();
            ++complete_;
        }
        return complete_;
    }

  private:
    /// Gradients are large, and somebody waits for them; not measured on a GPU yet.
    static constexpr int multiprocessors = 8;

    /// Of one share.
    static std::int64_t piece_numbers(int members) {
        constexpr std::int64_t all_slots = std::int64_t{2} << 20;
        constexpr std::int64_t least = std::int64_t{64} << 10;
        return std::max(least, all_slots / (members - 1));
    }

    struct Message {
        void* data = nullptr;
        std::size_t bytes = 0;
        int member = 0;
        bool is_sent = false;
    };
    /// y += x.
    struct Addition {
        const float* x = nullptr;
        float* y = nullptr;
        std::int64_t count = 0;
    };
    /// Messages that go together, and what follows them.
    struct Step {
        std::vector<Message> messages;
        std::vector<Addition> additions;
        bool is_last = false;  ///< of what was asked for
        bool is_begun = false;
    };

    static std::int64_t count_of(std::span<const GpuNumbers> numbers) {
        std::int64_t count = 0;
        for (const GpuNumbers& some : numbers) {
            count += some.count;
        }
        return count;
    }

    /// Calls act(where they are, how many, how many of the range came before).
    template <class Do>
    static void for_each_part(std::span<const GpuNumbers> numbers,
                              const NumberRange& range,
                              std::size_t bytes_each,
                              const Do& act) {
        std::int64_t passed = 0;
        for (const GpuNumbers& some : numbers) {
            const NumberRange part = common(range, {.begin = passed, .size = some.count});
            if (part.size > 0) {
                act(static_cast<std::byte*>(some.data) +
                        static_cast<std::size_t>(part.begin - passed) * bytes_each,
                    part.size,
                    part.begin - range.begin);
            }
            passed += some.count;
        }
    }

    /// What begins so far behind the begin of a member's share.
    NumberRange piece_of(int member, std::int64_t count, std::int64_t begin) const {
        const NumberRange share = exec::share_of(count, member, members_);
        return {.begin = share.begin + begin,
                .size = std::clamp<std::int64_t>(share.size - begin, 0, most_)};
    }

    template <class Do>
    void for_each_other(const Do& act) const {
        for (int member = 0; member < members_; ++member) {
            if (member != self_) {
                act(member);
            }
        }
    }

    float* slot(int member) {
        return reinterpret_cast<float*>(slots_.get()) +
               (member < self_ ? member : member - 1) * most_;
    }

    void list_piece(std::span<const GpuNumbers> numbers, std::int64_t count, std::int64_t begin) {
        Step& step = steps_.emplace_back();
        const NumberRange own = piece_of(self_, count, begin);
        const auto take = [&](int member, const NumberRange& range, bool is_sent) {
            for_each_part(
                numbers,
                range,
                sizeof(float),
                [&](std::byte* data, std::int64_t size, std::int64_t before) {
                    step.messages.push_back(
                        {.data = is_sent ? static_cast<void*>(data) : slot(member) + before,
                         .bytes = static_cast<std::size_t>(size) * sizeof(float),
                         .member = member,
                         .is_sent = is_sent});
                });
        };
        for_each_other([&](int member) {
            take(member, piece_of(member, count, begin), true);
            take(member, own, false);
        });
        if (own.size == 0) {
            return;
        }
        for (int member = 1; member < self_; ++member) {
            step.additions.push_back({.x = slot(member), .y = slot(0), .count = own.size});
        }
        const auto add_slot = [&](int member) {
            for_each_part(numbers,
                          own,
                          sizeof(float),
                          [&](std::byte* data, std::int64_t size, std::int64_t before) {
                              step.additions.push_back({.x = slot(member) + before,
                                                        .y = reinterpret_cast<float*>(data),
                                                        .count = size});
                          });
        };
        if (self_ > 0) {
            add_slot(0);
        }
        for (int member = self_ + 1; member < members_; ++member) {
            add_slot(member);
        }
    }

    void list_shares(std::span<const GpuNumbers> numbers, std::size_t bytes_each) {
        Step& step = steps_.emplace_back();
        const std::int64_t count = count_of(numbers);
        const auto take = [&](int member, int of, bool is_sent) {
            for_each_part(
                numbers,
                exec::share_of(count, of, members_),
                bytes_each,
                [&](std::byte* data, std::int64_t size, std::int64_t) {
                    step.messages.push_back({.data = data,
                                             .bytes = static_cast<std::size_t>(size) * bytes_each,
                                             .member = member,
                                             .is_sent = is_sent});
                });
        };
        for_each_other([&](int member) {
            take(member, self_, true);
            take(member, member, false);
        });
    }

    void end_list() {
        if (steps_.empty() || steps_.back().is_last) {
            steps_.emplace_back();  // of no numbers
        }
        steps_.back().is_last = true;
        go_on();
    }

    /// Gives NCCL what it takes.
    void go_on() {
        if (!communicator_.is_free() || steps_.empty()) {
            return;
        }
        communicator_.enter();
        while (!steps_.empty() && communicator_.is_free()) {
            Step& first = steps_.front();
            if (!std::exchange(first.is_begun, true)) {
                pass(first.messages);
                continue;
            }
            add_up(first.additions);
            if (first.is_last) {
                end_step();
            }
            steps_.pop_front();
        }
    }

    /// All at once, so it does not matter which of them comes first.
    void pass(const std::vector<Message>& messages) {
        if (messages.empty()) {
            return;
        }
        PIPETWIN_NCCL_CHECK(ncclGroupStart());
        for (const Message& message : messages) {
            ncclComm_t const communicator = communicator_.get();
            cudaStream_t const stream = communicator_.stream();
            check_nccl_in_group(message.is_sent ? ncclSend(message.data,
                                                           message.bytes,
                                                           ncclUint8,
                                                           message.member,
                                                           communicator,
                                                           stream)
                                                : ncclRecv(message.data,
                                                           message.bytes,
                                                           ncclUint8,
                                                           message.member,
                                                           communicator,
                                                           stream));
        }
        communicator_.take("ncclGroupEnd", ncclGroupEnd());
    }

    /// What is not done yet is not done before the group ends.
    static void check_nccl_in_group(ncclResult_t result) {
        if (result != ncclInProgress) {
            check_nccl("a message of a group", result);
        }
    }

    void add_up(const std::vector<Addition>& additions) {
        for (const Addition& addition : additions) {
            check_runtime(
                "add",
                cuda::add(
                    Real::F32, addition.count, addition.x, addition.y, communicator_.stream()));
        }
    }

    void end_step() {
        if (spare_.empty()) {
            spare_.push_back(make_event());
        }
        PIPETWIN_CUDA_CHECK(cudaEventRecord(spare_.back().get(), communicator_.stream()));
        ends_.push_back(std::move(spare_.back()));
        spare_.pop_back();
    }

    int self_;
    int members_;
    std::int64_t most_;  ///< numbers in a slot
    GpuBytes slots_;     ///< one for each other member
    std::deque<Step>
        steps_;  ///< that the stream does not have, but perhaps the first one's messages
    std::deque<Event> ends_;  ///< of what was asked for, on the stream
    std::vector<Event> spare_;
    Communicator communicator_;  ///< first to end, then what it reads and writes
    std::int64_t complete_ = 0;
};

}  // namespace

std::unique_ptr<exec::GpuSum> make_sum(int device,
                                       std::span<const std::byte> id,
                                       const exec::GpuMember& member) {
    PIPETWIN_EXPECT(member.count > 1, "a sum over several");
    return std::make_unique<NcclSum>(device, id, member);
}

}  // namespace pipetwin::cuda
