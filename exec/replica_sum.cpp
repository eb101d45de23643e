#include "exec/replica_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/kernels.h"

namespace pipetwin::exec {
namespace {

std::vector<Tensor*> tensors_of(const std::vector<Parameter*>& parameters,
                                Tensor Parameter::*part) {
    std::vector<Tensor*> tensors;
    for (Parameter* const parameter : parameters) {
        tensors.push_back(&(parameter->*part));
    }
    return tensors;
}

Tensor numbers_at(void* place, DType type, std::int64_t count) {
    return Tensor::placed(host_memory(), place, type, 1, count);
}

}  // namespace

ReplicaSum::Flat::Flat(std::vector<Tensor*> some) : tensors(std::move(some)) {
    for (const Tensor* const tensor : tensors) {
        type = tensor->dtype();
        count += tensor->size();
    }
    bytes.resize(static_cast<std::size_t>(count) * size_of(type));
}

/// Calls act(tensor, its numbers that are in the range, their bytes here).
template <class Do>
void ReplicaSum::Flat::for_each_part(const NumberRange& range, const Do& act) const {
    std::int64_t passed = 0;
    for (Tensor* const tensor : tensors) {
        NumberRange part = common(range, {.begin = passed, .size = tensor->size()});
        if (part.size > 0) {
            const std::size_t offset = static_cast<std::size_t>(part.begin) * size_of(type);
            part.begin -= passed;
            act(*tensor, part, offset, static_cast<std::size_t>(part.size) * size_of(type));
        }
        passed += tensor->size();
    }
}

void ReplicaSum::Flat::download(Device& device, const NumberRange& range) {
    for_each_part(
        range,
        [&](const Tensor& tensor, const NumberRange& part, std::size_t offset, std::size_t size) {
            device.kernels().download(part_of(ConstView(tensor), part),
                                      std::span(bytes).subspan(offset, size));
        });
}

void ReplicaSum::Flat::upload(Device& device, const NumberRange& range) const {
    for_each_part(
        range, [&](Tensor& tensor, const NumberRange& part, std::size_t offset, std::size_t size) {
            device.kernels().upload(std::span(bytes).subspan(offset, size),
                                    part_of(View(tensor), part));
        });
}

ReplicaSum::ReplicaSum(Device& device,
                       std::vector<Parameter*> parameters,
                       std::vector<Peer> peers,
                       int replica,
                       Rounds rounds)
    : device_(device),
      peers_(std::move(peers)),
      own_(static_cast<std::size_t>(replica)),
      rounds_(rounds),
      gradients_(tensors_of(parameters, &Parameter::gradient)),
      weights_(rounds.weights ? tensors_of(parameters, &Parameter::value) : std::vector<Tensor*>()),
      sums_(gradients_) {
    inbox_.resize(peers_.size() * static_cast<std::size_t>(share(own_).size) *
                  size_of(gradients_.type));
    if (rounds_.weights) {
        for (Squares& round : squares_) {
            round.mine.resize(parameters.size());
            round.theirs.resize(peers_.size() * parameters.size());
        }
    }
}

/// For this replica's share as another has it.
Tensor ReplicaSum::part_place(std::size_t replica) {
    const std::int64_t size = share(own_).size;
    std::byte* const place =
        inbox_.data() + replica * static_cast<std::size_t>(size) * size_of(gradients_.type);
    return numbers_at(place, gradients_.type, size);
}

/// In the order in which they are sent.
void ReplicaSum::expect() {
    squares_round_ = 0;
    for_each_other([&](std::size_t replica, const Peer& peer) {
        if (!peer.is_remote) {
            return;
        }
        peer.to->settle();
        peer.from->expect(part_place(replica));
        if (rounds_.sums) {
            peer.from->expect(sums_.place(share(replica)));
        }
        if (!rounds_.weights) {
            return;
        }
        const auto expect_squares = [&](Squares& round) {
            const auto size = static_cast<std::int64_t>(round.mine.size());
            peer.from->expect(
                numbers_at(round.theirs.data() + replica * round.mine.size(), DType::F64, size));
        };
        if (rounds_.norm) {
            expect_squares(squares_[0]);
        }
        expect_squares(squares_[rounds_.norm ? 1 : 0]);
        peer.from->expect(weights_.place(share(replica)));
    });
}

void ReplicaSum::begin() {
    device_.finish();
    gradients_.download(device_, {.begin = 0, .size = gradients_.count});
    for_each_other([&](std::size_t replica, const Peer& peer) {
        peer.to->send(
            {.micro_batch = 0, .tensor = gradients_.place(share(replica)), .available = {}});
    });
    under_way_ = true;
}

TimePoint ReplicaSum::finish() {
    const NumberRange own = share(own_);
    TimePoint last;
    std::vector<Tensor> received(peers_.size());
    std::vector<const std::byte*> parts(peers_.size());
    parts[own_] = gradients_.at(own.begin);
    for_each_other([&](std::size_t replica, const Peer& peer) {
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
    if (rounds_.sums) {
        send(sums_);
        last = std::max(last, receive(sums_));
    }
    sums_.upload(device_, rounds_.sums ? NumberRange{.begin = 0, .size = sums_.count} : own);
    under_way_ = false;
    return last;
}

/// This replica's share of the sums, from what each replica has of it.
template <class Number>
void ReplicaSum::add_up(const std::vector<const std::byte*>& parts) {
    const NumberRange own = share(own_);
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

/// This replica's share of it to all others.
void ReplicaSum::send(Flat& from) {
    for_each_other([&](std::size_t, const Peer& peer) {
        peer.to->send({.micro_batch = 0, .tensor = from.place(share(own_)), .available = {}});
    });
}

/// The others' shares.
TimePoint ReplicaSum::receive(Flat& to) {
    TimePoint last;
    for_each_other([&](std::size_t replica, const Peer& peer) {
        const Channel::Received received = peer.from->receive();
        last = std::max(last, received.arrived);
        const NumberRange theirs = share(replica);
        Tensor place = to.place(theirs);
        const Tensor& message = received.message.tensor;
        if (theirs.size > 0 && message.data() != place.data()) {
            std::memcpy(
                place.data(), message.data(), static_cast<std::size_t>(place.bytes().count));
        }
    });
    return last;
}

void ReplicaSum::share_squares(std::span<double> squares) {
    if (!rounds_.weights) {
        return;
    }
    device_.finish();
    Squares& round = squares_.at(squares_round_++);
    std::ranges::copy(squares, round.mine.begin());
    const auto size = static_cast<std::int64_t>(squares.size());
    for_each_other([&](std::size_t, const Peer& peer) {
        peer.to->send({.micro_batch = 0,
                       .tensor = numbers_at(round.mine.data(), DType::F64, size),
                       .available = {}});
    });
    std::vector<Tensor> received(peers_.size());
    received[own_] = numbers_at(round.mine.data(), DType::F64, size);
    for_each_other([&](std::size_t replica, const Peer& peer) {
        received[replica] = std::move(peer.from->receive().message.tensor);
    });
    for (std::size_t i = 0; i < squares.size(); ++i) {
        squares[i] = 0;
        for (const Tensor& part : received) {
            squares[i] += part.as<double>()[i];
        }
    }
}

void ReplicaSum::share_weights() {
    if (!rounds_.weights) {
        return;
    }
    device_.finish();
    weights_.download(device_, share(own_));
    send(weights_);
    receive(weights_);
    for_each_other(
        [&](std::size_t replica, const Peer&) { weights_.upload(device_, share(replica)); });
}

void ReplicaSum::close() {
    for_each_other([](std::size_t, const Peer& peer) {
        peer.to->close();
        peer.from->close();
    });
}

}  // namespace pipetwin::exec
