// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/exec/executor/every_cut.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// A small Llama in every cut.
namespace pipetwin::exec {
namespace llama_test {

using namespace every_cut;

/// Every way to cut `layers` layers into `pieces` parts of one at least.
std::vector<std::vector<int>> cuts(int layers, int pieces) {
    if (pieces == 1) {
        return {{layers}};
    }
    std::vector<std::vector<int>> all;
    for (int first = 1; first + pieces - 1 <= layers; ++first) {
        for (std::vector<int> rest : cuts(layers - first, pieces - 1)) {
            rest.insert(rest.begin(), first);
            all.push_back(std::move(rest));
        }
    }
    return all;
}

struct Way {
    const char* schedule;
    int chunks = 1;
};
constexpr std::array every_way{Way{"gpipe"},
                               Way{"1f1b"},
                               Way{"zb-h1"},
                               Way{"zb-auto"},
                               Way{"interleaved-1f1b", 2},
                               Way{"zb-v", 2},
                               Way{"looped-bfs", 2}};

/// Modes of recompute, each of which every piece has.
std::vector<Shape> in_every_mode(Shape shape) {
    std::vector<Shape> all;
    for (const Recompute mode : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
        shape.recompute = mode;
        all.push_back(shape);
    }
    shape.recompute = Recompute::None;
    for (const LayerRecompute mode : {LayerRecompute::Block, LayerRecompute::Selective}) {
        shape.layer_recompute = mode;
        all.push_back(shape);
    }
    return all;
}

struct Case {
    const char* name;
    bool tied;
    Precision precision;
};
void PrintTo(const Case& value, std::ostream* out) {
    *out << value.name;
}

class EveryCutOfALlama : public ::testing::TestWithParam<Case> {
  protected:
    /// The outcome that all others have to have. Half precision has no reference without stages:
    /// there it is that of one stage.
    StepOutcome whole(BackwardOrder order) const {
        Shape shape{.batch = batch, .precision = GetParam().precision};
        if (shape.precision == Precision::Bf16) {
            shape.schedule = order == BackwardOrder::Descending ? "gpipe" : "1f1b";
            return test::pipeline_step(model, shape);
        }
        return test::reference_step(model, shape, order);
    }

    static constexpr int batch = 9;
    const Model model = test::small_llama_with(GetParam().tied);
};

/// Cuts the model into one to four pieces, two of them on each rank where the schedule has chunks.
/// The peaks are those of the plan, to the byte.
TEST_P(EveryCutOfALlama, HasTheBitsOfTheWholeModelAndTheBytesOfThePlanInEveryScheduleAndMode) {
    const StepOutcome descending = whole(BackwardOrder::Descending);
    const StepOutcome ascending = whole(BackwardOrder::Ascending);
    ASSERT_EQ(model.layer_count(), 6);
    int steps = 0;
    for (const Way& way : every_way) {
        const bool descends =
            std::string(way.schedule) == "gpipe" || std::string(way.schedule) == "looped-bfs";
        for (int stages = 1; stages * way.chunks <= 4; ++stages) {
            for (const std::vector<int>& cut : cuts(6, stages * way.chunks)) {
                for (const Shape& shape : in_every_mode({.stages = stages,
                                          .chunks = way.chunks,
                                          .batch = batch,
                                          .schedule = way.schedule,
                                          .partition = cut,
                                          .precision = GetParam().precision})) {
                    expect_bits_and_bytes(model, shape, descends ? descending : ascending);
                    ++steps;
                    if (HasFailure()) {
                        return;
                    }
                }
            }
        }
    }
    // Six layers have 1 + 5 + 10 + 10 cuts into one to four pieces, 5 + 10 into two or four.
    EXPECT_EQ(steps, 5 * (4 * 26 + 3 * 15));
}

INSTANTIATE_TEST_SUITE_P(Llama,
                         EveryCutOfALlama,
                         ::testing::Values(Case{"fp32", false, Precision::Fp32},
                                           Case{"tied_fp32", true, Precision::Fp32},
                                           Case{"tied_fp64", true, Precision::Fp64},
                                           Case{"bf16", false, Precision::Bf16},
                                           Case{"tied_bf16", true, Precision::Bf16}),
                         [](const auto& named) { return std::string(named.param.name); });

}  // namespace llama_test
}  // namespace pipetwin::exec
