// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/training_sizes.h"
#include <sys/types.h>

#include <cstdio>
#include <string>

namespace pipetwin::bench {

/// PyTorch in a process of its own, which runs a script. The script prints the number of its
/// parameters and the version of PyTorch, and then answers each "step" with its wall time, its
/// processor time and its loss. The Python is Debian's, or PIPETWIN_PEER_PYTHON: a program that is
/// called as one. Throws std::runtime_error where the script does not answer.
class TorchPeer {
  public:
    TorchPeer(const std::string& script, int threads, bool bf16);
    TorchPeer(const TorchPeer&) = delete;
    TorchPeer& operator=(const TorchPeer&) = delete;
    ~TorchPeer();

    Times step();

    long parameters = 0;
    std::string version;

  private:
    std::string line();

    pid_t child_ = 0;
    std::FILE* to_ = nullptr;
    std::FILE* from_ = nullptr;
};

}  // namespace pipetwin::bench
