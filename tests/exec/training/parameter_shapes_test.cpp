// SPDX-License-Identifier: Apache-2.0
#include "exec/training/parameter_shapes.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "exec/executor/backend.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace parameter_shapes_test {

using test::Shape;

/// One tensor as text: "block0.qkv.weight fp32 8 24".
std::string text_of(const std::string& name, const Tensor& tensor) {
    return name + ' ' + std::string(to_string(tensor.dtype())) + ' ' +
           std::to_string(tensor.rows()) + ' ' + std::to_string(tensor.columns());
}

std::vector<std::string> tensors_of(const std::vector<Parameter*>& parameters) {
    std::vector<std::string> all;
    for (const Parameter* const parameter : parameters) {
        for (const auto part : trained_parts) {
            const Tensor& tensor = parameter->*part;
            all.push_back(tensor.empty() ? "none" : text_of(parameter->name, tensor));
        }
    }
    return all;
}

TEST(ParameterShapes, AreThoseOfTheExecutor) {
    const std::vector<Model> models{
        test::small_mlp(), test::small_gpt(), test::small_gpt_with(0.1, true)};
    for (const Model& model : models) {
        for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
            for (const OptimizerKind optimizer :
                 {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::AdamW}) {
                const Shape shape{.precision = precision, .optimizer = optimizer};
                SCOPED_TRACE(test::to_string(shape));
                Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
                const ParameterShapes shapes(
                    model, number_format(precision, Backend::Cpu), optimizer);
                const TrainedParameters found = shapes.parameters();
                ASSERT_EQ(found.pieces.size(), 1U);
                EXPECT_EQ(tensors_of(found.pieces.front()), tensors_of(executor.parameters()));
            }
        }
    }
}

/// A model of 400 GB of weights has a list of them all the same.
TEST(ParameterShapes, TakeNoMemory) {
    const Model model = mlp_model({200'000, 500'000, 10});
    const ParameterShapes shapes(model, DType::F32, OptimizerKind::AdamW);
    const std::vector<Parameter*> all = shapes.parameters().pieces.front();
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.front()->value.size(), 100'000'000'000);
}

}  // namespace parameter_shapes_test
}  // namespace pipetwin::exec
