// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/autograd_stages.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/torch_trace.h"
#include "tests/support/error_of.h"

/// Traces without names of ranges, as PyTorch's Schedule1F1B leaves them: operators with the
/// numbers of the nodes that they make, and nodes with their own.
namespace pipetwin {
namespace autograd_stages_test {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace std::chrono_literals;

/// The trace of one rank, built action by action, each behind the one before. A forward has two
/// operators of 5 us, each with another inside, and records two nodes of autograd; a backward runs
/// these, 10 us each.
class Rank {
  public:
    Rank& forward() {
        begins_.push_back(number_);
        for (int i = 0; i < 2; ++i) {
            add("cpu_op", "aten::linear", 5, 1, numbered(number_, 0));
            add_inside("aten::addmm", numbered(number_, 0));
            ++number_;
        }
        return *this;
    }

    /// The backward of the i-th forward.
    Rank& backward(std::size_t i, int thread = 1) {
        for (int node = 1; node >= 0; --node) {
            add("cpu_op",
                "autograd::engine::evaluate_function: AddmmBackward0",
                10,
                thread,
                numbered(begins_.at(i) + node, 1));
        }
        return *this;
    }

    Rank& send() { return add("cpu_op", "c10d::send", 2, 1, numbered(number_, 0)); }

    /// A receive, and the wait for it.
    Rank& receive(double wait = 50) {
        add("cpu_op", "c10d::recv_", 2, 1, numbered(number_, 0));
        now_ += wait;
        return *this;
    }

    /// Operators outside of the graph, with the number of the node that is made next.
    Rank& scale_gradients() { return add("cpu_op", "aten::div_", 7, 1, numbered(number_, 0)); }

    Rank& optimizer() {
        const double begin = now_;
        add("cpu_op", "aten::add_", 30, 1, numbered(number_, 0));
        now_ = begin;
        return add("user_annotation", "Optimizer.step#AdamW.step", 40, 1, "{}");
    }

    /// A step of the loop, from the end of the last one until now.
    Rank& end_step() {
        const double end = now_;
        now_ = step_begin_;
        add("user_annotation", fmt::format("ProfilerStep#{}", step_++), end - step_begin_, 1, "{}");
        step_begin_ = now_;
        return *this;
    }

    Rank& range(std::string_view name, double begin, double length) {
        const double now = now_;
        now_ = begin;
        add("user_annotation", name, length, 1, "{}");
        now_ = now;
        return *this;
    }

    Rank& begin_recording() {
        events_.clear();
        return *this;
    }

    double now() const { return now_; }

    std::string text() const {
        return fmt::format(
            R"({{"distributedInfo": {{"rank": 0, "world_size": 1}}, "traceEvents": [{}]}})",
            events_);
    }
    TorchTrace read() const { return parse_torch_trace(text(), "rank0.json"); }

  private:
    static std::string numbered(int number, int forward_thread) {
        return fmt::format(
            R"({{"Sequence number": {}, "Fwd thread id": {}}})", number, forward_thread);
    }

    Rank& add(std::string_view category,
              std::string_view name,
              double length,
              int thread,
              const std::string& args) {
        events_ += fmt::format(
            R"({}{{"ph": "X", "cat": "{}", "name": "{}", "pid": 9, "tid": {}, "ts": {}, )"
            R"("dur": {}, "args": {}}})",
            events_.empty() ? "" : ",\n",
            category,
            name,
            thread,
            now_,
            length,
            args);
        now_ += length;
        return *this;
    }

    void add_inside(std::string_view name, const std::string& args) {
        const double now = now_;
        now_ -= 4;
        add("cpu_op", name, 3, 1, args);
        now_ = now;
    }

    std::string events_;
    std::vector<int> begins_;  ///< [forward]: the first node that it makes
    int number_ = 100;
    int step_ = 3;
    double now_ = 1;
    double step_begin_ = 0;
};

/// 1F1B on a rank in the middle, four micro-batches.
Rank& middle_rank(Rank& rank, std::size_t first = 0) {
    rank.receive().forward().send().receive().forward().send();
    rank.receive().backward(first).send().receive().forward().send();
    rank.receive().backward(first + 1).send().receive().forward().send();
    rank.receive().backward(first + 2).send().receive().backward(first + 3).send();
    return rank.scale_gradients().optimizer().end_step();
}

TEST(AutogradStages, ABackwardIsOfTheForwardThatMadeItsNodes) {
    Rank rank;
    middle_rank(rank);
    middle_rank(rank, 4);
    const TorchTrace found = rank.read();
    EXPECT_TRUE(found.is_unlabelled);
    EXPECT_TRUE(found.numbers_micro_batches);
    const StageDurations& stage = found.stages.at(own_stage);
    EXPECT_THAT(stage.forward, SizeIs(8));
    EXPECT_THAT(stage.forward, Each(10us));  // no waits of 50 us, no operators of the optimizer
    EXPECT_THAT(stage.backward, SizeIs(8));
    EXPECT_THAT(stage.backward, Each(20us));
    std::vector<std::string> order;
    for (std::size_t i = 0; i < 8; ++i) {
        order.push_back(fmt::format(
            "{}{}", op_text(found.spans[i].action.op), found.spans[i].action.micro_batch));
    }
    EXPECT_THAT(order, ElementsAre("F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"));
    EXPECT_THAT(found.steps, SizeIs(16));
    EXPECT_EQ(found.steps.front(), 3);
    EXPECT_EQ(found.steps.back(), 4);
    EXPECT_THAT(found.step_lengths, SizeIs(2));
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("8 forwards of one stage, each with its")));
}

/// On the first rank no message stands between a backward and the next forward, on the last one
/// none between a forward and its backward.
TEST(AutogradStages, BothEndsOfThePipeline) {
    Rank first;
    first.forward().send().forward().send().receive().backward(0).forward().send();
    first.receive().backward(1).receive().backward(2).optimizer();
    Rank last;
    for (std::size_t i = 0; i < 3; ++i) {
        last.receive().forward().backward(i).send();
    }
    last.optimizer();
    for (const Rank& rank : {first, last}) {
        const TorchTrace found = rank.read();
        EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(10us, 10us, 10us));
        EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(20us, 20us, 20us));
        EXPECT_TRUE(found.numbers_micro_batches);
    }
}

/// On a GPU, a thread of its own runs backwards, and kernels say how long what was launched took.
TEST(AutogradStages, KernelsCountWhereThereAreAny) {
    Rank rank;
    rank.receive().forward().send().receive().backward(0, 2).send().optimizer();
    std::string text = rank.text();
    const auto launched = [&](int number, double moment, int thread, double begin, double length) {
        return fmt::format(
            R"(,{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, )"
            R"("tid": {1}, "ts": {2}, "dur": 1, "args": {{"correlation": {0}}}}},)"
            R"({{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": {3}, )"
            R"("dur": {4}, "args": {{"correlation": {0}}}}})",
            number,
            thread,
            moment,
            begin,
            length);
    };
    text.insert(text.rfind(']'),
                launched(1, 54, 1, 1000, 300) + launched(2, 60, 1, 1300, 100) +
                    launched(3, 118, 2, 2000, 900));
    const TorchTrace found = parse_torch_trace(text, "rank0.json");
    EXPECT_TRUE(found.on_gpu);
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(400us));
    EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(900us));
}

/// Without the calls that launched them, kernels between messages count as before.
TEST(AutogradStages, KernelsWithoutLaunchesTellThemselves) {
    Rank rank;
    rank.receive().forward().send().receive().backward(0).send();
    std::string text = rank.text();
    const auto kernel = [](std::string_view name, int stream, double begin, double length) {
        return fmt::format(
            R"(,{{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": {}, "ts": {}, )"
            R"("dur": {}}})",
            name,
            stream,
            begin,
            length);
    };
    text.insert(text.rfind(']'),
                kernel("ncclDevKernel_SendRecv", 20, 1000, 10) + kernel("gemm", 7, 1010, 300) +
                    kernel("ncclDevKernel_SendRecv", 20, 1310, 10) +
                    kernel("gemm_bwd", 7, 1320, 700));
    const TorchTrace found = parse_torch_trace(text, "rank0.json");
    EXPECT_TRUE(found.on_gpu);
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(300us));
    EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(700us));
}

TEST(AutogradStages, ForwardsOfAnEvaluationHaveNoBackwardAndDoNotCount) {
    Rank rank;
    rank.receive().forward().send().receive().forward().send().end_step();
    rank.receive().forward().send().receive().backward(2).send().end_step();
    const TorchTrace found = rank.read();
    EXPECT_THAT(found.stages.at(own_stage).forward, SizeIs(1));
    EXPECT_EQ(found.spans.front().action.micro_batch, 0);
}

/// A recording that begins in the middle of a step does not know its first micro-batch.
TEST(AutogradStages, AStepWithoutItsBeginIsLeftOut) {
    Rank rank;
    rank.receive().forward().begin_recording();
    rank.send()
        .receive()
        .forward()
        .send()
        .receive()
        .backward(0)
        .send()
        .receive()
        .backward(1)
        .send();
    rank.optimizer();
    rank.receive().forward().send().receive().forward().send();
    rank.receive().backward(2).send().receive().backward(3).send().optimizer();
    const TorchTrace found = rank.read();
    EXPECT_THAT(found.stages.at(own_stage).forward, SizeIs(2));
    EXPECT_EQ(found.spans.front().action.micro_batch, 0);
    EXPECT_GT(found.spans.front().begin, 200us);
}

/// GPipe as a stack: the last forward's backward comes first.
TEST(AutogradStages, BackwardsInTheOppositeOrderKeepTheNumbersOfTheirForwards) {
    Rank rank;
    rank.receive().forward().send().receive().forward().send().receive().forward().send();
    for (const std::size_t i : {2U, 1U, 0U}) {
        rank.receive().backward(i).send();
    }
    const TorchTrace found = rank.optimizer().read();
    std::vector<int> numbers;
    for (const Span& span : found.spans) {
        numbers.push_back(span.action.micro_batch);
    }
    EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 2, 1, 0));
    EXPECT_THAT(found.notes,
                Contains(HasSubstr("taken as 3 micro-batches of one stage; name the ranges where "
                                   "a rank has several")));
}

/// Two stages that run as a stack: the second one has twice the nodes.
TEST(AutogradStages, AnOppositeOrderWithUnequalNodesIsOfSeveralStages) {
    Rank rank;
    rank.receive().forward().send().receive().forward().forward().send();
    rank.receive().backward(2).backward(1).send().receive().backward(0).send();
    EXPECT_THAT(error_of([&] { rank.optimizer().read(); }).text(),
                HasSubstr("in the opposite order of its forwards, with unequal numbers of nodes"));
}

/// The last backward of a file that ends too early may lack nodes; one before a message does not.
TEST(AutogradStages, ABackwardThatACutFileEndsInDoesNotCount) {
    Rank rank;
    rank.forward().send().forward().send().receive().backward(0).receive().backward(1);
    EXPECT_THAT(rank.read().stages.at(own_stage).backward, SizeIs(2));
    const std::string text = rank.text();
    const TorchTrace cut = parse_torch_trace(text.substr(0, text.size() - 20), "rank0.json");
    EXPECT_THAT(cut.stages.at(own_stage).forward, ElementsAre(10us));
    EXPECT_THAT(cut.stages.at(own_stage).backward, ElementsAre(20us));
}

TEST(AutogradStages, SeveralStagesAndSplitBackwardsAreRefusedByName) {
    const auto refusal = [](const Rank& rank) {
        const Error error = error_of([&] { rank.read(); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "rank0.json");
        EXPECT_THAT(error.hint(), HasSubstr("record_function(\"PP:0F3\")"));
        return error.text();
    };
    Rank interleaved;  // two stages, two micro-batches: the later stage's backwards come first
    interleaved.forward().send().forward().send().receive().forward().send().receive().forward();
    interleaved.send().receive().backward(2).send().receive().backward(3).send();
    interleaved.receive().backward(0).send().receive().backward(1).send().optimizer();
    EXPECT_THAT(refusal(interleaved), HasSubstr("as where a rank has several stages"));

    Rank split;
    split.receive().forward().send().receive().backward(0).send().receive().backward(0).send();
    EXPECT_THAT(refusal(split), HasSubstr("are split (I and W)"));
}

/// PyTorch's ranges of a CPU have the wait for the message in them.
TEST(AutogradStages, NamedRangesOfACpuAreAsLongAsTheirOperators) {
    Rank rank;
    rank.receive(0).forward();
    rank.range("Forward 0", 0, rank.now() + 3);
    const double begin = rank.now() + 5;
    rank.receive(80).backward(0).send();
    rank.range("Backward 0", begin, rank.now() - begin);
    const TorchTrace found = rank.read();
    EXPECT_TRUE(found.without_waits);
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(10us));
    EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(20us));
}

}  // namespace autograd_stages_test
}  // namespace pipetwin
