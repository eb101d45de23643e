// SPDX-License-Identifier: Apache-2.0

// How fast messages are between two processes: a channel against bare MPI, and how much of a
// message is hidden behind computing.
//
//   PIPETWIN_MODULE_PATH=build/release/bin mpirun -n 2 build/release/bench/between_processes
//   [repetitions]
//
// Ping-pong, medians: 4 KiB to 64 MiB, by turns, each first in half of the rounds.
// Then 4 MiB behind 120 ms of computing, with and without a look at MPI every 5 ms: how long the
// receiver waits after it. Over a link that is slow, such as two network namespaces with `tc tbf`
// (docs/cluster.md).
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "core/base/median.h"
#include "core/model/model.h"
#include "exec/device/memory.h"
#include "exec/transport/link_ladder.h"
#include "exec/transport/mpi_process_group.h"

namespace {

using namespace pipetwin;
using namespace pipetwin::exec;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t largest = std::int64_t{64} << 20;
constexpr std::int64_t fitted_from = std::int64_t{64} << 10;

Tensor part(Tensor& whole, std::int64_t bytes) {
    return Tensor::placed(host_memory(), whole.data(), DType::I32, 1, bytes / 4);
}

struct Ends {
    std::unique_ptr<Channel> out;
    std::unique_ptr<Channel> in;
    Tensor sent = Tensor::detached(host_memory(), DType::I32, 1, largest / 4);
    Tensor received = Tensor::detached(host_memory(), DType::I32, 1, largest / 4);
};

double by_channel(Ends& ends, std::int64_t bytes, bool begins) {
    ends.in->expect(part(ends.received, bytes));
    const auto begin = Clock::now();
    const auto send = [&] {
        ends.out->send({.micro_batch = 0, .tensor = part(ends.sent, bytes), .available = {}});
    };
    if (begins) {
        send();
        ends.in->receive();
    } else {
        ends.in->receive();
        send();
    }
    const auto end = Clock::now();
    ends.out->settle();
    return std::chrono::duration<double>(end - begin).count() / 2;
}

double by_mpi(Ends& ends, std::int64_t bytes, bool begins) {
    const int other = begins ? 1 : 0;
    const int count = static_cast<int>(bytes);
    const auto begin = Clock::now();
    if (begins) {
        MPI_Send(ends.sent.data(), count, MPI_BYTE, other, 7, MPI_COMM_WORLD);
        MPI_Recv(
            ends.received.data(), count, MPI_BYTE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(
            ends.received.data(), count, MPI_BYTE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(ends.sent.data(), count, MPI_BYTE, other, 7, MPI_COMM_WORLD);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count() / 2;
}

/// By how much the link's three numbers miss the times that they were fitted to.
void print_model(const std::vector<LadderRung>& rungs) {
    const LinkCost link = link_of(rungs);
    fmt::print("link: {:.1f} us, {:.4f} Gbit/s, half bandwidth {} bytes; off by",
               1e6 * to_seconds(link.latency),
               link.bytes_per_second * 8e-9,
               link.half_bandwidth.count);
    for (const LadderRung& rung : rungs) {
        if (rung.message.count >= fitted_from) {
            fmt::print(
                " {:+.1f}",
                100 * (to_seconds(message_time(link, rung.message)) / to_seconds(rung.time) - 1));
        }
    }
    fmt::print(" % from {} KiB up\n", fitted_from / 1024);
}

void ping_pong(Ends& ends, bool begins, int repetitions) {
    std::vector<LadderRung> rungs;
    for (std::int64_t bytes = 4096; bytes <= largest; bytes *= 4) {
        const int rounds = bytes > (1 << 22) ? std::max(3, repetitions / 4) : repetitions;
        std::vector<double> ours;
        std::vector<double> bare;
        for (int round = 0; round <= rounds; ++round) {
            for (const bool by_turns : {round % 2 == 0, round % 2 != 0}) {
                const double time =
                    by_turns ? by_channel(ends, bytes, begins) : by_mpi(ends, bytes, begins);
                if (round > 0) {
                    (by_turns ? ours : bare).push_back(time);
                }
            }
        }
        if (begins) {
            const double a = median(ours);
            const double b = median(bare);
            fmt::print("{:>9} KiB  channel {:10.1f} us  MPI {:10.1f} us  {:.2f} x\n",
                       bytes / 1024,
                       1e6 * a,
                       1e6 * b,
                       a / b);
            rungs.push_back({.message = Bytes{bytes}, .time = from_milliseconds(1e3 * a, "time")});
        }
    }
    if (begins) {
        print_model(rungs);
    }
}

/// Keeps the core busy.
void compute(std::chrono::milliseconds time, ProcessGroup* looks) {
    constexpr std::chrono::milliseconds slice{5};
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
        const auto until = std::min(Clock::now() + slice, end);
        while (Clock::now() < until) {
        }
        if (looks != nullptr) {
            looks->progress();
        }
    }
}

void overlap(ProcessGroup& group, Ends& ends, bool sends, bool looks) {
    constexpr std::int64_t bytes = std::int64_t{4} << 20;
    constexpr std::chrono::milliseconds work{120};
    std::vector<double> waits;
    for (int round = 0; round < 7; ++round) {
        if (!sends) {
            ends.in->expect(part(ends.received, bytes));
        }
        group.all_gather({});
        if (sends) {
            ends.out->send({.micro_batch = 0, .tensor = part(ends.sent, bytes), .available = {}});
        }
        compute(work, looks ? &group : nullptr);
        const auto begin = Clock::now();
        if (sends) {
            ends.out->settle();
        } else {
            ends.in->receive();
            waits.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        }
    }
    if (!sends) {
        fmt::print("4 MiB behind 120 ms of computing, {}: {:.1f} ms of waiting\n",
                   looks ? "with a look every 5 ms" : "without",
                   1e3 * median(waits));
    }
}

void run(int repetitions) {
    const std::unique_ptr<ProcessGroup> group = join_mpi();
    const bool first = group->index() == 0;
    if (group->size() != 2) {
        fmt::print(stderr, "start two of them: mpirun -n 2 ...\n");
        std::exit(2);
    }
    {
        Ends ends;
        ends.out = group->open({.peer = first ? 1 : 0, .tag = 1, .sends = true});
        ends.in = group->open({.peer = first ? 1 : 0, .tag = 1, .sends = false});
        ping_pong(ends, first, repetitions);
        overlap(*group, ends, first, true);
        overlap(*group, ends, first, false);
    }
    group->finalize();
}

}  // namespace

int main(int argc, char** argv) {
    try {
        run(std::max(4, argc > 1 ? std::atoi(argv[1]) : 41));
    } catch (const std::exception& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return 1;
    }
    return 0;
}
