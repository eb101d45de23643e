#include "exec/replica_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/kernels.h"

namespace pipetwin::exec {

ReplicaSum::ReplicaSum(Device& device,
                       std::vector<Tensor*> gradients,
                       std::vector<Peer> peers,
                       int replica)
    : device_(device),
      gradients_(std::move(gradients)),
      peers_(std::move(peers)),
      own_(static_cast<std::size_t>(replica)) {
    for (const Tensor* const gradient : gradients_) {
        type_ = gradient->dtype();
        count_ += static_cast<std::size_t>(gradient->size());
    }
    mine_.resize(count_ * size_of(type_));
    sums_.resize(mine_.size());
    inbox_.resize(peers_.size() * slice(own_).size * size_of(type_));
}

ReplicaSum::Slice ReplicaSum::slice(std::size_t replica) const {
    const std::size_t begin = count_ * replica / peers_.size();
    return {.begin = begin, .size = count_ * (replica + 1) / peers_.size() - begin};
}

/// Of a slice's size, from number `begin` of the buffer on.
Tensor ReplicaSum::tensor_in(std::vector<std::byte>& buffer,
                             std::size_t begin,
                             const Slice& slice) const {
    return Tensor::placed(host_memory(),
                          buffer.data() + begin * size_of(type_),
                          type_,
                          1,
                          static_cast<std::int64_t>(slice.size));
}

void ReplicaSum::expect() {
    const Slice own = slice(own_);
    for_each_other([&](std::size_t replica, const Peer& peer) {
        if (peer.is_remote) {
            peer.to->settle();
            peer.from->expect(tensor_in(inbox_, replica * own.size, own));
            const Slice theirs = slice(replica);
            peer.from->expect(tensor_in(sums_, theirs.begin, theirs));
        }
    });
}

void ReplicaSum::begin() {
    device_.finish();
    std::span<std::byte> rest(mine_);
    for (const Tensor* const gradient : gradients_) {
        const auto bytes = static_cast<std::size_t>(gradient->bytes().count);
        device_.kernels().download(*gradient, rest.first(bytes));
        rest = rest.subspan(bytes);
    }
    for_each_other([&](std::size_t replica, const Peer& peer) {
        const Slice theirs = slice(replica);
        peer.to->send(
            {.micro_batch = 0, .tensor = tensor_in(mine_, theirs.begin, theirs), .available = {}});
    });
    under_way_ = true;
}

TimePoint ReplicaSum::finish() {
    const Slice own = slice(own_);
    TimePoint last;
    std::vector<Tensor> received(peers_.size());
    std::vector<const std::byte*> parts(peers_.size());
    parts[own_] = mine_.data() + own.begin * size_of(type_);
    for_each_other([&](std::size_t replica, const Peer& peer) {
        Channel::Received part = peer.from->receive();
        last = std::max(last, part.arrived);
        received[replica] = std::move(part.message.tensor);
        parts[replica] = static_cast<const std::byte*>(std::as_const(received[replica]).data());
    });
    if (type_ == DType::F64) {
        add_up<double>(parts);
    } else {
        PIPETWIN_EXPECT(type_ == DType::F32, "gradients are summed in fp32 or fp64");
        add_up<float>(parts);
    }
    for_each_other([&](std::size_t, const Peer& peer) {
        peer.to->send(
            {.micro_batch = 0, .tensor = tensor_in(sums_, own.begin, own), .available = {}});
    });
    for_each_other([&](std::size_t replica, const Peer& peer) {
        Channel::Received sum = peer.from->receive();
        last = std::max(last, sum.arrived);
        const Slice theirs = slice(replica);
        std::byte* const place = sums_.data() + theirs.begin * size_of(type_);
        if (theirs.size > 0 && sum.message.tensor.data() != place) {
            std::memcpy(place, sum.message.tensor.data(), theirs.size * size_of(type_));
        }
    });
    std::span<const std::byte> rest(sums_);
    for (Tensor* const gradient : gradients_) {
        const auto bytes = static_cast<std::size_t>(gradient->bytes().count);
        device_.kernels().upload(rest.first(bytes), *gradient);
        rest = rest.subspan(bytes);
    }
    under_way_ = false;
    return last;
}

/// This replica's slice of the sums, from what each replica has of it.
template <class Number>
void ReplicaSum::add_up(const std::vector<const std::byte*>& parts) {
    const Slice own = slice(own_);
    auto* const sums = reinterpret_cast<Number*>(sums_.data()) + own.begin;
    std::memcpy(sums, parts.front(), own.size * sizeof(Number));
    for (std::size_t replica = 1; replica < parts.size(); ++replica) {
        const auto* const part = reinterpret_cast<const Number*>(parts[replica]);
        for (std::size_t i = 0; i < own.size; ++i) {
            sums[i] += part[i];
        }
    }
}

void ReplicaSum::close() {
    for_each_other([](std::size_t, const Peer& peer) {
        peer.to->close();
        peer.from->close();
    });
}

}  // namespace pipetwin::exec
