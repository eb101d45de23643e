// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/nccl/nccl_sum.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/element_range.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/nccl/nccl_communicator.h"

namespace pipetwin::cuda {
namespace {

using exec::ElementRange;
using exec::GpuNumbers;

/// Everything is listed on one stream, which no host has to look after: the GPU goes on by itself.
/// A sum of D members, seen from one of them; of each share a piece at a time, since what the
/// others have of it needs room:
///
///   send to member r its piece  -.  one group    slot of r <- its numbers of my piece
///   receive my piece from each  -'
///   my piece = the sum over all members, in their order
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
          slots_(gpu_bytes(
              device, static_cast<std::size_t>((member.count - 1) * slot_size()) * sizeof(float))),
          communicator_(device,
                        id,
                        {.rank = member.index,
                         .ranks = member.count,
                         .multiprocessors = multiprocessors,
                         .is_urgent = false}) {
        list_hello();
    }

    void add(std::span<const GpuNumbers> numbers, std::span<const ElementRange> shares) override {
        const std::int64_t count = count_of(numbers);
        const auto share = [&](int member) {
            return shares.empty() ? even_share(count, member) : shares[as_index(member)];
        };
        std::int64_t longest = 0;
        for (int member = 0; member < members_; ++member) {
            longest = std::max(longest, share(member).size);
        }
        for (std::int64_t begin = 0; begin < longest; begin += most_) {
            list_piece(numbers, share, begin);
        }
        if (shares.empty()) {
            list_shares(numbers, share, {}, sizeof(float));
        }
        end_list();
    }

    void exchange(std::span<const GpuNumbers> numbers,
                  std::span<const ElementRange> shares,
                  const ElementRange& among,
                  std::size_t bytes_each) override {
        list_shares(
            numbers, [&](int member) { return shares[as_index(member)]; }, among, bytes_each);
        end_list();
    }

    bool all_begun() override {
        go_on();
        return steps_.empty();
    }

    std::int64_t complete() override {
        go_on();
        return complete_;
    }

    bool is_connected() override {
        go_on();
        return is_connected_;
    }

    void abort() noexcept override { communicator_.abort(); }

  private:
    /// Gradients are large, and ranks wait for them; not measured on a GPU yet.
    static constexpr int multiprocessors = 8;
    /// Addresses that are no multiples of 16 bytes make NCCL copy byte by byte.
    static constexpr std::int64_t aligned = 4;
    /// A piece begins at a multiple of it.
    static constexpr std::int64_t grain = 64;
    /// Beside the numbers of a slot: parts of tensors begin there as they do in their tensors.
    static constexpr std::int64_t room_to_align = 4096;
    /// Most messages on a stream at a time: with many more the caller would wait where nothing can
    /// end its wait.
    static constexpr std::size_t most_under_way = 64;

    /// Numbers of a piece of one share.
    static std::int64_t piece_numbers(int members) {
        constexpr std::int64_t all_slots = std::int64_t{8} << 20;
        constexpr std::int64_t least = std::int64_t{64} << 10;
        return std::max(least, all_slots / (members - 1) / grain * grain);
    }

    struct Message {
        void* data = nullptr;
        std::size_t bytes = 0;
        int member = 0;
        bool is_sent = false;
    };
    enum class Ends { Hello, Nothing, List };
    /// Messages that go together, and what follows them.
    struct Step {
        std::vector<Message> messages;
        std::vector<MemberSum> sums;
        Ends ends = Ends::Nothing;
        bool is_begun = false;
    };
    struct UnderWay {
        Event done;
        Ends ends = Ends::Nothing;
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
                              const ElementRange& range,
                              std::size_t bytes_each,
                              const Do& act) {
        std::int64_t passed = 0;
        for (const GpuNumbers& some : numbers) {
            const ElementRange part = common(range, {.begin = passed, .size = some.count});
            if (part.size > 0) {
                act(static_cast<std::byte*>(some.data) + as_index(part.begin - passed) * bytes_each,
                    part.size);
            }
            passed += some.count;
        }
    }

    /// The member's share of numbers, cut where addresses are aligned, for uses where it does not
    /// matter which member has which.
    ElementRange even_share(std::int64_t count, int member) const {
        const ElementRange grains = exec::share_of((count + grain - 1) / grain, member, members_);
        const std::int64_t begin = std::min(count, grains.begin * grain);
        return {.begin = begin, .size = std::min(count, grains.end() * grain) - begin};
    }

    /// The piece of a share that begins `begin` numbers behind the share's begin.
    ElementRange piece_of(const ElementRange& share, std::int64_t begin) const {
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

    std::int64_t slot_size() const { return most_ + room_to_align; }
    float* slot(int member) {
        return reinterpret_cast<float*>(slots_.get()) +
               (member < self_ ? member : member - 1) * slot_size();
    }

    /// NCCL connects all members with it.
    void list_hello() {
        Step& step = steps_.emplace_back();
        step.ends = Ends::Hello;
        constexpr std::size_t bytes = aligned * sizeof(float);
        for_each_other([&](int member) {
            step.messages.push_back(
                {.data = slot(member), .bytes = bytes, .member = member, .is_sent = true});
            step.messages.push_back({.data = slot(member) + aligned,
                                     .bytes = bytes,
                                     .member = member,
                                     .is_sent = false});
        });
    }

    template <class Share>
    void list_piece(std::span<const GpuNumbers> numbers, const Share& share, std::int64_t begin) {
        Step& step = steps_.emplace_back();
        for_each_other([&](int member) {
            for_each_part(numbers,
                          piece_of(share(member), begin),
                          sizeof(float),
                          [&](std::byte* data, std::int64_t size) {
                              step.messages.push_back(
                                  {.data = data,
                                   .bytes = static_cast<std::size_t>(size) * sizeof(float),
                                   .member = member,
                                   .is_sent = true});
                          });
        });
        const ElementRange own = piece_of(share(self_), begin);
        std::int64_t place = 0;  // in a slot
        std::int64_t room = room_to_align;
        for_each_part(numbers, own, sizeof(float), [&](std::byte* data, std::int64_t size) {
            const auto number =
                static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) / sizeof(float));
            const std::int64_t gap = ((number - place) % aligned + aligned) % aligned;
            if (gap <= room) {
                place += gap;
                room -= gap;
            }
            for_each_other([&](int member) {
                step.messages.push_back({.data = slot(member) + place,
                                         .bytes = static_cast<std::size_t>(size) * sizeof(float),
                                         .member = member,
                                         .is_sent = false});
            });
            step.sums.push_back({.size = size,
                                 .members = members_,
                                 .own = self_,
                                 .stride = slot_size(),
                                 .x = reinterpret_cast<float*>(slots_.get()) + place,
                                 .y = reinterpret_cast<float*>(data)});
            place += size;
        });
    }

    template <class Share>
    void list_shares(std::span<const GpuNumbers> numbers,
                     const Share& share,
                     const ElementRange& among,
                     std::size_t bytes_each) {
        Step& step = steps_.emplace_back();
        const auto take = [&](int member, int of, bool is_sent) {
            for_each_part(numbers, share(of), bytes_each, [&](std::byte* data, std::int64_t size) {
                step.messages.push_back({.data = data,
                                         .bytes = static_cast<std::size_t>(size) * bytes_each,
                                         .member = member,
                                         .is_sent = is_sent});
            });
        };
        for_each_other([&](int member) {
            if (among.size == 0 || (member >= among.begin && member < among.end())) {
                take(member, self_, true);
                take(member, member, false);
            }
        });
    }

    void end_list() {
        if (steps_.empty() || steps_.back().ends != Ends::Nothing) {
            steps_.emplace_back();  // of no numbers
        }
        steps_.back().ends = Ends::List;
        go_on();
    }

    /// Gives NCCL what it takes, and looks what is done.
    void go_on() {
        if (!communicator_.is_free()) {
            return;
        }
        look();
        if (steps_.empty()) {
            return;
        }
        communicator_.enter();
        while (!steps_.empty() && under_way_.size() < most_under_way && communicator_.is_free()) {
            Step& first = steps_.front();
            if (!std::exchange(first.is_begun, true)) {
                pass(first.messages);
                continue;
            }
            for (const MemberSum& sum : first.sums) {
                check_runtime("sum_members", sum_members(sum, communicator_.stream()));
            }
            end_step(first.ends);
            steps_.pop_front();
        }
    }

    /// All at once, so it does not matter which of them comes first; those between two members
    /// come in the order in which both list them. A group that was begun has to end whatever
    /// happens.
    void pass(const std::vector<Message>& messages) {
        if (messages.empty()) {
            return;
        }
        ncclComm_t const communicator = communicator_.get();
        cudaStream_t const stream = communicator_.stream();
        PIPETWIN_NCCL_CHECK(ncclGroupStart());
        ncclResult_t worst = ncclSuccess;
        for (const auto& [data, bytes, member, is_sent] : messages) {
            const ncclResult_t result =
                is_sent ? ncclSend(data, bytes, ncclUint8, member, communicator, stream)
                        : ncclRecv(data, bytes, ncclUint8, member, communicator, stream);
            if (result != ncclSuccess && result != ncclInProgress) {
                worst = result;
                break;
            }
        }
        const ncclResult_t end = ncclGroupEnd();
        check_nccl("a message of a group", worst);
        communicator_.take("ncclGroupEnd", end);
    }

    void end_step(Ends ends) {
        if (spare_.empty()) {
            spare_.push_back(make_event());
        }
        PIPETWIN_CUDA_CHECK(cudaEventRecord(spare_.back().get(), communicator_.stream()));
        under_way_.push_back({.done = std::move(spare_.back()), .ends = ends});
        spare_.pop_back();
    }

    void look() {
        while (!under_way_.empty() && is_done(under_way_.front().done)) {
            const Ends ends = under_way_.front().ends;
            is_connected_ = is_connected_ || ends == Ends::Hello;
            complete_ += ends == Ends::List ? 1 : 0;
            spare_.push_back(std::move(under_way_.front().done));
            under_way_.pop_front();
        }
    }

    int self_;
    int members_;
    std::int64_t most_;       ///< numbers in a piece
    GpuBytes slots_;          ///< one for each other member
    std::deque<Step> steps_;  ///< that the stream does not have, but perhaps the first's messages
    std::deque<UnderWay> under_way_;  ///< that it has
    std::vector<Event> spare_;
    Communicator communicator_;  ///< first to end, then what it reads and writes
    bool is_connected_ = false;
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
