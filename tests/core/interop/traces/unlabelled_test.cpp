// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/unlabelled.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/torch_trace.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace unlabelled_test {

using namespace std::chrono_literals;
using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Kernels of a rank that runs one after the other what it is told to, in microseconds.
class Kernels {
  public:
    /// Names of the kernels of a forward and of a backward; each of them takes 5 us.
    std::vector<std::string> forward{"gemm", "softmax"};
    std::vector<std::string> backward{"softmax_b", "gemm_b1", "gemm_b2", "gemm_b3"};
    bool with_launches = false;
    std::string message = "ncclDevKernel_SendRecv";

    Kernels& f() { return compute(forward, 1); }
    Kernels& b() { return compute(backward, 2); }
    Kernels& optimizer() { return compute({"multi_tensor_apply_kernel"}, 1); }

    /// A message that the rank waits for.
    Kernels& wait(double length) {
        launch(3);
        add(message, now_, length, 20);
        now_ += length;
        return *this;
    }

    /// A message that goes on while the rank computes.
    Kernels& send(double length) {
        launch(3);
        add(message, now_, length, 20);
        return *this;
    }

    TraceEvents events() const { return events_; }

  private:
    Kernels& compute(const std::vector<std::string>& names, int thread) {
        for (const std::string& name : names) {
            launch(thread);
            add(name, now_, 5, 7);
            now_ += 5;
        }
        return *this;
    }

    void launch(int thread) {
        if (with_launches) {
            launched_ += 1;
            events_.launches.push_back({.correlation = count_ + 1,
                                        .lane = lane(false, thread),
                                        .begin = microseconds(launched_)});
        }
    }

    void add(const std::string& name, double begin, double length, int stream) {
        const auto known =
            std::find(events_.kernel_names.begin(), events_.kernel_names.end(), name);
        const auto index = known - events_.kernel_names.begin();
        if (known == events_.kernel_names.end()) {
            events_.kernel_names.push_back(name);
        }
        ++count_;
        events_.has_kernels = true;
        events_.kernels.push_back({.lane = lane(true, stream),
                                   .name = static_cast<int>(index),
                                   .work = kernel_work(name, ""),
                                   .begin = microseconds(begin),
                                   .length = microseconds(length),
                                   .correlation = count_});
    }

    static Duration microseconds(double value) {
        return Duration{static_cast<std::int64_t>(value * 1000)};
    }

    int lane(bool on_device, int number) {
        const std::string name = fmt::format("{}", number);
        for (std::size_t i = 0; i < events_.lanes.size(); ++i) {
            if (events_.lanes[i].name == name && events_.lanes[i].on_device == on_device) {
                return static_cast<int>(i);
            }
        }
        events_.lanes.push_back({.name = name, .on_device = on_device});
        return static_cast<int>(events_.lanes.size()) - 1;
    }

    TraceEvents events_;
    double now_ = 1;
    double launched_ = 0;
    std::int64_t count_ = 0;
};

/// 1F1B of a rank in the middle: two forwards ahead, then one of each in turn.
Kernels& middle_rank(Kernels& kernels) {
    kernels.wait(30).f().send(2.5).wait(11).f().send(2.5);
    for (int i = 0; i < 4; ++i) {
        kernels.wait(13).b().send(2.5).wait(9).f().send(2.5);
    }
    kernels.wait(13).b().send(2.5).wait(13).b().send(2.5);
    return kernels.optimizer();
}

/// GPipe on the last rank, where no message stands between the last forward and its backward.
Kernels& last_rank(Kernels& kernels) {
    kernels.wait(30).f().wait(7).f().wait(7).f().wait(7).f();
    return kernels.b().send(2.5).b().send(2.5).b().send(2.5).b().send(2.5).optimizer();
}

/// 1F1B of the first rank, where no message stands between a backward and the next forward.
Kernels& first_rank(Kernels& kernels) {
    kernels.f().send(2.5).f().send(2.5).f().send(2.5);
    for (int i = 0; i < 3; ++i) {
        kernels.wait(13).b().f().send(2.5);
    }
    return kernels.wait(13).b().wait(13).b().wait(13).b().optimizer();
}

void expect_stages(const KernelStages& found,
                   std::size_t count,
                   Duration forward,
                   Duration backward) {
    EXPECT_EQ(found.problem, "");
    EXPECT_THAT(found.forward, SizeIs(count));
    EXPECT_THAT(found.backward, SizeIs(count));
    EXPECT_THAT(found.forward, Each(forward));
    EXPECT_THAT(found.backward, Each(backward));
}

TEST(StagesOfKernels, ThreadsThatLaunchTellForwardFromBackward) {
    for (auto* const rank : {&first_rank, &middle_rank, &last_rank}) {
        Kernels kernels;
        kernels.with_launches = true;
        const KernelStages found = stages_of_kernels(rank(kernels).events());
        expect_stages(found, rank == &last_rank ? 4 : 6, 10us, 20us);
        EXPECT_THAT(found.how, HasSubstr("threads"));
    }
}

TEST(StagesOfKernels, NamesTellForwardFromBackward) {
    for (auto* const rank : {&first_rank, &middle_rank, &last_rank}) {
        Kernels kernels;
        kernels.backward = {"softmax_backward", "gemm", "gemm", "gemm"};
        const KernelStages found = stages_of_kernels(rank(kernels).events());
        expect_stages(found, rank == &last_rank ? 4 : 6, 10us, 20us);
        EXPECT_THAT(found.how, HasSubstr("names"));
    }
}

TEST(StagesOfKernels, SequencesTellForwardFromBackward) {
    for (auto* const rank : {&first_rank, &middle_rank, &last_rank}) {
        Kernels kernels;
        const KernelStages found = stages_of_kernels(rank(kernels).events());
        expect_stages(found, rank == &last_rank ? 4 : 6, 10us, 20us);
        EXPECT_THAT(found.how, HasSubstr("sequences"));
    }
}

TEST(StagesOfKernels, LengthsTellForwardFromBackward) {
    Kernels kernels;
    kernels.forward = {"gemm"};
    kernels.backward = {"gemm", "gemm", "gemm"};
    TraceEvents events = middle_rank(kernels).events();
    // One kernel each: the three of a backward become one that is as long.
    std::vector<TraceKernel> merged;
    for (const TraceKernel& kernel : events.kernels) {
        const bool follows = !merged.empty() && merged.back().lane == kernel.lane &&
                             merged.back().name == kernel.name &&
                             merged.back().end() == kernel.begin;
        if (follows) {
            merged.back().length += kernel.length;
        } else {
            merged.push_back(kernel);
        }
    }
    events.kernels = merged;
    const KernelStages found = stages_of_kernels(events);
    expect_stages(found, 6, 5us, 15us);
    EXPECT_THAT(found.how, HasSubstr("lengths"));
}

// With recompute a backward begins as a forward does.
TEST(StagesOfKernels, ABackwardThatRecomputesIsOneBackward) {
    for (auto* const rank : {&first_rank, &middle_rank}) {
        Kernels kernels;
        kernels.backward.insert(
            kernels.backward.begin(), kernels.forward.begin(), kernels.forward.end());
        expect_stages(stages_of_kernels(rank(kernels).events()), 6, 10us, 30us);
    }
}

// Medians of pieces of which some are two actions would be wrong without a word.
TEST(StagesOfKernels, FarFewerOfOneKindAreRefused) {
    Kernels kernels;
    kernels.wait(30).f().send(2.5);
    for (int i = 0; i < 4; ++i) {
        kernels.wait(13).b().send(2.5);
    }
    EXPECT_THAT(stages_of_kernels(kernels.events()).problem, HasSubstr("expected as many of each"));
}

TEST(StagesOfKernels, OtherVendorsMessagesCutAsWell) {
    for (const std::string_view message :
         {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
          "void oneccl::sendrecv_kernel<float>",
          "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"}) {
        Kernels kernels;
        kernels.message = message;
        expect_stages(stages_of_kernels(middle_rank(kernels).events()), 6, 10us, 20us);
    }
}

TEST(StagesOfKernels, WithoutMessagesOrDifferencesItSaysSo) {
    Kernels alone;
    const KernelStages single = stages_of_kernels(alone.f().b().events());
    EXPECT_FALSE(single.has_messages);
    EXPECT_THAT(single.problem, HasSubstr("no kernel sends or receives"));
    Kernels alike;
    alike.backward = alike.forward;
    const KernelStages same = stages_of_kernels(middle_rank(alike).events());
    EXPECT_THAT(same.problem, HasSubstr("cannot be told apart"));
    const Error error = error_of([&] { torch_trace(middle_rank(alike).events(), "rank1.json"); });
    EXPECT_THAT(error.text(), HasSubstr("cannot be told apart"));
    EXPECT_THAT(error.hint(), HasSubstr("--forward"));
}

TEST(StagesOfKernels, MicroBatchesOfAStepAreNumberedWhereTheOptimizerEndsIt) {
    Kernels kernels;
    middle_rank(kernels);
    const KernelStages found = stages_of_kernels(middle_rank(kernels).events());
    std::vector<std::string> order;
    for (const TraceRange& range : found.ranges) {
        order.push_back(
            fmt::format("{}{}", op_text(range.action.op), range.action.micro_batch.value_or(-1)));
    }
    const std::vector<std::string> step{
        "F0", "F1", "B0", "F2", "B1", "F3", "B2", "F4", "B3", "F5", "B4", "B5"};
    std::vector<std::string> steps = step;
    steps.insert(steps.end(), step.begin(), step.end());
    EXPECT_EQ(order, steps);
    Kernels without;
    const KernelStages unnumbered =
        stages_of_kernels(without.wait(30).f().send(2.5).wait(13).b().send(2.5).events());
    EXPECT_EQ(unnumbered.ranges.front().action.micro_batch, std::nullopt);
}

TEST(StagesOfKernels, BecomeTheRanksOnlyStage) {
    Kernels kernels;
    const TorchTrace found = torch_trace(middle_rank(kernels).events(), "x");
    EXPECT_TRUE(found.is_unlabelled);
    EXPECT_THAT(found.stages.at(own_stage).forward, Each(10us));
    ASSERT_THAT(found.notes, SizeIs(1));
    EXPECT_THAT(found.notes[0], HasSubstr("6 forwards and 6 backwards of one stage"));
}

TEST(KernelWork, IsToldByTheName) {
    EXPECT_EQ(kernel_work("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", ""),
              KernelWork::Collective);
    EXPECT_EQ(kernel_work("ncclDevKernel_SendRecv(x)", ""), KernelWork::PointToPoint);
    // An all-to-all runs as sends and receives; the trace says what it is.
    EXPECT_EQ(kernel_work("ncclDevKernel_SendRecv(x)", "all_to_allv"), KernelWork::Collective);
    EXPECT_EQ(kernel_work("ncclDevKernel_SendRecv(x)", "recv"), KernelWork::Receive);
    EXPECT_EQ(kernel_work("ncclDevKernel_Generic_2(x)", ""), KernelWork::Communication);
    EXPECT_EQ(kernel_work("ncclDevKernel_Generic_2(x)", "send"), KernelWork::Send);
    EXPECT_EQ(kernel_work("void at::native::vectorized_elementwise_kernel<4>", ""),
              KernelWork::Compute);
    EXPECT_FALSE(is_named_optimizer("elementwise_kernel<at::native::lambda(int)>"));
    EXPECT_TRUE(is_named_optimizer("void at::native::multi_tensor_apply_kernel<>"));
    EXPECT_TRUE(is_named_backward("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"));
}

}  // namespace unlabelled_test
}  // namespace pipetwin
