// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/reductions/gradient_all_reduce.h"

#include <algorithm>
#include <utility>

namespace pipetwin::exec {
namespace {

Tensor squares_at(double* place, std::size_t count) {
    return numbers_on_host({place, count});
}

}  // namespace

GradientAllReduce::GradientAllReduce(Device& device,
                                     std::size_t parameters,
                                     const StageMoments& moments,
                                     ReplicaMember member,
                                     std::unique_ptr<AllReduceTransport> transport)
    : device_(device),
      moments_(moments),
      own_moments_(moments.size()),
      moments_of_all_(moments.size() * member.peers.size()),
      member_(std::move(member)),
      transport_(std::move(transport)) {
    if (member_.rounds.weights) {
        for (Squares& round : squares_) {
            round.mine.resize(parameters);
            round.theirs.resize(member_.peers.size() * parameters);
        }
    }
}

void GradientAllReduce::expect() {
    member_.for_each_other([](std::size_t, const ReplicaMember::Peer& peer) {
        if (peer.is_remote) {
            peer.to->settle();
        }
    });
    transport_->expect_sums();
    expect_moments();
    if (member_.rounds.weights) {
        expect_squares();
        transport_->expect_weights();
    }
}

void GradientAllReduce::expect_squares() {
    squares_round_ = 0;
    const std::size_t rounds = member_.rounds.norm ? 2 : 1;
    for (Squares& round : std::span(squares_).first(rounds)) {
        member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
            if (peer.is_remote) {
                peer.from->expect(squares_at(round.theirs.data() + replica * round.mine.size(),
                                             round.mine.size()));
            }
        });
    }
}

void GradientAllReduce::expect_moments() {
    if (moments_.size() == 0) {
        return;
    }
    member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
        if (peer.is_remote) {
            peer.from->expect(numbers_on_host(
                std::span(moments_of_all_).subspan(replica * moments_.size(), moments_.size())));
        }
    });
}

/// What the others read is written again only after their next sums, which they begin once they
/// have read it.
void GradientAllReduce::share_moments() {
    if (moments_.size() == 0) {
        return;
    }
    moments_.read(device_.kernels(), own_moments_);
    member_.for_each_other([&](std::size_t, const ReplicaMember::Peer& peer) {
        peer.to->send({.micro_batch = 0, .tensor = numbers_on_host(own_moments_), .available = {}});
    });
    std::vector<Tensor> received(member_.peers.size());
    received[member_.own] = numbers_on_host(own_moments_);
    member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
        received[replica] = std::move(peer.from->receive().message.tensor);
    });
    const auto row_of = [&](const Tensor& tensor) {
        return std::span(tensor.as<double>(), moments_.size());
    };
    const std::span<const double> first = row_of(received.front());
    std::vector<double> sums(first.begin(), first.end());
    for (const Tensor& more : std::span(received).subspan(1)) {
        moments_.add(row_of(more), sums);
    }
    moments_.write(device_.kernels(), sums);
}

void GradientAllReduce::begin() {
    device_.finish();
    transport_->begin_sums();
    under_way_ = true;
}

TimePoint GradientAllReduce::finish() {
    const TimePoint last = transport_->finish_sums();
    share_moments();
    under_way_ = false;
    return last;
}

void GradientAllReduce::share_squares(std::span<double> squares) {
    if (!member_.rounds.weights) {
        return;
    }
    device_.finish();
    Squares& round = squares_.at(squares_round_++);
    std::ranges::copy(squares, round.mine.begin());
    member_.for_each_other([&](std::size_t, const ReplicaMember::Peer& peer) {
        peer.to->send({.micro_batch = 0,
                       .tensor = squares_at(round.mine.data(), squares.size()),
                       .available = {}});
    });
    std::vector<Tensor> received(member_.peers.size());
    received[member_.own] = squares_at(round.mine.data(), squares.size());
    member_.for_each_other([&](std::size_t replica, const ReplicaMember::Peer& peer) {
        received[replica] = std::move(peer.from->receive().message.tensor);
    });
    const std::span<const Tensor> all(received);
    const std::span<const Tensor> shares =
        member_.sharers.size == 0 ? all
                                  : all.subspan(static_cast<std::size_t>(member_.sharers.begin),
                                                static_cast<std::size_t>(member_.sharers.size));
    for (std::size_t i = 0; i < squares.size(); ++i) {
        squares[i] = 0;
        for (const Tensor& part : shares) {
            squares[i] += part.as<double>()[i];
        }
    }
}

void GradientAllReduce::share_weights() {
    if (member_.rounds.weights) {
        device_.finish();
        transport_->exchange_weights();
    }
}

void GradientAllReduce::close() {
    transport_->close();
    member_.for_each_other([](std::size_t, const ReplicaMember::Peer& peer) {
        if (peer.to != nullptr) {
            peer.to->close();
            peer.from->close();
        }
    });
}

}  // namespace pipetwin::exec
