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

/// The numbers of some tensors, one after the other, as bytes in host memory.
struct Flat {
    std::vector<Tensor*> tensors;
    DType type = DType::F32;
    std::int64_t count = 0;
    std::vector<std::byte> bytes;

    explicit Flat(std::vector<Tensor*> some) : tensors(std::move(some)) {
        for (const Tensor* const tensor : tensors) {
            type = tensor->dtype();
            count += tensor->size();
        }
        bytes.resize(as_index(count) * size_of(type));
    }
    Tensor place(const ElementRange& range) {
        return Tensor::placed(host_memory(), at(range.begin), type, 1, range.size);
    }
    std::byte* at(std::int64_t number) { return bytes.data() + as_index(number) * size_of(type); }

    /// Calls act(tensor, its numbers that are in the range, their bytes here).
    template <class Do>
    void for_each_part(const ElementRange& range, const Do& act) const {
        std::int64_t passed = 0;
        for (Tensor* const tensor : tensors) {
            ElementRange part = common(range, {.begin = passed, .size = tensor->size()});
            if (part.size > 0) {
                const std::size_t offset = as_index(part.begin) * size_of(type);
                part.begin -= passed;
                act(*tensor, part, offset, static_cast<std::size_t>(part.size) * size_of(type));
            }
            passed += tensor->size();
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
    HostAllReduce(Device& device, const SummedTensors& tensors, const ReplicaMember& member)
        : device_(device),
          member_(member),
          gradients_(tensors.gradients),
          weights_(member.rounds.weights ? tensors.weights : std::vector<Tensor*>()),
          sums_(gradients_) {
        inbox_.resize(member_.peers.size() *
                      static_cast<std::size_t>(share(gradients_, member_.own).size) *
                      size_of(gradients_.type));
    }

    void expect_sums() override {
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (peer.is_remote) {
                peer.from->expect(part_place(replica));
                if (member_.rounds.sums) {
                    peer.from->expect(sums_.place(share(sums_, replica)));
                }
            }
        });
    }

    void expect_weights() override {
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (peer.is_remote) {
                peer.from->expect(weights_.place(share(weights_, replica)));
            }
        });
    }

    void begin_sums() override {
        gradients_.download(device_, {.begin = 0, .size = gradients_.count});
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            peer.to->send({.micro_batch = 0,
                           .tensor = gradients_.place(share(gradients_, replica)),
                           .available = {}});
        });
    }

    TimePoint finish_sums() override {
        const ElementRange own = share(gradients_, member_.own);
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
            send(sums_);
            last = std::max(last, receive(sums_));
        }
        sums_.upload(device_,
                     member_.rounds.sums ? ElementRange{.begin = 0, .size = sums_.count} : own);
        return last;
    }

    void close() override {}  // what the peers' channels do

    void exchange_weights() override {
        weights_.download(device_, share(weights_, member_.own));
        send(weights_);
        receive(weights_);
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer&) {
            weights_.upload(device_, share(weights_, replica));
        });
    }

  private:
    ElementRange share(const Flat& of, std::size_t replica) const {
        return share_of(
            of.count, static_cast<int>(replica), static_cast<int>(member_.peers.size()));
    }

    /// For this replica's share as another has it.
    Tensor part_place(std::size_t replica) {
        const std::int64_t size = share(gradients_, member_.own).size;
        std::byte* const place =
            inbox_.data() + replica * static_cast<std::size_t>(size) * size_of(gradients_.type);
        return Tensor::placed(host_memory(), place, gradients_.type, 1, size);
    }

    /// Sums the calling replica's share, of which each replica has a part.
    template <class Number>
    void add_up(const std::vector<const std::byte*>& parts) {
        const ElementRange own = share(gradients_, member_.own);
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

    /// Sends the calling replica's share of it to all others.
    void send(Flat& from) {
        member_.for_each_other([&](std::size_t, const ReplicaMember::Peer& peer) {
            peer.to->send({.micro_batch = 0,
                           .tensor = from.place(share(from, member_.own)),
                           .available = {}});
        });
    }

    /// The others' shares.
    TimePoint receive(Flat& to) {
        TimePoint last;
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            const Channel::Received received = peer.from->receive();
            last = std::max(last, received.arrived);
            const ElementRange theirs = share(to, replica);
            Tensor place = to.place(theirs);
            const Tensor& message = received.message.tensor;
            if (theirs.size > 0 && message.data() != place.data()) {
                std::memcpy(
                    place.data(), message.data(), static_cast<std::size_t>(place.bytes().count));
            }
        });
        return last;
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
    GpuAllReduce(const SummedTensors& tensors, const ReplicaMember::Rounds& rounds, RemoteSum& sum)
        : gradients_(tensors.gradients),
          weights_(tensors.weights),
          all_sums_(rounds.sums),
          sum_(sum) {
        PIPETWIN_EXPECT(gradients_.empty() || gradients_.front()->dtype() == DType::F32,
                        "GPUs sum gradients in fp32");
    }

    void expect_sums() override {}
    void expect_weights() override {}
    void close() override { sum_.close(); }
    void begin_sums() override { begun_ = sum_.add(numbers_of(gradients_), all_sums_); }

    TimePoint finish_sums() override {
        return sum_.wait(begun_) ? std::chrono::steady_clock::now() : TimePoint();
    }

    void exchange_weights() override {
        const DType type = weights_.empty() ? DType::F32 : weights_.front()->dtype();
        sum_.wait(sum_.exchange(numbers_of(weights_), size_of(type)));
    }

  private:
    static std::vector<GpuNumbers> numbers_of(const std::vector<Tensor*>& tensors) {
        std::vector<GpuNumbers> numbers;
        for (Tensor* const tensor : tensors) {
            numbers.push_back({.data = tensor->data(), .count = tensor->size()});
        }
        return numbers;
    }

    std::vector<Tensor*> gradients_;
    std::vector<Tensor*> weights_;
    bool all_sums_;
    RemoteSum& sum_;
    std::int64_t begun_ = 0;
};

}  // namespace

Tensor numbers_on_host(std::span<double> numbers) {
    return Tensor::placed(
        host_memory(), numbers.data(), DType::F64, 1, static_cast<std::int64_t>(numbers.size()));
}

SummedTensors summed_tensors(const std::vector<Parameter*>& parameters, bool received) {
    SummedTensors tensors;
    for (Parameter* const parameter : parameters) {
        tensors.gradients.push_back(&parameter->gradient);
        tensors.weights.push_back(&parameter->value);
    }
    for (Parameter* const parameter : parameters) {
        if (received && !parameter->received.empty()) {
            tensors.gradients.push_back(&parameter->received);
        }
    }
    return tensors;
}

std::unique_ptr<AllReduceTransport> host_all_reduce(Device& device,
                                                    const SummedTensors& tensors,
                                                    const ReplicaMember& member) {
    return std::make_unique<HostAllReduce>(device, tensors, member);
}

std::unique_ptr<AllReduceTransport> gpu_all_reduce(const SummedTensors& tensors,
                                                   const ReplicaMember::Rounds& rounds,
                                                   RemoteSum& sum) {
    return std::make_unique<GpuAllReduce>(tensors, rounds, sum);
}

}  // namespace pipetwin::exec
