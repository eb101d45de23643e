// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/timed_channel.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "exec/base/spin.h"
#include "exec/device/memory.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// A tensor with room for a moment, as channels carry tensors.
Tensor moment_tensor() {
    return Tensor::detached(host_memory(), DType::I32, 1, 2);
}

void sleep_and_spin_until(TimePoint moment) {
    constexpr std::chrono::microseconds early{100};
    std::this_thread::sleep_until(moment - early);
    while (Clock::now() < moment) {
        pause_core();
    }
}

class TimedChannel final : public Channel {
  public:
    explicit TimedChannel(std::unique_ptr<Channel> inner) : inner_(std::move(inner)) {}

    TimePoint send(Message message) override {
        const std::int64_t available = message.available.time_since_epoch().count();
        Tensor moment = moment_tensor();
        std::memcpy(moment.data(), &available, sizeof available);
        inner_->send(
            {.micro_batch = message.micro_batch, .tensor = std::move(moment), .available = {}});
        return inner_->send(std::move(message));
    }

    void expect(Tensor place) override {
        inner_->expect(moment_tensor());
        inner_->expect(std::move(place));
    }

    Received receive() override {
        const Received moment = inner_->receive();
        std::int64_t nanoseconds = 0;
        std::memcpy(&nanoseconds, moment.message.tensor.data(), sizeof nanoseconds);
        const TimePoint available{Clock::duration(nanoseconds)};
        Received received = inner_->receive();
        sleep_and_spin_until(available);
        received.arrived = std::max(received.arrived, available);
        return received;
    }

    void settle() override { inner_->settle(); }
    void close() override { inner_->close(); }
    void reopen() override { inner_->reopen(); }
    std::optional<int> capacity() const override {
        const std::optional<int> doubled = inner_->capacity();
        return doubled ? std::optional(*doubled / 2) : std::nullopt;
    }

  private:
    std::unique_ptr<Channel> inner_;
};

}  // namespace

std::unique_ptr<Channel> make_timed_channel(std::unique_ptr<Channel> inner) {
    return std::make_unique<TimedChannel>(std::move(inner));
}

}  // namespace pipetwin::exec
