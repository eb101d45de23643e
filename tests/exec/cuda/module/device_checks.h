// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// Checks that show that a device computes. Each throws CudaFailure when a call fails or a result
/// is wrong, and returns what it compared. They run on the current device.
namespace pipetwin::cuda {

/// Host to device and back.
std::string check_buffer();

/// `add` of kernels.h.
std::string check_kernel();

/// Attention of every kernel, then what runs where cuDNN has plans, each twice for the same bits,
/// against the formulas in double on the CPU. Says whether it is cuDNN that runs, or why not.
std::string check_attention();

/// Convolutions by our own kernels, then by cuDNN where it has plans, in all directions, each twice
/// for the same bits, against the formula in double on the CPU. Says whether it is cuDNN that runs,
/// or why not.
std::string check_convolutions();

/// One matrix product by cuBLASLt against three loops on the CPU. All values are small whole
/// numbers, so the sums are exact in every order and the results must be equal, not close.
std::string check_product();

/// An NCCL communicator of one rank that sends to itself and receives from itself in one group.
std::string check_loopback();

}  // namespace pipetwin::cuda
