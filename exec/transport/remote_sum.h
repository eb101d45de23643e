// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "exec/transport/gpu_link.h"
#include "exec/transport/gpu_waits.h"

namespace pipetwin::exec {

/// What the stages of a rank sum and exchange with the same rank of other replicas, on GPUs. They
/// ask in the order of the rank's row, which is the same in every replica. What was asked for goes
/// on by itself. Every function ends as a wait for other processes does
/// (ProcessGroup::throw_if_aborted).
class RemoteSum {
  public:
    /// `waits` outlives it.
    RemoteSum(GpuWaits& waits, std::unique_ptr<GpuSum> sum) : waits_(waits), sum_(std::move(sum)) {
        waits_.add(*sum_);
    }
    RemoteSum(const RemoteSum&) = delete;
    RemoteSum& operator=(const RemoteSum&) = delete;
    ~RemoteSum() { waits_.remove(*sum_); }

    /// Begins GpuSum's `add`; the result is for `wait`.
    std::int64_t add(std::span<const GpuNumbers> numbers, std::span<const ElementRange> shares) {
        return begin([&] { sum_->add(numbers, shares); });
    }
    /// Begins GpuSum's `exchange`; the result is for `wait`.
    std::int64_t exchange(std::span<const GpuNumbers> numbers,
                          std::span<const ElementRange> shares,
                          const ElementRange& among,
                          std::size_t bytes_each) {
        return begin([&] { sum_->exchange(numbers, shares, among, bytes_each); });
    }

    /// Returns when the request `begun` is complete; false if it was before the call.
    bool wait(std::int64_t begun) {
        const auto is_complete = [&] { return sum_->complete() >= begun; };
        if (waits_.explained(is_complete)) {
            return false;
        }
        waits_.wait(is_complete);
        return true;
    }

    /// Says that this replica stops: ends the waits of all others.
    void close() { waits_.group().abort(); }

  private:
    template <class Ask>
    std::int64_t begin(const Ask& ask) {
        waits_.explained(ask);
        const std::int64_t number = ++asked_;
        waits_.wait([this] { return sum_->all_begun(); });  // no poll follows
        return number;
    }

    GpuWaits& waits_;
    std::unique_ptr<GpuSum> sum_;
    std::int64_t asked_ = 0;
};

}  // namespace pipetwin::exec
