// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "exec/executor/executor.h"
#include "exec/transport/byte_message.h"
#include "exec/transport/process_group.h"
#include "exec/transport/remote_sum.h"
#include "tests/support/small_training.h"

/// The channels that a process opens to others. Each is a communicator of its own where messages go
/// from GPU to GPU.
namespace pipetwin::exec {
namespace remote_edges_test {

using test::Shape;

/// One process of several that have a rank each. It notes which channels are opened, and answers
/// for the others what they are asked while an executor is made.
class NotingGroup final : public ProcessGroup {
  public:
    NotingGroup(int index, int size) : index_(index), size_(size) {}

    std::vector<RemoteEnd> ends;  ///< in the order in which they were opened

    int index() const override { return index_; }
    int size() const override { return size_; }
    std::unique_ptr<Channel> open(const RemoteEnd& end) override {
        ends.push_back(end);
        return make_local_channel(end.capacity);
    }
    std::unique_ptr<RemoteSum> open_sum(std::span<const int> /*members*/) override { return {}; }
    std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                   Lane /*lane*/) override {
        std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_));
        for (std::vector<std::byte>& one : all) {
            one.assign(mine.begin(), mine.end());
        }
        return all;
    }
    void send(int /*to*/, std::span<const std::byte> /*bytes*/) override {}
    std::vector<std::byte> receive(int /*from*/) override {
        ByteWriter time;
        time.put(std::int64_t{0});
        return {time.bytes().begin(), time.bytes().end()};
    }
    void progress() override {}
    void throw_if_aborted() override {}
    void abort() noexcept override {}
    void mark_peer_lost() noexcept override {}
    void post_status(std::span<const std::byte> /*bytes*/) override {}
    std::optional<Status> poll_status() override { return std::nullopt; }
    std::optional<std::vector<std::vector<std::byte>>> final_barrier(
        std::span<const std::byte> last_words, Duration /*patience*/) override {
        return all_gather(last_words, Lane::Control);
    }
    void finalize() noexcept override {}

  private:
    int index_;
    int size_;
};

/// Layers of one width. With the first two in one stage, and each other one in its own, an output
/// goes from the first stage to the third.
Model with_one_skip() {
    const auto linear = [](const std::string& name) {
        return LayerSpec{.name = name, .type = LayerType::Linear, .outputs = 6};
    };
    return Model::graph({.positions = 1, .width = 6},
                        {linear("skipped"),
                         linear("a"),
                         linear("b"),
                         {.name = "c", .type = LayerType::Add, .inputs = {"skipped", "b"}},
                         linear("d"),
                         {.name = "loss", .type = LayerType::CrossEntropy}});
}

/// Two stages that exchange messages have a channel in each direction, whether they are neighbours
/// or not; two that exchange none have no channel.
TEST(RemoteEdges, AreOneForEachPairOfStagesThatExchangesMessagesAndForEachDirection) {
    const Model model = with_one_skip();
    const Shape shape{.stages = 5, .schedule = "1f1b", .partition = std::vector{2, 1, 1, 1, 1}};
    const Plan plan = test::plan_of(model, shape);
    const std::set<std::pair<int, int>> pairs{{0, 1}, {0, 2}, {1, 2}, {2, 3}, {3, 4}};
    std::set<std::pair<int, int>> tags;  // tag, sender
    for (int rank = 0; rank < 5; ++rank) {
        NotingGroup group(rank, 5);
        ExecutorOptions options = test::options_of(shape);
        options.place.group = &group;
        const Executor executor(plan, model, options);
        std::multiset<std::pair<int, int>> expected;  // sender, receiver
        for (const auto& [from, to] : pairs) {
            if (from == rank || to == rank) {
                expected.insert({from, to});
                expected.insert({to, from});
            }
        }
        std::multiset<std::pair<int, int>> opened;
        for (const RemoteEnd& end : group.ends) {
            opened.insert(end.sends ? std::pair(rank, end.peer) : std::pair(end.peer, rank));
            if (end.sends) {
                EXPECT_TRUE(tags.insert({end.tag, rank}).second) << "rank " << rank;
            }
        }
        EXPECT_EQ(opened, expected) << "rank " << rank;
    }
    EXPECT_EQ(tags.size(), 2 * pairs.size());
}

}  // namespace remote_edges_test
}  // namespace pipetwin::exec
