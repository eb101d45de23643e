// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "exec/executor/process_place.h"
#include "exec/transport/common_clock.h"
#include "exec/transport/process_group.h"
#include "exec/transport/remote_sum.h"

namespace pipetwin::exec {
namespace local_process_group_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::byte> bytes{std::byte{7}, std::byte{0}};

TEST(LocalProcessGroup, IsOneProcessThatGathersItsOwn) {
    ProcessGroup& group = local_process_group();
    EXPECT_EQ(group.index(), 0);
    EXPECT_EQ(group.size(), 1);
    EXPECT_TRUE(group.is_alone());
    EXPECT_THAT(group.all_gather(bytes), ElementsAre(bytes));
    EXPECT_THAT(group.all_gather({}, ProcessGroup::Lane::Norm), ElementsAre(IsEmpty()));
    EXPECT_THAT(group.final_barrier(bytes, {}).value(), ElementsAre(bytes));
}

TEST(LocalProcessGroup, HearsOfNobodyAndIsNeverAborted) {
    ProcessGroup& group = local_process_group();
    group.post_status(bytes);
    EXPECT_FALSE(group.poll_status().has_value());
    group.abort();
    group.mark_peer_lost();
    EXPECT_NO_THROW(group.throw_if_aborted());
    EXPECT_NO_THROW(group.progress());
    const std::vector<int> members{0, 0};
    EXPECT_EQ(group.open_sum(members), nullptr);
    group.await_ends();
    group.finalize();
    EXPECT_THAT(group.all_gather(bytes), ElementsAre(bytes));
}

TEST(LocalProcessGroup, HasNoOtherToExchangeMessagesWith) {
    ProcessGroup& group = local_process_group();
    EXPECT_THROW(group.open({.peer = 1}), InternalError);
    EXPECT_THROW(group.send(1, bytes), InternalError);
    EXPECT_THROW(group.receive(1), InternalError);
}

TEST(LocalProcessGroup, HasTheClockOfItsProcess) {
    CommonClock clock;
    clock.ask(local_process_group());
    const TimePoint now = std::chrono::steady_clock::now();
    EXPECT_EQ(clock.common(now), now);
    EXPECT_FALSE(clock.is_old(now));
}

TEST(ProcessPlace, IsByDefaultThatOfAProcessAlone) {
    const ProcessPlace place;
    EXPECT_TRUE(place.group->is_alone());
    place.monitor->follow([] { return Position{.walk = 1}; });
    place.monitor->allow(std::chrono::seconds(1));
    EXPECT_THAT(place.monitor->positions(), IsEmpty());
    EXPECT_FALSE(place.monitor->lost().has_value());
    place.flight->note("what nobody keeps");
    place.flight->turn_to(0, 0, 0, {});
}

}  // namespace local_process_group_test
}  // namespace pipetwin::exec
