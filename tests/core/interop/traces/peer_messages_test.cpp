// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/peer_messages.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/torch_events.h"

namespace pipetwin {
namespace peer_messages_test {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace std::chrono_literals;

/// A send or receive of a rank, in microseconds.
struct End {
    bool is_send = false;
    int self = 0;
    int peer = 0;
    double begin = 0;
    double length = 0;
};

/// How a trace says what its kernels of messages are.
enum class Words { Ranges, Arguments, None };

TorchTrace trace_of(const std::vector<End>& ends, Words words, double skew = 0) {
    std::string events = R"({"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "ts": 1, )"
                         R"("dur": 1, "pid": 1, "tid": 1})";
    for (const End& end : ends) {
        const std::string times =
            fmt::format(R"("ts": {}, "dur": {})", 1000 + skew + end.begin, end.length);
        const std::string args =
            words != Words::Arguments
                ? "{}"
                : fmt::format(R"({{"Collective name": "{}", "Src Rank": {}, "Dst Rank": {}}})",
                              end.is_send ? "send" : "recv",
                              end.is_send ? end.self : end.peer,
                              end.is_send ? end.peer : end.self);
        events += fmt::format(R"(,{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", )"
                              R"("pid": 0, "tid": 20, {}, "args": {}}})",
                              times,
                              args);
        if (words == Words::Ranges) {
            events += fmt::format(
                R"(,{{"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:{} {}{}{}", )"
                R"("pid": 0, "tid": 20, {}}})",
                end.is_send ? "send" : "recv",
                end.self,
                end.is_send ? "->" : "<-",
                end.peer,
                times);
        }
    }
    const std::string text = "{\"traceEvents\": [" + events + "]}";
    TorchTrace trace;
    trace.peer_messages = peer_messages_of(parse_torch_events(text, "x", {}));
    return trace;
}

/// The first receive waits 8 us for its sender, the second send 5 us for its receiver: both
/// messages take 3 us. NCCL's kernels end together.
const std::vector<End> sender{{true, 0, 1, 10, 3}, {true, 0, 1, 20, 8}};
const std::vector<End> receiver{{false, 1, 0, 2, 11}, {false, 1, 0, 25, 3}};

TEST(PairedMessages, AMessageBeginsWhenBothItsEndsHave) {
    for (const Words words : {Words::Ranges, Words::Arguments, Words::None}) {
        const PairedMessages found =
            paired_messages({trace_of(sender, words), trace_of(receiver, words)});
        EXPECT_THAT(found.transfers, ElementsAre(3us, 3us));
        EXPECT_THAT(found.receives, ElementsAre(11us, 3us));
        EXPECT_THAT(found.notes, IsEmpty());
    }
}

/// Messages come back, too, so that a clock that is 40 us ahead is found.
TEST(PairedMessages, ClocksAreAligned) {
    std::vector<End> first = sender;
    first.push_back({false, 0, 1, 30, 13});
    std::vector<End> second = receiver;
    second.push_back({true, 1, 0, 40, 3});
    const PairedMessages found =
        paired_messages({trace_of(first, Words::Ranges), trace_of(second, Words::Ranges, 40)});
    EXPECT_THAT(found.transfers, SizeIs(3));
    EXPECT_THAT(found.transfers, Each(::testing::Le(11us)));
}

TEST(PairedMessages, ARankInTheMiddleHasTwoPeers) {
    const std::vector<End> middle{{false, 1, 0, 2, 11}, {true, 1, 2, 50, 4}, {false, 1, 0, 25, 3}};
    const PairedMessages found =
        paired_messages({trace_of(sender, Words::Arguments),
                         trace_of(middle, Words::Arguments),
                         trace_of({{false, 2, 1, 0, 54}}, Words::Arguments)});
    EXPECT_THAT(found.transfers, ElementsAre(3us, 3us, 4us));
    // Without names of their ends, a kernel could be of either side.
    EXPECT_THAT(paired_messages({trace_of(sender, Words::None),
                                 trace_of(middle, Words::None),
                                 trace_of({{false, 2, 1, 0, 54}}, Words::None)})
                    .transfers,
                IsEmpty());
}

TEST(PairedMessages, EndsThatAreMissingAreToldAndNotPaired) {
    const PairedMessages found = paired_messages(
        {trace_of(sender, Words::Ranges), trace_of({receiver.front()}, Words::Ranges)});
    EXPECT_THAT(found.transfers, IsEmpty());
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("2 sends and 1 receive do not pair")));
}

}  // namespace peer_messages_test
}  // namespace pipetwin
