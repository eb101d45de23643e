// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// The moments of a mini-batch that all norms of a stage have seen, as one row of numbers in host
/// memory: how they get to other stages with the same weights and to other replicas. Of each norm:
/// the number of its rows, then its means and sums of squares.
class StageMoments {
  public:
    StageMoments() = default;
    /// The moments of these norms, which outlive the object.
    explicit StageMoments(std::vector<BatchMoments*> norms);

    /// Numbers in the row; 0 where no norm has moments to exchange.
    std::size_t size() const { return size_; }
    /// Copies the norms' moments to the host, once the device has completed them.
    void read(const Kernels& kernels, std::span<double> to) const;
    /// Replaces the norms' moments.
    void write(const Kernels& kernels, std::span<const double> from) const;
    /// Joins a row to `sums`. Results depend on the order of such calls.
    void add(std::span<const double> more, std::span<double> sums) const;

  private:
    std::vector<BatchMoments*> norms_;
    std::size_t size_ = 0;
};

}  // namespace pipetwin::exec
