// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tests/support/cuda_emulation/cuda_runtime_api.h"

/// The part of NCCL's interface that exec/cuda/nccl_*.cpp use, between processes of one machine:
/// messages, alone and in groups of one communicator, and gathers. A message is told to be an error
/// where its ends do not mean the same size: with NCCL it would hang, or fill the wrong place.
// NOLINTBEGIN(readability-identifier-naming)

enum ncclResult_t {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
};

struct ncclComm;
using ncclComm_t = ncclComm*;

struct ncclUniqueId {
    char internal[128];
};

enum ncclDataType_t { ncclUint8 = 1 };

struct ncclConfig_t {
    int blocking;
    int minCTAs;
    int maxCTAs;
    int splitShare;
};
#define NCCL_CONFIG_INITIALIZER \
    { 1, 1, 32, 0 }

const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllGather(const void* data,
                           void* all,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclComm_t communicator,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void* data,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* data,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t communicator,
                      cudaStream_t stream);

// NOLINTEND(readability-identifier-naming)
