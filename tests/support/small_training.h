// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "core/plan/plan.h"
#include "exec/executor/executor.h"

namespace pipetwin {

struct SettledScenario;

}  // namespace pipetwin

/// Models small enough that a step takes milliseconds in a debug build, and what else a test needs
/// to train them.
namespace pipetwin::test {

/// Eight layers of unequal widths; 6 numbers in, 5 classes.
Model small_mlp();
/// Three blocks, so eight units; 11 tokens, 6 positions.
Model small_gpt();
/// The same with dropout, and with a head that shares the embedding's table.
Model small_gpt_with(double dropout, bool tied);
Model small_gpt_with(double dropout, bool tied, GeluForm gelu);

/// Two blocks, so six units, in which everything of Llama counts: 4 heads of 6 numbers in 2 groups,
/// a width of 10, positions whose frequencies are scaled in part; 11 tokens, 7 positions.
Model small_llama();
/// A small Llama whose head shares the embedding's table, or does not.
Model small_llama_with(bool tied);

/// Fifteen units: two blocks of an encoder of 6 positions and two of a decoder of 5; positions are
/// learned where the tables are separate.
Model small_translation_with(TranslationTables tables, double dropout);
/// Ten units of images of 3 x 2 pixels, 6 numbers each: every kind of norm, alone and inside
/// others, and layers that drop or rectify; 5 classes.
Model small_norms();
/// Three cells of AmoebaNet's shape, of linear layers, each a unit that reads the outputs of the
/// two units before it; 6 numbers in, 4 classes, 8 units.
Model small_cells();

/// Every backend whose tensors lie in host memory, so that its ranks run on any machine: what all
/// backends promise is tested on each of these.
std::vector<Backend> every_host_backend();

/// One plan's settings; the defaults are those of a test that does not care.
struct Shape {
    int stages = 1;  ///< ranks
    int chunks = 1;
    int micro_batches = 4;
    int batch = 8;
    std::string schedule = "gpipe";
    RecomputeRules recompute = Recompute::None;
    RecomputeTiming recompute_timing = RecomputeTiming::Eager;
    LayerRecompute layer_recompute = LayerRecompute::None;
    int recompute_blocks = 1;
    std::optional<int> channel_capacity = {};
    std::optional<std::vector<int>> partition = {};
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    Backend backend = Backend::Cpu;
    double host_link_gbps = 0;  ///< more: stashes are offloaded over such a link
    double clip_norm = 0;
    int replicas = 1;
    int tensor_parallel = 1;
    bool sequence_parallel = false;
    bool overlap_reduction = false;
    bool shard_optimizer = false;
    Shard shard = Shard::None;  ///< more than the optimizer
    int shard_group = 0;        ///< 0: all replicas
    int prefetch = 1;
    double average_decay = 0;
};
/// "gpipe K=2 V=1 M=3 B=7 always": for failure messages.
std::string to_string(const Shape& shape);
void PrintTo(const Shape& shape, std::ostream* out);

/// All pieces alike in each mode, and another mode from piece to piece, in every rotation.
std::vector<RecomputeRules> every_recompute(int pieces);

SettledScenario scenario_of(const Shape& shape);

struct LayerTimes {
    Duration forward = std::chrono::milliseconds(1);
    Duration backward = std::chrono::milliseconds(2);
    LinkCost link = {};
};
/// Every layer takes the same time; the bytes are those of the executor's layers.
Profile even_profile(const Model& model, const Shape& shape, const LayerTimes& times = {});

Plan plan_of(const Model& model, const Shape& shape, const LayerTimes& times = {});
exec::ExecutorOptions options_of(const Shape& shape);

/// All elements of a tensor, as double.
std::vector<double> values_of(const exec::Tensor& tensor);
/// All gradients or weights, by the parameters' names, in model order.
struct NamedValues {
    std::string name;
    std::vector<double> values;
    bool operator==(const NamedValues&) const = default;
};
void PrintTo(const NamedValues& values, std::ostream* out);
std::vector<NamedValues> gradients_of(const std::vector<exec::Parameter*>& parameters);
std::vector<NamedValues> weights_of(const std::vector<exec::Parameter*>& parameters);

}  // namespace pipetwin::test
