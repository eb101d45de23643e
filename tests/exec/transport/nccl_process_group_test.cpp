// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/nccl_process_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "exec/device/device_failure.h"
#include "exec/device/memory.h"
#include "exec/transport/byte_message.h"

/// Processes as threads of one, over links that keep the promises of exec/transport/gpu_link.h and
/// no more: a message is complete once both ends have begun it, and an end begins one when it is
/// looked at.
namespace pipetwin::exec {
namespace nccl_process_group_test {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using Clock = std::chrono::steady_clock;
using Bits = std::vector<std::byte>;

Bits bits(std::size_t size, int seed) {
    Bits all(size);
    for (std::size_t i = 0; i < size; ++i) {
        all[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed) * 13) % 251);
    }
    return all;
}

/// What the threads have in place of NCCL.
class Net {
  public:
    GpuLinks links() {
        return {.make_id =
                    [this] {
                        const int id = next_id_++;
                        const auto bytes = std::as_bytes(std::span(&id, 1));
                        return Bits(bytes.begin(), bytes.end());
                    },
                .make = [this](std::span<const std::byte> id,
                               bool sends,
                               LinkMemory) { return std::make_unique<Link>(line(id), sends); },
                .make_gather =
                    [this](std::span<const std::byte> id, const GpuMember& member) {
                        return std::make_unique<Gather>(circle(name_of(id), member), member);
                    },
                .make_sum = {},
                .abort = [](std::span<GpuTraffic* const>) {},
                .meet =
                    [this](const std::string& place, const GpuMember& member) {
                        return std::make_unique<Gather>(circle(place, member), member);
                    }};
    }

    /// Number of ids that were made: NCCL has a thread and a socket for each.
    int ids() const { return next_id_; }

  private:
    struct Line {
        std::mutex mutex;
        std::array<std::deque<std::pair<std::byte*, std::size_t>>, 2> begun;  ///< [sends]
        std::int64_t complete = 0;
        bool broken = false;

        void match() {
            while (!begun[0].empty() && !begun[1].empty()) {
                if (begun[0].front().second != begun[1].front().second) {
                    throw InternalError("two ends of a message mean different sizes");
                }
                std::memcpy(
                    begun[0].front().first, begun[1].front().first, begun[0].front().second);
                begun[0].pop_front();
                begun[1].pop_front();
                ++complete;
            }
        }
    };

    class Link final : public GpuLink {
      public:
        Link(std::shared_ptr<Line> line, bool sends) : line_(std::move(line)), sends_(sends) {}
        Link(const Link&) = delete;
        Link& operator=(const Link&) = delete;
        ~Link() override {
            const std::lock_guard lock(line_->mutex);
            line_->broken = true;
            line_->begun.at(end()).clear();  // nothing is read or written any more
        }
        void add(void* data, Bytes bytes) override {
            const std::lock_guard lock(line_->mutex);
            if (line_->broken) {
                throw DeviceFailure("the other end has gone", "", DeviceFailure::Lasts::Once);
            }
            waiting_.emplace_back(static_cast<std::byte*>(data),
                                  static_cast<std::size_t>(bytes.count));
            ++added_;
        }
        bool all_begun() override {
            const std::lock_guard lock(line_->mutex);
            begin_next();
            return waiting_.empty();
        }
        bool is_connected() override { return true; }
        void abort() noexcept override {}
        std::int64_t complete() override {
            const std::lock_guard lock(line_->mutex);
            begin_next();
            if (line_->broken && line_->complete < added_) {
                throw DeviceFailure("the other end has gone", "", DeviceFailure::Lasts::Once);
            }
            return line_->complete;
        }

      private:
        std::size_t end() const { return sends_ ? 1 : 0; }
        void begin_next() {
            if (!waiting_.empty() && !line_->broken) {
                line_->begun.at(end()).push_back(waiting_.front());
                waiting_.pop_front();
                line_->match();
            }
        }

        std::shared_ptr<Line> line_;
        bool sends_;
        std::deque<std::pair<std::byte*, std::size_t>> waiting_;
        std::int64_t added_ = 0;
    };

    struct Circle {
        std::mutex mutex;
        std::vector<std::vector<Bits>> rounds;  ///< [round][process]
        std::vector<int> come;                  ///< [round]
        bool broken = false;
    };

    class Gather final : public GpuGather {
      public:
        Gather(std::shared_ptr<Circle> circle, const GpuMember& member)
            : circle_(std::move(circle)), member_(member) {}
        Gather(const Gather&) = delete;
        Gather& operator=(const Gather&) = delete;
        ~Gather() override {
            const std::lock_guard lock(circle_->mutex);
            circle_->broken = true;
        }
        void begin(std::span<const std::byte> mine) override {
            const std::lock_guard lock(circle_->mutex);
            if (circle_->broken) {  // which may be seen that early
                throw DeviceFailure("another one has gone", "", DeviceFailure::Lasts::Once);
            }
            circle_->rounds.resize(std::max(circle_->rounds.size(), round_ + 1));
            circle_->come.resize(circle_->rounds.size());
            std::vector<Bits>& round = circle_->rounds[round_];
            round.resize(static_cast<std::size_t>(member_.count));
            round[static_cast<std::size_t>(member_.index)].assign(mine.begin(), mine.end());
            ++circle_->come[round_];
            ++round_;
        }
        bool done() override {
            const std::lock_guard lock(circle_->mutex);
            if (circle_->come[round_ - 1] < member_.count) {
                if (circle_->broken) {
                    throw DeviceFailure("another one has gone", "", DeviceFailure::Lasts::Once);
                }
                return false;
            }
            all_.clear();
            for (const Bits& each : circle_->rounds[round_ - 1]) {
                EXPECT_EQ(each.size(), circle_->rounds[round_ - 1].front().size());
                all_.insert(all_.end(), each.begin(), each.end());
            }
            return true;
        }
        std::span<const std::byte> all() const override { return all_; }
        void finish() noexcept override {}

      private:
        std::shared_ptr<Circle> circle_;
        GpuMember member_;
        std::size_t round_ = 0;
        Bits all_;
    };

    static std::string name_of(std::span<const std::byte> id) {
        return {reinterpret_cast<const char*>(id.data()), id.size()};
    }
    std::shared_ptr<Line> line(std::span<const std::byte> id) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<Line>& found = lines_[name_of(id)];
        if (!found) {
            found = std::make_shared<Line>();
        }
        return found;
    }
    std::shared_ptr<Circle> circle(const std::string& name, const GpuMember&) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<Circle>& found = circles_[name];
        if (!found) {
            found = std::make_shared<Circle>();
        }
        return found;
    }

    std::mutex mutex_;
    std::atomic<int> next_id_ = 0;
    std::map<std::string, std::shared_ptr<Line>> lines_;
    std::map<std::string, std::shared_ptr<Circle>> circles_;
};

/// Calls `act` in each of `count` processes.
template <class Act>
void in_all(int count, const Act& act, Net& net) {
    std::vector<std::thread> processes;
    for (int index = 0; index < count; ++index) {
        processes.emplace_back([&, index] {
            try {
                const auto group =
                    join_nccl(net.links(), "host:1", {.index = index, .count = count});
                act(*group);
            } catch (const std::exception& exception) {
                ADD_FAILURE() << "process " << index << ": " << exception.what();
            }
        });
    }
    for (std::thread& process : processes) {
        process.join();
    }
}

template <class Act>
void in_all(int count, const Act& act) {
    Net net;
    in_all(count, act, net);
}

void introduce_to_all(ProcessGroup& group) {
    std::vector<int> all(static_cast<std::size_t>(group.size()));
    std::iota(all.begin(), all.end(), 0);
    group.introduce(all);
}

template <class Done>
bool comes_true(const Done& done, Clock::duration patience = 5s) {
    const auto end = Clock::now() + patience;
    while (!done()) {
        if (Clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

TEST(NcclProcessGroup, GathersWhatIsOfAnyLength) {
    in_all(3, [](ProcessGroup& group) {
        const std::vector<std::size_t> sizes{200'000, 0, 65'536};
        for (int round = 0; round < 3; ++round) {
            const auto own = static_cast<std::size_t>((group.index() + round) % 3);
            const auto all = group.all_gather(bits(sizes[own], static_cast<int>(own)));
            ASSERT_EQ(all.size(), 3U);
            for (int process = 0; process < 3; ++process) {
                const auto theirs = static_cast<std::size_t>((process + round) % 3);
                EXPECT_TRUE(all[static_cast<std::size_t>(process)] ==
                            bits(sizes[theirs], static_cast<int>(theirs)));
            }
        }
        EXPECT_TRUE(group.all_gather({}, ProcessGroup::Lane::Norm) == std::vector<Bits>(3));
        group.finalize();
    });
}

/// Both send first: nobody waits for the other to receive.
TEST(NcclProcessGroup, SendsBetweenAnyTwoInOrder) {
    in_all(3, [](ProcessGroup& group) {
        introduce_to_all(group);
        for (int other = 0; other < 3; ++other) {
            if (other != group.index()) {
                group.send(other, bits(3'000'000, group.index()));
                group.send(other, {});
                group.send(other, bits(5, group.index()));
            }
        }
        for (int other = 0; other < 3; ++other) {
            if (other != group.index()) {
                EXPECT_TRUE(group.receive(other) == bits(3'000'000, other));
                EXPECT_TRUE(group.receive(other).empty());
                EXPECT_TRUE(group.receive(other) == bits(5, other));
            }
        }
        group.all_gather({});
    });
}

/// A process of a pipeline exchanges messages with the first process and with its neighbours, so
/// the number of its ids does not grow with the number of processes.
TEST(NcclProcessGroup, MakesIdsForLinksAlone) {
    for (const int count : {4, 12}) {
        Net net;
        std::atomic<int> joined = 0;
        in_all(
            count,
            [&](ProcessGroup& group) {
                group.all_gather({});
                joined = net.ids();
                group.all_gather({});
                std::vector<int> neighbours;
                for (const int other : {group.index() - 1, group.index() + 1}) {
                    if (other >= 0 && other < count) {
                        neighbours.push_back(other);
                    }
                }
                group.introduce(neighbours);
                group.introduce(neighbours);  // of a later executor
                for (const int other : neighbours) {
                    group.send(other, bits(9, group.index()));
                }
                for (const int other : neighbours) {
                    EXPECT_TRUE(group.receive(other) == bits(9, other));
                }
                group.all_gather({});
            },
            net);
        EXPECT_EQ(joined, 2 + 4 * (count - 1));
        constexpr int mails_between_first_and_second = 2;  // whose ids were there
        EXPECT_EQ(net.ids() - joined, 2 * (count - 1) - mails_between_first_and_second);
    }
}

TEST(NcclProcessGroup, ChannelsCarryWhatTheyPromise) {
    for (const std::optional<int> capacity :
         {std::optional<int>(), std::optional(0), std::optional(2)}) {
        in_all(2, [&](ProcessGroup& group) {
            constexpr int messages = 5;
            constexpr std::int64_t numbers = 1000;
            const bool sends = group.index() == 0;
            const auto channel = group.open(
                {.peer = 1 - group.index(), .tag = 3, .sends = sends, .capacity = capacity});
            EXPECT_EQ(channel->capacity(), capacity);
            std::vector<std::vector<float>> places(messages, std::vector<float>(numbers));
            const auto place = [&](int message) {
                return Tensor::placed(host_memory(),
                                      places[static_cast<std::size_t>(message)].data(),
                                      DType::F32,
                                      1,
                                      numbers);
            };
            for (int message = 0; message < messages; ++message) {
                if (sends) {
                    std::iota(places[static_cast<std::size_t>(message)].begin(),
                              places[static_cast<std::size_t>(message)].end(),
                              static_cast<float>(message));
                } else {
                    channel->expect(place(message));
                }
            }
            for (int message = 0; message < messages; ++message) {
                if (sends) {
                    channel->send(
                        {.micro_batch = message, .tensor = place(message), .available = {}});
                } else {
                    channel->receive();
                    EXPECT_EQ(places[static_cast<std::size_t>(message)].front(),
                              static_cast<float>(message));
                    EXPECT_EQ(places[static_cast<std::size_t>(message)].back(),
                              static_cast<float>(message) + numbers - 1);
                }
            }
            channel->settle();
            group.all_gather({});
        });
    }
}

TEST(NcclProcessGroup, AnAbortEndsTheWaitsOfAllOthers) {
    in_all(4, [](ProcessGroup& group) {
        introduce_to_all(group);
        if (group.index() == 2) {
            group.abort();
        } else {
            EXPECT_THROW(group.receive((group.index() + 1) % 4), ChannelClosed);
            EXPECT_THROW(group.all_gather({}, ProcessGroup::Lane::Norm), ChannelClosed);
        }
        EXPECT_EQ(group.all_gather({}).size(), 4U);  // there they agree on what has happened
    });
}

/// Process 0 passes them on.
TEST(NcclProcessGroup, StatusesReachAllOthers) {
    in_all(4, [](ProcessGroup& group) {
        group.post_status(bits(20, group.index()));
        std::set<int> heard;
        EXPECT_TRUE(comes_true([&] {
            while (const auto status = group.poll_status()) {
                EXPECT_TRUE(status->bytes == bits(20, status->from));
                EXPECT_FALSE(status->is_gone);
                heard.insert(status->from);
            }
            return heard.size() == 3;
        }));
        EXPECT_FALSE(heard.contains(group.index()));
        group.all_gather({});
        EXPECT_FALSE(group.poll_status().has_value());  // nobody has posted again
        group.all_gather({});
    });
}

TEST(NcclProcessGroup, ThatAProcessHasGoneReachesAllOthers) {
    for (const int gone : {0, 2}) {
        std::atomic<int> know = 0;
        in_all(3, [gone, &know](ProcessGroup& group) {
            if (group.index() == gone) {
                return;  // its ends break
            }
            EXPECT_TRUE(comes_true([&] {
                const auto status = group.poll_status();
                EXPECT_TRUE(!status || !status->is_gone || status->from == gone) << status->from;
                return status && status->is_gone;
            }));
            ++know;
            EXPECT_TRUE(comes_true([&] { return know == 2; }));
        });
    }
}

/// Of others nothing is known then, which speaks for none and against none.
TEST(NcclProcessGroup, WhereTheFirstIsSilentTheOthersAreNotTakenForIt) {
    std::atomic<bool> over = false;
    in_all(3, [&over](ProcessGroup& group) {
        if (group.index() == 0) {
            group.post_status(bits(1, 0));
            EXPECT_TRUE(comes_true([&] { return over.load(); }, 20s));
            return;
        }
        const auto begin = Clock::now();
        int heard = 0;
        while (Clock::now() - begin < 1s) {
            group.post_status(bits(1, group.index()));
            while (const auto status = group.poll_status()) {
                heard += status->from == 3 - group.index() ? 1 : 0;
            }
            std::this_thread::sleep_for(20ms);
        }
        EXPECT_GT(heard, 2);
        over = true;
    });
}

TEST(NcclProcessGroup, EndsWithoutTheOneThatDoesNotCome) {
    std::atomic<int> ended = 0;
    in_all(3, [&ended](ProcessGroup& group) {
        if (group.index() == 1) {
            EXPECT_TRUE(comes_true([&] { return ended == 2; }));
            return;
        }
        const auto begin = Clock::now();
        EXPECT_FALSE(group.final_barrier(bits(4, 1), 100ms).has_value());
        EXPECT_GE(Clock::now() - begin, 100ms);
        ++ended;
    });
}

TEST(NcclProcessGroup, NobodyWaitsForThoseWhoWillNeverAnswer) {
    in_all(2, [](ProcessGroup& group) {
        if (group.index() == 1) {
            group.mark_peer_lost();
            EXPECT_THROW(group.all_gather({}), ProcessLost);
            EXPECT_THROW(group.receive(0), ProcessLost);
            EXPECT_THROW(group.throw_if_aborted(), ProcessLost);
        }
    });
}

/// Once a training ended with "NCCL: remote process exited" in place of the name of the process
/// that was killed: the first who met a broken link was not yet waiting for anything.
TEST(NcclProcessGroup, BrokenLinksAreThatAProcessWasLost) {
    std::atomic<int> over = 0;
    in_all(3, [&over](ProcessGroup& group) {
        introduce_to_all(group);
        const auto channel = group.index() == 2 ? std::unique_ptr<Channel>()
                                                : group.open({.peer = 1 - group.index(),
                                                              .tag = 3,
                                                              .sends = group.index() == 0,
                                                              .capacity = {}});
        group.send((group.index() + 1) % 3, bits(3, 1));
        EXPECT_TRUE(group.receive((group.index() + 2) % 3) == bits(3, 1));
        group.all_gather({});
        if (group.index() == 1) {
            return;  // its ends break
        }
        std::thread monitor([&group] {
            EXPECT_TRUE(comes_true([&] {
                const auto status = group.poll_status();
                return status && status->is_gone;
            }));
            std::this_thread::sleep_for(50ms);
            group.mark_peer_lost();
        });
        EXPECT_THROW(group.all_gather({}), ProcessLost);
        EXPECT_THROW(group.all_gather({}, ProcessGroup::Lane::Norm), ProcessLost);
        if (group.index() == 0) {
            EXPECT_THROW(group.send(1, bits(3, 1)), ProcessLost);
            EXPECT_THROW(channel->send({.micro_batch = 0,
                                        .tensor = Tensor::detached(host_memory(), DType::F32, 1, 8),
                                        .available = {}}),
                         ProcessLost);
        } else {
            EXPECT_THROW(group.receive(1), ProcessLost);
        }
        EXPECT_FALSE(group.final_barrier(bits(4, 1), 5s).has_value());
        monitor.join();
        ++over;
        EXPECT_TRUE(comes_true([&] { return over == 2; }));
    });
}

}  // namespace nccl_process_group_test
}  // namespace pipetwin::exec
