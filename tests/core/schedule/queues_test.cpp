// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/queues.h"

#include <map>
#include <utility>

#include <gmock/gmock.h>

#include "core/schedule/edge.h"
#include "core/schedule/lower.h"
#include "core/schedule/torch_rows.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"

namespace pipetwin {
namespace queues_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::row_text;
using testing::schedule_of;
using ::testing::SizeIs;

std::vector<testing::ShapedSchedule> schedules() {
    return testing::every_schedule({1, 2, 3, 4}, {1, 2, 3}, {1, 2, 3, 4, 5, 8});
}

/// The messages between two ranks as each of the two has them in its row, both ways together; a
/// receive by the name of its send.
using Conversation = std::pair<std::vector<Action>, std::vector<Action>>;

std::map<std::pair<int, int>, Conversation> conversations(const Schedule& schedule) {
    std::map<std::pair<int, int>, Conversation> found;
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
        for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
            if (!is_message(action.op)) {
                continue;
            }
            const int peer = schedule.rank_of_stage[static_cast<std::size_t>(peer_stage(action))];
            const Action sent = is_send(action.op) ? action : other_end(action);
            Conversation& between = found[std::minmax(rank, peer)];
            (rank < peer ? between.first : between.second).push_back(sent);
        }
    }
    return found;
}

/// Then NCCL cannot hang, which has one stream of messages for two ranks, and takes both ends of a
/// message at once.
TEST(ReceiveInOrderOfSends, AnyTwoRanksHaveTheirMessagesInOneOrder) {
    for (const auto& [kind, shape] : schedules()) {
        const Schedule compute = generate(kind, shape);
        const Schedule rows =
            receive_in_order_of_sends(add_communication(compute, RecomputeTiming::Eager));
        EXPECT_EQ(compute_only(rows), compute);
        for (const auto& [ranks, between] : conversations(rows)) {
            EXPECT_EQ(between.first, between.second) << testing::to_string({kind, shape});
        }
        for (const MessageQueues queues : {MessageQueues::PerStages, MessageQueues::PerRanks}) {
            EXPECT_THAT(validate(rows, queues), IsEmpty()) << testing::to_string({kind, shape});
            EXPECT_EQ(smallest_capacity(rows, queues), 0) << testing::to_string({kind, shape});
        }
    }
}

/// Of two ranks that end something at once the lower one is first.
TEST(ReceiveInOrderOfSends, AReceiveStandsWhereItsMessageIsSentInUnitTime) {
    const Schedule rows = receive_in_order_of_sends(
        add_communication(generate(ScheduleKind::OneFOneB, {.ranks = 2, .micro_batches = 2}),
                          RecomputeTiming::Eager));
    EXPECT_EQ(row_text(rows, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
    EXPECT_EQ(row_text(rows, 1), "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1");
}

TEST(ReceiveInOrderOfSends, SkipMessagesHaveTheirPlacesToo) {
    Schedule compute = generate(ScheduleKind::OneFOneB, {.ranks = 4, .micro_batches = 3});
    compute.skips = {{.from = 0, .to = 3}};
    const Schedule rows = receive_in_order_of_sends(
        add_communication(add_recompute(compute, Recompute::Always), RecomputeTiming::Lazy));
    EXPECT_THAT(validate(rows, MessageQueues::PerRanks), IsEmpty());
    EXPECT_EQ(smallest_capacity(rows, MessageQueues::PerRanks), 0);
}

TEST(ReceiveInOrderOfSends, RowsThatDeadlockKeepTheirActions) {
    const Schedule crossed = add_communication(schedule_of({"0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"}),
                                               RecomputeTiming::Eager);
    const Schedule rows = receive_in_order_of_sends(crossed);
    EXPECT_EQ(compute_only(rows), compute_only(crossed));
    EXPECT_FALSE(find_deadlock(rows, std::nullopt).deadlock_free);
}

/// PyTorch trained these rows with gradients of other stages' tensors, 2,900 times off.
TEST(OneQueuePerRanks, RefusesRowsThatNeedAQueueForEachPairOfStages) {
    const Schedule rows =
        testing::lowered(ScheduleKind::ZbV, {.ranks = 2, .chunks = 2, .micro_batches = 3});
    EXPECT_THAT(validate(rows), IsEmpty());
    const std::vector<Violation> found = validate(rows, MessageQueues::PerRanks);
    ASSERT_FALSE(found.empty());
    EXPECT_THAT(found[0].why, HasSubstr("order mismatch"));
    EXPECT_THAT(found[0].why, HasSubstr("are one queue"));
    EXPECT_THAT(found[0].mend, HasSubstr("'s sends"));
}

TEST(OneQueuePerRanks, NamesTheReceiveAndTheSendThatItWouldTake) {
    // Rank 0 sends 0F0's output, then 2B0's gradient; rank 1 takes them the other way round.
    const Schedule rows = schedule_of({"0F0 0SEND_F0 2RECV_F0 2F0 2B0 2SEND_B0 0RECV_B0 0B0",
                                       "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0"});
    EXPECT_THAT(validate(rows, MessageQueues::PerRanks), IsEmpty());
    Schedule turned = rows;
    std::swap(turned.ranks[1][0], turned.ranks[1][3]);
    const std::vector<Violation> found = validate(turned, MessageQueues::PerRanks);
    const auto mismatch = std::ranges::find_if(
        found, [](const Violation& v) { return v.why.starts_with("causes an order mismatch"); });
    ASSERT_NE(mismatch, found.end());
    EXPECT_EQ(mismatch->action, "1RECV_B0");
    EXPECT_THAT(mismatch->why,
                HasSubstr("it is receive 0 from rank 0, but send 0 of rank 0 to rank 1 is 0SEND_F0 "
                          "(cell 1)"));
}

/// Two ranks with two chunks each have three pairs of stages between them.
TEST(OneQueuePerRanks, RoomIsSharedByAllStagesOfTwoRanks) {
    for (int m = 4; m <= 8; m += 2) {
        const Schedule rows = testing::lowered(ScheduleKind::Interleaved1F1B,
                                               {.ranks = 2, .chunks = 2, .micro_batches = m});
        EXPECT_THAT(validate(rows, MessageQueues::PerRanks), IsEmpty());
        EXPECT_EQ(smallest_capacity(rows), 1);
        EXPECT_EQ(smallest_capacity(rows, MessageQueues::PerRanks), 2);
    }
}

// --- Rows for PyTorch. ---

TEST(TorchRows, EveryStageReducesOnceBehindItsLastBackward) {
    for (const auto& [kind, shape] : schedules()) {
        const Schedule compute = generate(kind, shape);
        const Schedule rows = torch_rows(compute).schedule;
        EXPECT_EQ(compute_only(rows), compute);
        std::map<int, std::size_t> reductions;
        for (const auto& row : rows.ranks) {
            std::map<int, std::size_t> last;
            for (std::size_t cell = 0; cell < row.size(); ++cell) {
                const Action& action = row[cell];
                if (action.op == Op::Backward || action.op == Op::BackwardWeight) {
                    EXPECT_FALSE(reductions.contains(action.stage));
                } else if (action.op == Op::ReduceGradient) {
                    EXPECT_TRUE(reductions.emplace(action.stage, cell).second);
                }
            }
        }
        EXPECT_THAT(
            reductions,
            SizeIs(is_forward_only(compute) ? std::size_t{0} : compute.rank_of_stage.size()));
    }
}

TEST(TorchRows, MessagesThatNeedNoRoomStayWhereTheyAre) {
    const Schedule rows = schedule_of({"0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"});
    const TorchRows kept = torch_rows(rows);
    EXPECT_FALSE(kept.reordered);
    EXPECT_EQ(row_text(kept.schedule, 0), "0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD");
    EXPECT_EQ(row_text(kept.schedule, 1), "1RECV_F0 1F0 1B0 1REDUCE_GRAD 1SEND_B0");
    EXPECT_EQ(torch_rows(kept.schedule).schedule, kept.schedule);
}

TEST(TorchRows, MessagesOfAQueueForEachPairOfStagesAreOrderedAnew) {
    const ScheduleShape shape{.ranks = 2, .chunks = 2, .micro_batches = 3};
    const TorchRows rows = torch_rows(add_optimizer(testing::lowered(ScheduleKind::ZbV, shape)));
    EXPECT_TRUE(rows.reordered);
    EXPECT_EQ(rows.schedule, torch_rows(generate(ScheduleKind::ZbV, shape)).schedule);
}

}  // namespace queues_test
}  // namespace pipetwin
