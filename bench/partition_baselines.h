// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// How two other systems divide a chain, written from their descriptions, to be shown beside ours.
/// They know the work of the layers only; the result is the number of layers per stage, which may
/// be 0.
namespace pipetwin::bench {

/// torchgpipe's balance by time: block partition of sequences (Barany and Grinberg, "Block
/// partitions of sequences", Israel Journal of Mathematics 2015, the algorithm of section 2), whose
/// blocks differ by one largest element at the most. The numbers are first brought into [0, 1],
/// their smallest to 0, as that library does.
std::vector<int> block_partition(std::span<const std::int64_t> work, int stages);

/// DeepSpeed's "uniform": as many layers in each stage, the rest in the first ones.
std::vector<int> deepspeed_uniform(int layers, int stages);

/// DeepSpeed's "balanced": binary search, to within 0.001, for the bottleneck with which a greedy
/// probe over prefix sums ends; the stages are what that probe filled.
std::vector<int> deepspeed_balanced(std::span<const std::int64_t> work, int stages);

}  // namespace pipetwin::bench
