// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/link_ladder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "exec/device/memory.h"
#include "exec/transport/byte_message.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t smallest = std::int64_t{4} << 10;
constexpr std::int64_t largest = std::int64_t{64} << 20;
constexpr std::int64_t fitted_from = std::int64_t{64} << 10;
constexpr int tag = 1;  ///< of no edge: those go the other way between these two
constexpr Duration longest_round = std::chrono::milliseconds(400);

/// One of the two ends of a ladder.
class End {
  public:
    End(ProcessGroup& group, int other, Memory* gpu)
        : memory_(gpu != nullptr ? *gpu : host_memory()),
          out_(group.open({.peer = other, .tag = tag, .sends = true, .on_device = gpu != nullptr})),
          in_(group.open({.peer = other, .tag = tag, .sends = false, .on_device = gpu != nullptr})),
          sent_(Tensor::detached(memory_, DType::I32, 1, largest / 4)),
          received_(Tensor::detached(memory_, DType::I32, 1, largest / 4)) {}

    void expect(std::int64_t bytes) { in_->expect(part(received_, bytes)); }
    void send(std::int64_t bytes) {
        out_->send({.micro_batch = 0, .tensor = part(sent_, bytes), .available = {}});
    }
    void receive() { in_->receive(); }
    void settle() { out_->settle(); }

  private:
    Tensor part(Tensor& whole, std::int64_t bytes) {
        return Tensor::placed(memory_, whole.data(), DType::I32, 1, bytes / 4);
    }

    Memory& memory_;
    std::unique_ptr<Channel> out_;
    std::unique_ptr<Channel> in_;
    Tensor sent_;
    Tensor received_;
};

/// Number of round trips that are measured, where one way takes `once`.
int repeats_of(Duration once) {
    constexpr int most = 41;
    constexpr int least = 3;
    constexpr Duration budget = std::chrono::milliseconds(150);
    return static_cast<int>(std::clamp<std::int64_t>(
        budget / std::max<Duration>(once, std::chrono::microseconds(1)), least, most));
}

Duration there_and_back(End& end, std::int64_t bytes, bool begins) {
    end.expect(bytes);
    const auto begin = Clock::now();
    if (begins) {
        end.send(bytes);
        end.receive();
    } else {
        end.receive();
        end.send(bytes);
    }
    const Duration time = Clock::now() - begin;
    end.settle();
    return time;
}

}  // namespace

std::vector<LadderRung> link_ladder(ProcessGroup& group, int first, int second, Memory* gpu) {
    const bool begins = group.index() == first;
    const bool takes_part = begins || group.index() == second;
    const std::vector<int> peers{begins ? second : first};
    group.introduce(std::span(peers).first(takes_part ? 1 : 0));
    std::optional<End> end;
    if (takes_part) {
        end.emplace(group, peers.front(), gpu);
    }
    // What the first of the two says, all do.
    const auto agreed = [&](std::int64_t value) {
        const auto all = group.all_gather(std::as_bytes(std::span(&value, 1)));
        return ByteReader(all[as_index(first)]).get<std::int64_t>();
    };
    std::vector<LadderRung> rungs;
    for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 4) {
        Duration once{};
        if (end) {
            there_and_back(*end, bytes, begins);  // memory and connections are there
            once = there_and_back(*end, bytes, begins);
        }
        const auto repeats = agreed(repeats_of(once));
        std::vector<Duration> times;
        for (int i = 0; end && i < repeats; ++i) {
            times.push_back(there_and_back(*end, bytes, begins));
        }
        Duration time{};
        if (end) {
            time = median(std::move(times)) / 2;
            rungs.push_back({.message = Bytes{bytes}, .time = time});
        }
        if (Duration(agreed(time.count())) > longest_round) {
            break;
        }
    }
    return rungs;
}

Duration message_time(const LinkCost& link, Bytes bytes) {
    return link.latency + transfer_time(bytes + link.half_bandwidth, link.bytes_per_second);
}

LinkCost link_of(const std::vector<LadderRung>& rungs) {
    // a + b x against t, each equation divided by t: normal equations of two unknowns.
    double s00 = 0;
    double s01 = 0;
    double s11 = 0;
    double r0 = 0;
    double r1 = 0;
    int count = 0;
    for (const LadderRung& rung : rungs) {
        if (rung.message.count < fitted_from) {
            continue;
        }
        const double time = to_seconds(rung.time);
        const double u = 1 / time;
        const double v = static_cast<double>(rung.message.count) / time;
        s00 += u * u;
        s01 += u * v;
        s11 += v * v;
        r0 += u;
        r1 += v;
        ++count;
    }
    PIPETWIN_EXPECT(count >= 3, "a ladder has three rungs from 64 KiB up");
    const double determinant = s00 * s11 - s01 * s01;
    const double a = (r0 * s11 - r1 * s01) / determinant;
    const double b = (s00 * r1 - s01 * r0) / determinant;
    LinkCost link{.latency = rungs.front().time};
    if (!(b > 0)) {
        const LadderRung& largest_one = rungs.back();
        return {.bytes_per_second =
                    static_cast<double>(largest_one.message.count) / to_seconds(largest_one.time)};
    }
    link.bytes_per_second = 1 / b;
    const double rest = a - to_seconds(link.latency);
    if (rest < 0) {
        link.latency = std::max(Duration{}, Duration(std::llround(a * 1e9)));
    } else {
        link.half_bandwidth = Bytes{std::llround(rest / b)};
    }
    return link;
}

MeasuredLinks measured_links(ProcessGroup& group,
                             const RanksOfProcesses& of,
                             const std::vector<int>& hosts,
                             Memory* gpu) {
    constexpr Bytes usual{std::int64_t{1} << 20};  // which of two links is slower is asked for this
    MeasuredLinks links;
    std::vector<std::pair<int, int>> pairs;
    for (int rank = 0; rank + 1 < of.ranks; ++rank) {
        pairs.emplace_back(rank * of.devices, (rank + 1) * of.devices);
    }
    if (group.size() > of.ranks * of.devices && gpu == nullptr) {
        pairs.emplace_back(0, of.ranks * of.devices);
    }
    if (of.devices > 1) {
        pairs.emplace_back(0, 1);
    }
    for (const auto& [first, second] : pairs) {
        const std::vector<LadderRung> rungs = link_ladder(group, first, second, gpu);
        ByteWriter mine;
        if (group.index() == first) {
            const LinkCost link = link_of(rungs);
            mine.put(link.latency).put(link.bytes_per_second).put(link.half_bandwidth);
        }
        const auto all = group.all_gather(mine.bytes());
        ByteReader text(all[as_index(first)]);
        const bool one_host = hosts.at(as_index(first)) == hosts.at(as_index(second));
        LinkCost link{.between = one_host ? "ranks" : "nodes"};
        link.latency = text.get<Duration>();
        link.bytes_per_second = text.get<double>();
        link.half_bandwidth = text.get<Bytes>();
        if (of.devices > 1 && second == 1) {
            link.between = "devices";
            links.devices = link;
            continue;
        }
        std::optional<LinkCost>& slowest = one_host ? links.inside : links.between;
        if (!slowest || message_time(link, usual) > message_time(*slowest, usual)) {
            slowest = link;
        }
    }
    return links;
}

}  // namespace pipetwin::exec
