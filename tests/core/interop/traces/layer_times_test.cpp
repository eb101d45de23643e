// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/layer_times.h"

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "core/interop/traces/torch_events.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace layer_times_test {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr int python = 1;    ///< the thread of the training loop
constexpr int autograd = 2;  ///< the thread that runs backwards
constexpr int stream = 7;

/// Events of a trace; times are microseconds.
class Events {
  public:
    Events& range(std::string_view name, int thread, double begin, double length) {
        return add("user_annotation", name, thread, begin, length, "");
    }
    /// An operator of a forward where `forward_thread` is 0.
    Events& op(int thread, double begin, double length, int sequence, int forward_thread = 0) {
        return add(
            "cpu_op",
            forward_thread == 0 ? "aten::addmm" : "autograd::engine::evaluate_function: X",
            thread,
            begin,
            length,
            fmt::format(R"("Fwd thread id": {}, "Sequence number": {})", forward_thread, sequence));
    }
    /// A call at a time, and the kernel that it launches.
    Events& kernel(int thread, double called, double begin, double length) {
        const std::string id = fmt::format(R"("correlation": {})", ++launched_);
        add("cuda_runtime", "cudaLaunchKernel", thread, called, 0.1, id);
        return add("kernel", "gemm", stream, begin, length, id);
    }

    std::string text() const {
        return fmt::format(R"({{"traceEvents": [{}]}})", fmt::join(events_, ",\n"));
    }

    LayerTimes times(const std::vector<LayerRanges>& ranges) const {
        return layer_times(parse_torch_events(text(), "rank0.json", layer_range_names(ranges)),
                           "rank0.json",
                           ranges);
    }

  private:
    Events& add(std::string_view category,
                std::string_view name,
                int thread,
                double begin,
                double length,
                const std::string& args) {
        events_.push_back(fmt::format(
            R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
            category,
            name,
            thread,
            begin,
            length,
            args));
        return *this;
    }

    std::vector<std::string> events_;
    int launched_ = 0;
};

/// Two blocks of attention (node 10, 12) and a feed-forward half (11, 13), forward at 0, backward
/// from 100 on in the other order. Kernels: forward 3 and 5, backward 6 and 9.
Events two_blocks() {
    Events events;
    for (int block = 0; block < 2; ++block) {
        const double at = 20.0 * block;
        const std::string name = fmt::format("block{}.", block);
        events.range(name + "attn", python, at, 8).op(python, at + 1, 2, 10 + 2 * block);
        events.kernel(python, at + 2, at + 5, 3);
        events.range(name + "mlp", python, at + 10, 8).op(python, at + 11, 2, 11 + 2 * block);
        events.kernel(python, at + 12, at + 13, 5);
    }
    for (int block = 1; block >= 0; --block) {
        const double at = 100.0 + 40.0 * (1 - block);
        events.op(autograd, at, 8, 11 + 2 * block, 1).kernel(autograd, at + 2, at + 3, 9);
        events.op(autograd, at + 20, 8, 10 + 2 * block, 1).kernel(autograd, at + 22, at + 23, 6);
    }
    return events;
}

const std::vector<LayerRanges> halves{{"attention", "*.attn"}, {"feed_forward", "*.mlp"}};

TEST(LayerTimes, BackwardsAreTheWorkOfTheNodesThatForwardsMade) {
    const LayerTimes times = two_blocks().times(halves);
    ASSERT_EQ(times.kinds.size(), 2U);
    EXPECT_EQ(times.kinds[0].kind, "attention");
    EXPECT_THAT(times.kinds[0].forward, ElementsAre(3us, 3us));
    EXPECT_THAT(times.kinds[0].backward, ElementsAre(6us, 6us));
    EXPECT_THAT(times.kinds[1].forward, ElementsAre(5us, 5us));
    EXPECT_THAT(times.kinds[1].backward, ElementsAre(9us, 9us));
    EXPECT_TRUE(times.on_gpu);
    EXPECT_FALSE(times.only_launches);
    EXPECT_THAT(points_of(times, 4),
                ElementsAre(CalibrationPoint{"attention", 4, 3us, 6us},
                            CalibrationPoint{"feed_forward", 4, 5us, 9us}));
}

/// An operator that makes no node has the number of the next one: the last one with a number made
/// it.
TEST(LayerTimes, ANodeIsOfTheLastOperatorWithItsNumber) {
    Events events = two_blocks();
    events.op(python, 7, 0.5, 11);  // the end of block0.attn: it makes no node
    EXPECT_THAT(events.times(halves).kinds[0].backward, ElementsAre(6us, 6us));
}

/// A checkpointed block computes its forward again on autograd's thread, in the middle of its first
/// backward: forwards count as such, and are no part of a backward.
TEST(LayerTimes, ForwardsThatAreComputedAgainAreNoBackward) {
    Events events;
    events.range("block0.attn", python, 0, 8).op(python, 1, 2, 10).kernel(python, 2, 5, 3);
    events.range("block0.mlp", python, 10, 8).op(python, 11, 2, 11).kernel(python, 12, 13, 5);
    events.op(autograd, 100, 30, 11, 1);
    events.range("block0.attn", autograd, 101, 8).op(autograd, 102, 2, 3);
    events.kernel(autograd, 103, 110, 3);
    events.range("block0.mlp", autograd, 111, 8).op(autograd, 112, 2, 4);
    events.kernel(autograd, 113, 113, 5).kernel(autograd, 121, 122, 9);
    events.op(autograd, 140, 8, 10, 1).kernel(autograd, 142, 143, 6);
    const LayerTimes times = events.times(halves);
    EXPECT_THAT(times.kinds[0].forward, ElementsAre(3us, 3us));
    EXPECT_THAT(times.kinds[0].backward, ElementsAre(6us));
    EXPECT_THAT(times.kinds[1].forward, ElementsAre(5us, 5us));
    EXPECT_THAT(times.kinds[1].backward, ElementsAre(9us));
}

TEST(LayerTimes, BackwardsMayHaveNamesOfTheirOwn) {
    Events events = two_blocks();
    events.range("block1.attn.backward", autograd, 121, 9);
    const LayerTimes times =
        events.times({{"attention", "*.attn", "*.attn.backward"}, {"feed_forward", "*.mlp"}});
    EXPECT_THAT(times.kinds[0].backward, ElementsAre(6us));
    EXPECT_THAT(times.kinds[1].backward, ElementsAre(9us, 9us));
}

/// Without kernels the times are those of the host: from the first operator of a node to the last.
TEST(LayerTimes, WithoutKernelsTheHostCounts) {
    Events events;
    events.range("layer", python, 0, 8).op(python, 1, 2, 10).op(python, 4, 2, 11);
    events.op(python, 20, 3, 11, 1).op(python, 24, 6, 10, 1);
    const LayerTimes times = events.times({{"block", "layer"}});
    EXPECT_FALSE(times.on_gpu);
    EXPECT_THAT(times.kinds[0].forward, ElementsAre(8us));
    EXPECT_THAT(times.kinds[0].backward, ElementsAre(10us));
}

/// The backward operator of 40 microseconds contains two forwards of a checkpointed block that are
/// computed again, of 8 and of 10: 22 are left for the backward.
TEST(LayerTimes, WithoutKernelsForwardsThatAreComputedAgainAreNoBackward) {
    Events events;
    events.range("h.0.attn", python, 0, 8).op(python, 1, 2, 10);
    events.range("h.0.mlp", python, 10, 9).op(python, 11, 2, 11);
    events.op(python, 100, 40, 11, 1);
    events.range("h.0.attn", python, 105, 8).range("h.0.mlp", python, 115, 10);
    events.op(python, 141, 12, 10, 1);
    const LayerTimes times = events.times(halves);
    EXPECT_THAT(times.kinds[1].backward, ElementsAre(22us));
    EXPECT_THAT(times.kinds[0].backward, ElementsAre(12us));
}

TEST(LayerTimes, WhatIsNotInTheTraceIsRefused) {
    const auto refused = [](const Events& events, const std::vector<LayerRanges>& ranges) {
        return error_of([&] { events.times(ranges); });
    };
    const Error forward = refused(two_blocks(), {{"attention", "*.attn"}, {"head", "head"}});
    EXPECT_EQ(forward.kind(), ErrorKind::BadInput);
    EXPECT_EQ(forward.place(), "rank0.json");
    EXPECT_THAT(forward.text(), HasSubstr("'head'"));
    EXPECT_THAT(refused(two_blocks(), {{"attention", "*.attn", "nothing"}}).text(),
                HasSubstr("'nothing', the backward of kind 'attention'"));
    Events unnumbered;
    unnumbered.range("a", python, 0, 1);
    EXPECT_THAT(refused(unnumbered, {{"block", "a"}}).text(), HasSubstr("Sequence number"));
    EXPECT_THAT(refused(unnumbered, {{"block", "a"}}).hint(), HasSubstr("--backward 'block="));
    // Numbered anew on a thread of its own.
    Events reentrant = two_blocks();
    reentrant.op(autograd, 300, 2, 11, 2);
    EXPECT_THAT(refused(reentrant, halves).text(), HasSubstr("2 threads"));
}

TEST(LayerTimes, PatternsThatAreNoneAreRefused) {
    const auto refused = [](const std::vector<LayerRanges>& ranges) {
        return error_of([&] { layer_range_names(ranges); });
    };
    EXPECT_EQ(refused({{"a", "x"}, {"a", "y"}}).kind(), ErrorKind::Usage);
    EXPECT_THAT(refused({{"a", "x"}, {"a", "y"}}).text(), HasSubstr("twice"));
    EXPECT_THAT(refused({{"a", "{stage} x"}}).text(), HasSubstr("{stage}"));
    EXPECT_THAT(refused({{"a", ""}}).text(), HasSubstr("empty"));
}

}  // namespace layer_times_test
}  // namespace pipetwin
