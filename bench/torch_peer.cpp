// SPDX-License-Identifier: Apache-2.0
#include "bench/torch_peer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>

namespace pipetwin::bench {

TorchPeer::TorchPeer(const std::string& script, int threads, bool bf16) {
    std::array<int, 2> to{};
    std::array<int, 2> from{};
    if (::pipe(to.data()) != 0 || ::pipe(from.data()) != 0) {
        throw std::runtime_error("no pipe to the peer");
    }
    const std::string count = std::to_string(threads);
    child_ = ::fork();
    if (child_ == 0) {
        ::dup2(to[0], STDIN_FILENO);
        ::dup2(from[1], STDOUT_FILENO);
        for (const int end : {to[0], to[1], from[0], from[1]}) {
            ::close(end);
        }
        ::setenv("OPENBLAS_NUM_THREADS", count.c_str(), 1);
        ::setenv("OMP_NUM_THREADS", count.c_str(), 1);
        const char* const python = std::getenv("PIPETWIN_PEER_PYTHON");
        ::execl(python != nullptr ? python : "/usr/bin/python3",
                "python3",
                script.c_str(),
                "--threads",
                count.c_str(),
                bf16 ? "--bf16" : nullptr,
                nullptr);
        ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    const std::string first = line();
    parameters = std::atol(first.c_str());
    const std::size_t blank = first.find(' ');
    version = blank == first.npos ? "" : first.substr(blank + 1, first.find('\n') - blank - 1);
}

TorchPeer::~TorchPeer() {
    std::fclose(to_);
    std::fclose(from_);
    ::waitpid(child_, nullptr, 0);
}

Times TorchPeer::step() {
    std::fputs("step\n", to_);
    std::fflush(to_);
    Times times;
    double loss = 0;
    const std::string answer = line();
    if (std::sscanf(answer.c_str(), "%lf %lf %lf", &times.wall, &times.processor, &loss) != 3) {
        throw std::runtime_error("the peer did not answer");
    }
    return times;
}

std::string TorchPeer::line() {
    std::array<char, 256> text{};
    if (std::fgets(text.data(), text.size(), from_) == nullptr) {
        throw std::runtime_error("the peer ended: scripts/install-packages bench");
    }
    return text.data();
}

}  // namespace pipetwin::bench
