// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/reductions/all_reduce_transport.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/element_range.h"
#include "exec/device/kernels.h"
#include "exec/device/tensor.h"
#include "exec/transport/remote_sum.h"

namespace pipetwin::exec {
namespace {

/// Shared numbers as bytes in host memory.
struct Flat {
    SharedNumbers numbers;
    DType type = DType::F32;
    std::int64_t count = 0;
    std::vector<std::byte> bytes;

    explicit Flat(SharedNumbers of) : numbers(std::move(of)) {
        for (const SharedNumbers::Part& part : numbers.parts) {
            type = part.tensor->dtype();
            count += part.numbers.size;
        }
        bytes.resize(as_index(count) * size_of(type));
    }
    const ElementRange& share(std::size_t replica) const { return numbers.shares.at(replica); }
    Tensor place(const ElementRange& range) {
        return Tensor::placed(host_memory(), at(range.begin), type, 1, range.size);
    }
    std::byte* at(std::int64_t number) { return bytes.data() + as_index(number) * size_of(type); }

    /// Calls act(tensor, its numbers that are in the range, their bytes here).
    template <class Do>
    void for_each_part(const ElementRange& range, const Do& act) const {
        std::int64_t passed = 0;
        for (const SharedNumbers::Part& each : numbers.parts) {
            ElementRange part = common(range, {.begin = passed, .size = each.numbers.size});
            if (part.size > 0) {
                const std::size_t offset = as_index(part.begin) * size_of(type);
                part.begin += each.numbers.begin - passed;
                act(*each.tensor,
                    part,
                    offset,
                    static_cast<std::size_t>(part.size) * size_of(type));
            }
            passed += each.numbers.size;
        }
    }

    void download(Device& device, const ElementRange& range) {
        for_each_part(range,
                      [&](const Tensor& tensor,
                          const ElementRange& part,
                          std::size_t offset,
                          std::size_t size) {
                          device.kernels().download(part_of(ConstView(tensor), part),
                                                    std::span(bytes).subspan(offset, size));
                      });
    }

    void upload(Device& device, const ElementRange& range) const {
        for_each_part(
            range,
            [&](Tensor& tensor, const ElementRange& part, std::size_t offset, std::size_t size) {
                device.kernels().upload(std::span(bytes).subspan(offset, size),
                                        part_of(View(tensor), part));
            });
    }
};

class HostAllReduce final : public AllReduceTransport {
  public:
    HostAllReduce(Device& device,
                  const SharedNumbers& gradients,
                  const SharedNumbers& weights,
                  const ReplicaMember& member)
        : device_(device),
          member_(member),
          gradients_(gradients),
          weights_(weights),
          sums_(gradients_) {
        inbox_.resize(member_.peers.size() *
                      static_cast<std::size_t>(gradients_.share(member_.own).size) *
                      size_of(gradients_.type));
    }

    void expect_sums() override {
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (peer.is_remote) {
                peer.from->expect(part_place(replica));
                if (member_.rounds.sums) {
                    peer.from->expect(sums_.place(sums_.share(replica)));
                }
            }
        });
    }

    void expect_weights() override {
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (peer.is_remote && member_.shares_with(replica)) {
                peer.from->expect(weights_.place(weights_.share(replica)));
            }
        });
    }

    void begin_sums() override {
        gradients_.download(device_, {.begin = 0, .size = gradients_.count});
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            peer.to->send({.micro_batch = 0,
                           .tensor = gradients_.place(gradients_.share(replica)),
                           .available = {}});
        });
    }

    TimePoint finish_sums() override {
        const ElementRange own = gradients_.share(member_.own);
        TimePoint last;
        std::vector<Tensor> received(member_.peers.size());
        std::vector<const std::byte*> parts(member_.peers.size());
        parts[member_.own] = gradients_.at(own.begin);
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            Channel::Received part = peer.from->receive();
            last = std::max(last, part.arrived);
            received[replica] = std::move(part.message.tensor);
            parts[replica] = static_cast<const std::byte*>(std::as_const(received[replica]).data());
        });
        if (gradients_.type == DType::F64) {
            add_up<double>(parts);
        } else {
            PIPETWIN_EXPECT(gradients_.type == DType::F32, "gradients are summed in fp32 or fp64");
            add_up<float>(parts);
        }
        if (member_.rounds.sums) {
            member_.for_each_other(
                [&](std::size_t, const ReplicaMember::Peer& peer) { send(sums_, peer); });
            member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
                last = std::max(last, receive(sums_, replica, peer));
            });
        }
        sums_.upload(device_,
                     member_.rounds.sums ? ElementRange{.begin = 0, .size = sums_.count} : own);
        return last;
    }

    void close() override {}  // what the peers' channels do

    void exchange_weights() override {
        weights_.download(device_, weights_.share(member_.own));
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (member_.shares_with(replica)) {
                send(weights_, peer);
            }
        });
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (member_.shares_with(replica)) {
                receive(weights_, replica, peer);
                weights_.upload(device_, weights_.share(replica));
            }
        });
    }

  private:
    /// For this replica's share as another has it.
    Tensor part_place(std::size_t replica) {
        const std::int64_t size = gradients_.share(member_.own).size;
        std::byte* const place =
            inbox_.data() + replica * static_cast<std::size_t>(size) * size_of(gradients_.type);
        return Tensor::placed(host_memory(), place, gradients_.type, 1, size);
    }

    /// Sums the calling replica's share, of which each replica has a part.
    template <class Number>
    void add_up(const std::vector<const std::byte*>& parts) {
        const ElementRange own = gradients_.share(member_.own);
        if (own.size == 0) {
            return;  // fewer numbers than replicas
        }
        auto* const sums = reinterpret_cast<Number*>(sums_.at(own.begin));
        std::memcpy(sums, parts.front(), static_cast<std::size_t>(own.size) * sizeof(Number));
        for (std::size_t replica = 1; replica < parts.size(); ++replica) {
            const auto* const part = reinterpret_cast<const Number*>(parts[replica]);
            for (std::int64_t i = 0; i < own.size; ++i) {
                sums[i] += part[i];
            }
        }
    }

    /// Sends the calling replica's share to another.
    void send(Flat& from, const ReplicaMember::Peer& to) const {
        to.to->send(
            {.micro_batch = 0, .tensor = from.place(from.share(member_.own)), .available = {}});
    }

    /// The share of another replica; gives when it came.
    TimePoint receive(Flat& to, std::size_t replica, const ReplicaMember::Peer& peer) const {
        const Channel::Received received = peer.from->receive();
        const ElementRange& theirs = to.share(replica);
        Tensor place = to.place(theirs);
        const Tensor& message = received.message.tensor;
        if (theirs.size > 0 && message.data() != place.data()) {
            std::memcpy(
                place.data(), message.data(), static_cast<std::size_t>(place.bytes().count));
        }
        return received.arrived;
    }

    Device& device_;
    ReplicaMember member_;
    Flat gradients_;
    Flat weights_;
    Flat sums_;                     ///< of the gradients
    std::vector<std::byte> inbox_;  ///< [replica] its part of this replica's share
};

/// In place: nothing of it is copied.
class GpuAllReduce final : public AllReduceTransport {
  public:
    GpuAllReduce(const SharedNumbers& gradients,
                 const SharedNumbers& weights,
                 const ReplicaMember& member,
                 RemoteSum& sum)
        : gradients_(gradients), weights_(weights), member_(member), sum_(sum) {
        PIPETWIN_EXPECT(
            gradients_.parts.empty() || gradients_.parts.front().tensor->dtype() == DType::F32,
            "GPUs sum gradients in fp32");
    }

    void expect_sums() override {}
    void expect_weights() override {}
    void close() override { sum_.close(); }
    void begin_sums() override {
        const std::vector<ElementRange> none;
        begun_ = sum_.add(numbers_of(gradients_), member_.rounds.sums ? none : gradients_.shares);
    }

    TimePoint finish_sums() override {
        return sum_.wait(begun_) ? std::chrono::steady_clock::now() : TimePoint();
    }

    void exchange_weights() override {
        const DType type =
            weights_.parts.empty() ? DType::F32 : weights_.parts.front().tensor->dtype();
        sum_.wait(
            sum_.exchange(numbers_of(weights_), weights_.shares, member_.sharers, size_of(type)));
    }

  private:
    static std::vector<GpuNumbers> numbers_of(const SharedNumbers& shared) {
        std::vector<GpuNumbers> numbers;
        for (const SharedNumbers::Part& part : shared.parts) {
            const View all(part.tensor->data(), part.tensor->dtype(), 1, part.tensor->size());
            numbers.push_back(
                {.data = part_of(all, part.numbers).data, .count = part.numbers.size});
        }
        return numbers;
    }

    SharedNumbers gradients_;
    SharedNumbers weights_;
    ReplicaMember member_;
    RemoteSum& sum_;
    std::int64_t begun_ = 0;
};

/// All numbers of the tensors, in equal shares.
void add_equal_shares(std::span<Tensor* const> tensors,
                      const ReplicaMember& member,
                      SharedNumbers& numbers) {
    std::int64_t count = 0;
    for (Tensor* const tensor : tensors) {
        numbers.parts.push_back(
            {.tensor = tensor, .numbers = {.begin = 0, .size = tensor->size()}});
        count += tensor->size();
    }
    const auto replicas = static_cast<int>(member.peers.size());
    for (int replica = 0; replica < replicas; ++replica) {
        numbers.shares.push_back(share_of(count, replica, replicas));
    }
}

/// What replicas have of the tensors where they divide the optimizer's state, one share after the
/// other.
void add_shares_of_state(std::span<Parameter* const> parameters,
                         Tensor Parameter::*tensor,
                         const ReplicaMember& member,
                         SharedNumbers& numbers) {
    const std::size_t shares =
        member.sharers.size == 0 ? member.peers.size() : as_index(member.sharers.size);
    std::int64_t count = 0;
    for (std::size_t share = 0; share < shares; ++share) {
        const std::int64_t begin = count;
        for (Parameter* const parameter : parameters) {
            const ElementRange& part = parameter->shares.at(share);
            if (part.size > 0) {
                numbers.parts.push_back({.tensor = &(parameter->*tensor), .numbers = part});
                count += part.size;
            }
        }
        numbers.shares.push_back({.begin = begin, .size = count - begin});
    }
    for (std::size_t replica = shares; replica < member.peers.size(); ++replica) {
        numbers.shares.push_back(numbers.shares[replica - shares]);
    }
}

}  // namespace

Tensor numbers_on_host(std::span<double> numbers) {
    return Tensor::placed(
        host_memory(), numbers.data(), DType::F64, 1, static_cast<std::int64_t>(numbers.size()));
}

SharedNumbers shared_gradients(std::span<Parameter* const> parameters,
                               bool received,
                               const ReplicaMember& member) {
    SharedNumbers numbers;
    if (!member.rounds.sums) {
        add_shares_of_state(parameters, &Parameter::gradient, member, numbers);
        return numbers;
    }
    std::vector<Tensor*> tensors;
    for (Parameter* const parameter : parameters) {
        tensors.push_back(&parameter->gradient);
    }
    for (Parameter* const parameter : parameters) {
        if (received && !parameter->received.empty()) {
            tensors.push_back(&parameter->received);
        }
    }
    add_equal_shares(tensors, member, numbers);
    return numbers;
}

SharedNumbers shared_weights(std::span<Parameter* const> parameters, const ReplicaMember& member) {
    SharedNumbers numbers;
    if (member.rounds.weights) {
        add_shares_of_state(parameters, &Parameter::value, member, numbers);
    }
    return numbers;
}

std::unique_ptr<AllReduceTransport> host_all_reduce(Device& device,
                                                    const SharedNumbers& gradients,
                                                    const SharedNumbers& weights,
                                                    const ReplicaMember& member) {
    return std::make_unique<HostAllReduce>(device, gradients, weights, member);
}

std::unique_ptr<AllReduceTransport> gpu_all_reduce(const SharedNumbers& gradients,
                                                   const SharedNumbers& weights,
                                                   const ReplicaMember& member,
                                                   RemoteSum& sum) {
    return std::make_unique<GpuAllReduce>(gradients, weights, member, sum);
}

}  // namespace pipetwin::exec
