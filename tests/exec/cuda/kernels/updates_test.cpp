// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace updates_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaUpdates : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaUpdates, every_way(), ::testing::PrintToStringParamName());

/// A parameter with everything that an update touches.
struct Parameter {
    Numbers value, gradient, first, second;
};

Parameter random_parameter(std::int64_t size, std::uint64_t stream) {
    Parameter p{random_numbers(size, stream),
                random_numbers(size, stream + 1),
                random_numbers(size, stream + 2),
                random_numbers(size, stream + 3)};
    // The second moment, and RmsProp's first, are no less than 0.
    for (Numbers* const moments : {&p.first, &p.second}) {
        std::for_each(moments->begin(), moments->end(), [](float& m) { m = std::fabs(m); });
    }
    return p;
}

using exec::UpdateRule;

/// Factors that fit every rule: where Adam's stand in a formula they show.
exec::UpdateFactors<double> factors_with(double weight_decay) {
    return {.rate = 0.1,
            .keep_first = 0.9,
            .take_first = 1 - 0.9,
            .keep_second = 0.999,
            .take_second = 1 - 0.999,
            .epsilon = 0.01,
            .root_scale = 1 / std::sqrt(1 - 0.999 * 0.999),
            .decay_factor = 1 - 0.001 * 0.01,
            .gradient_scale = 0.3,
            .weight_decay = weight_decay};
}

/// The CPU's update, or without a rule its sum of the squares alone; returns that sum.
double update_on_cpu(std::optional<UpdateRule> rule,
                     const exec::UpdateFactors<double>& factors,
                     Parameter& p) {
    const auto size = static_cast<std::int64_t>(p.value.size());
    double squares = 0;
    exec::UpdateView view_of_p;
    view_of_p.value = view(p.value, 1, size);
    view_of_p.gradient = view(p.gradient, 1, size);
    view_of_p.first = view(p.first, 1, size);
    view_of_p.second = view(p.second, 1, size);
    view_of_p.squares = &squares;
    const std::span<const exec::UpdateView> operands(&view_of_p, 1);
    if (rule) {
        cpu().update(*rule, operands, factors);
    } else {
        cpu().sum_squares(operands);
    }
    return squares;
}

/// Parameters on the device, updated in one go. In bf16 the masters are updated.
class Stage {
  public:
    Stage(Way way, const std::vector<Parameter>& parameters)
        : real_(way.real), squares_(parameters.size()) {
        const Way floats{Real::F32, way.offset};
        for (const Parameter& p : parameters) {
            for (const Numbers* const numbers : {&p.value, &p.gradient, &p.first, &p.second}) {
                operands_.emplace_back(floats, *numbers);
            }
            operands_.emplace_back(Way{Real::BF16, way.offset},
                                   static_cast<std::int64_t>(p.value.size()));
        }
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const auto of = [&](std::size_t which) { return operands_[5 * i + which].floats(); };
            UpdateTensor tensor;
            tensor.value = real_ == Real::F32 ? of(0) : operands_[5 * i + 4].data();
            tensor.master = real_ == Real::F32 ? nullptr : of(0);
            tensor.gradient = of(1);
            tensor.first = of(2);
            tensor.second = of(3);
            tensor.size = static_cast<std::int64_t>(parameters[i].value.size());
            tensor.squares = squares_.data() + i;
            tensors_.push_back(tensor);
        }
    }

    void update(std::optional<UpdateRule> rule, const UpdateFactors& factors) {
        with_table(factors, [&](const Updates& updates) {
            const WeightDecay decay =
                factors.weight_decay == 0 ? WeightDecay::No : WeightDecay::Yes;
            EXPECT_EQ(rule ? cuda::update(real_, *rule, decay, updates, nullptr)
                           : cuda::sum_squares(updates, nullptr),
                      cudaSuccess);
        });
    }

    void average(const UpdateFactors& factors) {
        with_table(factors, [&](const Updates& updates) {
            EXPECT_EQ(cuda::average(updates, nullptr), cudaSuccess);
        });
    }

    template <class Launch>
    void with_table(const UpdateFactors& factors, const Launch& launch) {
        const std::vector<UpdateChunk> all_chunks = update_chunks(tensors_);
        const DeviceArray<UpdateTensor> tensors(tensors_);
        const DeviceArray<UpdateChunk> chunks(all_chunks);
        const DeviceArray<UpdateFactors> numbers(std::vector<UpdateFactors>{factors});
        const DeviceArray<double> scratch(all_chunks.size());
        const Updates updates{tensors.data(),
                              static_cast<std::int64_t>(tensors.size()),
                              chunks.data(),
                              static_cast<std::int64_t>(chunks.size()),
                              numbers.data(),
                              scratch.data()};
        launch(updates);
        scratch.expect_guarded();  // and the update is done before its arrays go
    }

    /// Value, gradient, first and second of one after the other.
    Numbers numbers(std::size_t parameter, std::size_t which) const {
        return operands_[5 * parameter + which].numbers();
    }
    Numbers rounded_value(std::size_t parameter) const { return numbers(parameter, 4); }
    Numbers all() const {
        Numbers result;
        for (const Operand& operand : operands_) {
            result = joined({result, operand.numbers()});
        }
        for (const double sum : squares_.elements()) {  // both halves of its bits
            Numbers halves(2);
            std::memcpy(halves.data(), &sum, sizeof sum);
            result = joined({result, halves});
        }
        return result;
    }
    double squares(std::size_t parameter) const { return squares_.elements(parameter, 1)[0]; }

  private:
    Real real_;
    std::vector<Operand> operands_;
    DeviceArray<double> squares_;
    std::vector<UpdateTensor> tensors_;
};

std::vector<Parameter> parameters_of_many_sizes() {
    std::vector<Parameter> parameters;
    for (const std::int64_t size :
         {1L, 5L, 0L, 64L, 3000L, update_chunk_size, update_chunk_size + 7}) {
        parameters.push_back(random_parameter(size, 10 * parameters.size()));
    }
    return parameters;
}

void expect_updated(Way way, std::optional<UpdateRule> rule, double weight_decay = 0) {
    const std::vector<Parameter> parameters = parameters_of_many_sizes();
    const exec::UpdateFactors<double> exact = factors_with(weight_decay);
    const UpdateFactors factors = exact.rounded<float>();
    in_every_order([&] {
        Stage stage(way, parameters);
        stage.update(rule, factors);
        return stage.all();
    });
    Stage stage(way, parameters);
    stage.update(rule, factors);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        SCOPED_TRACE(parameters[i].value.size());
        Parameter expected = parameters[i];
        const double squares = update_on_cpu(rule, exact, expected);
        EXPECT_TRUE(close(stage.numbers(i, 0), expected.value, 1e-5));
        EXPECT_EQ(stage.numbers(i, 1), expected.gradient);
        EXPECT_TRUE(close(stage.numbers(i, 2), expected.first, 1e-5));
        EXPECT_TRUE(close(stage.numbers(i, 3), expected.second, 1e-5));
        EXPECT_NEAR(stage.squares(i), squares, 1e-12 * squares);
        if (way.real == Real::BF16 && rule) {
            EXPECT_EQ(stage.rounded_value(i), rounded(Real::BF16, stage.numbers(i, 0)));
        }
    }
}

TEST_P(CudaUpdates, ByNothingOnlyTheSquaresAreSummed) {
    expect_updated(way(), std::nullopt);
}
TEST_P(CudaUpdates, BySgd) {
    expect_updated(way(), UpdateRule::Sgd);
}
TEST_P(CudaUpdates, ByMomentum) {
    expect_updated(way(), UpdateRule::Momentum);
}
TEST_P(CudaUpdates, ByRmsProp) {
    expect_updated(way(), UpdateRule::RmsProp);
}
TEST_P(CudaUpdates, ByAdam) {
    expect_updated(way(), UpdateRule::Adam);
}

TEST_P(CudaUpdates, ByRmsPropWithMomentum) {
    expect_updated(way(), UpdateRule::RmsPropMomentum);
}
TEST_P(CudaUpdates, ByEveryRuleWithTheGradientOfAWeightDecay) {
    for (const UpdateRule rule : {UpdateRule::Sgd,
                                  UpdateRule::Momentum,
                                  UpdateRule::RmsProp,
                                  UpdateRule::RmsPropMomentum,
                                  UpdateRule::Adam}) {
        expect_updated(way(), rule, 0.125);
    }
}

TEST_P(CudaUpdates, AveragesMoveTowardsWhatUpdatesChange) {
    const std::vector<Parameter> parameters = parameters_of_many_sizes();
    const UpdateFactors factors{.take_first = 0.25F};
    in_every_order([&] {
        Stage stage(way(), parameters);
        stage.average(factors);
        return stage.all();
    });
    Stage stage(way(), parameters);
    stage.average(factors);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        Numbers expected = parameters[i].first;
        for (std::size_t k = 0; k < expected.size(); ++k) {
            expected[k] = 0.75F * expected[k] + 0.25F * parameters[i].value[k];
        }
        EXPECT_TRUE(close(stage.numbers(i, 2), expected, 1e-6));
        EXPECT_EQ(stage.numbers(i, 0), parameters[i].value);
    }
}

TEST(CudaUpdatesOfNothing, DoNothing) {
    EXPECT_EQ(update(Real::F32, exec::UpdateRule::Adam, WeightDecay::No, {}, nullptr), cudaSuccess);
    EXPECT_EQ(average({}, nullptr), cudaSuccess);
}

TEST(CudaUpdateChunks, CoverEveryTensorInOrder) {
    std::vector<UpdateTensor> tensors(3);
    tensors[0].size = update_chunk_size + 1;
    tensors[1].size = 0;
    tensors[2].size = 2 * update_chunk_size;
    const std::vector<UpdateChunk> chunks = update_chunks(tensors);
    ASSERT_EQ(chunks.size(), 4U);
    const std::vector<std::pair<int, int>> expected = {{0, 0}, {0, 1}, {2, 0}, {2, 1}};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(std::pair(chunks[i].tensor, chunks[i].index), expected[i]);
    }
    EXPECT_EQ(tensors[0].first_chunk, 0);
    EXPECT_EQ(tensors[1].first_chunk, 2);
    EXPECT_EQ(tensors[2].first_chunk, 2);
}

}  // namespace updates_test
}  // namespace pipetwin::cuda
