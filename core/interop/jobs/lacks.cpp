// SPDX-License-Identifier: Apache-2.0
#include "core/interop/jobs/lacks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/megatron_config.h"
#include "core/scenario/division.h"

namespace pipetwin {

namespace {

using PipelineOfJob = SettledScenario::PipelinePart;

/// Adds lacks that are asked for.
class LackList {
  public:
    void add(bool is_asked, std::string key, std::string value, std::string why, std::string hint) {
        if (is_asked) {
            std::string subject = value.empty() ? key : fmt::format("{} = {}", key, value);
            all_.push_back({.key = std::move(key),
                            .subject = std::move(subject),
                            .why = std::move(why),
                            .hint = std::move(hint)});
        }
    }

    std::vector<Lack> take() { return std::move(all_); }

  private:
    std::vector<Lack> all_;
};

std::string in_quotes(std::string_view word) {
    return fmt::format("\"{}\"", word);
}

void add_lacks_of_order(const PlacedPlan& plan, std::string_view system, LackList& lacks) {
    const PipelineOfJob& pipeline = plan.scenario.pipeline;
    lacks.add(pipeline.deferred_weights > 0,
              "pipeline.deferred_weights",
              fmt::to_string(pipeline.deferred_weights),
              fmt::format("{} computes gradients of weights where the schedule has them", system),
              "set it to 0");
    lacks.add(pipeline.message_order != MessageOrder::AsScheduled,
              "pipeline.message_order",
              in_quotes(to_string(pipeline.message_order)),
              fmt::format("{} sends messages as they are scheduled", system),
              "set it to \"plain\"");
    lacks.add(pipeline.channel_capacity.known().has_value(),
              "pipeline.channel_capacity",
              fmt::to_string(pipeline.channel_capacity.value_or(0)),
              fmt::format("{} has no setting for how many messages wait", system),
              "set it to \"auto\"");
    lacks.add(pipeline.all_reduce != AllReduceKind::Fastest,
              "pipeline.all_reduce",
              in_quotes(to_string(pipeline.all_reduce)),
              "NCCL chooses how replicas sum gradients",
              "set it to \"fastest\"");
    const Placement placement = plan.scenario.cluster.placement;
    lacks.add(placement == Placement::RoundRobin || placement == Placement::Written,
              "cluster.placement",
              in_quotes(to_string(placement)),
              fmt::format("{} fills one node after the other", system),
              "set it to \"fill\" or \"replicas-first\"");
    lacks.add(pipeline.file_pieces > 0 && pipeline.receives == Receives::Blocking,
              "pipeline.receives",
              "\"blocking\"",
              fmt::format("receives of {} begin at their places, and are waited for where their "
                          "tensors are used",
                          system),
              "set it to \"posted\"");
}

void add_lacks_of_memory(const PlacedPlan& plan, std::string_view system, LackList& lacks) {
    const PipelineOfJob& pipeline = plan.scenario.pipeline;
    lacks.add(pipeline.offload == Offload::Stash,
              "pipeline.offload",
              "\"stash\"",
              fmt::format("{} has no setting that keeps inputs of stages in host memory", system),
              "set it to \"none\"");
}

void add_lacks_of_training(const PlacedPlan& plan, std::string_view system, LackList& lacks) {
    const auto& training = plan.scenario.training;
    lacks.add(training.precision == Precision::Fp64,
              "training.precision",
              "\"fp64\"",
              fmt::format("{} trains in fp32, or mixed with 16 bits", system),
              "set it to \"bf16\" or \"fp32\"");
    const RateSchedule rates = training.learning_rate_schedule;
    lacks.add(rates == RateSchedule::Step || rates == RateSchedule::InverseSqrt,
              "training.learning_rate_schedule",
              in_quotes(to_string(rates)),
              fmt::format("{} has no such schedule of learning rates", system),
              "set it to \"cosine\", \"linear\" or \"constant\"");
    lacks.add(training.average_decay > 0,
              "training.average_decay",
              fmt::to_string(training.average_decay),
              fmt::format("{} keeps no averages of weights", system),
              "set it to 0");
    lacks.add(!training.expert_load.is_balanced(),
              "training.expert_load",
              "",
              "the router decides which experts get how many tokens, and no setting does",
              "set it to \"balanced\"");
}

}  // namespace

void refuse_lack(const Lack& lack) {
    throw Error(ErrorKind::BadInput, "", fmt::format("{}: {}", lack.subject, lack.why), lack.hint)
        .about(lack.key);
}

void expect_no_lack(const std::vector<Lack>& lacks) {
    const auto found = std::ranges::find(lacks, false, &Lack::is_remark);
    if (found != lacks.end()) {
        refuse_lack(*found);
    }
}

std::vector<Lack> lacks_of_every_system(const PlacedPlan& plan, std::string_view system) {
    LackList lacks;
    add_lacks_of_order(plan, system, lacks);
    add_lacks_of_memory(plan, system, lacks);
    add_lacks_of_training(plan, system, lacks);
    return lacks.take();
}

std::vector<std::string> keys_for_people(const PlacedPlan& plan) {
    const SettledScenario& scenario = plan.scenario;
    std::vector<std::string> keys;
    if (!scenario.data.path.empty()) {
        keys.push_back(fmt::format("data.path = \"{}\"", scenario.data.path.string()));
    }
    if (!scenario.data.validation_path.empty()) {
        keys.push_back(
            fmt::format("data.validation_path = \"{}\"", scenario.data.validation_path.string()));
    }
    if (scenario.training.validate_every > 0) {
        keys.push_back(
            fmt::format("training.validate_every = {}", scenario.training.validate_every));
    }
    if (scenario.output.checkpoint_every > 0) {
        keys.push_back(
            fmt::format("output.checkpoint_every = {}", scenario.output.checkpoint_every));
    }
    return keys;
}

std::optional<MegatronFlags> sizes_of_model(const PlacedPlan& plan) {
    return plan.config.empty()
               ? std::nullopt
               : std::optional(
                     megatron_model_flags(plan.config, plan.config_name, plan.sequence).flags);
}

std::string model_in_words(const PlacedPlan& plan, const std::optional<MegatronFlags>& sizes) {
    std::string text = counted(plan.blocks(), "block");
    if (sizes) {
        text += fmt::format(" of {}, {}, vocabulary {}",
                            sizes->hidden_size.value_or(0),
                            counted(sizes->heads.value_or(0), "head"),
                            with_separators(sizes->vocabulary.value_or(0)));
    }
    return text;
}

int samples_of_micro_batch(const PlacedPlan& plan, std::string_view system) {
    const SettledScenario& scenario = plan.scenario;
    const int parts = scenario.pipeline.micro_batches * scenario.pipeline.data_parallel;
    const int batch = scenario.training.batch;
    if (batch % parts != 0) {
        refuse_lack({.key = "training.batch",
                     .subject = fmt::format("training.batch = {}", batch),
                     .why = fmt::format("{} of {} would not have equally many samples, and {} cuts "
                                        "a batch into equal parts",
                                        counted(scenario.pipeline.micro_batches, "micro-batch"),
                                        counted(scenario.pipeline.data_parallel, "replica"),
                                        system),
                     .hint = fmt::format("set it to {}, a multiple of pipeline.micro_batches times "
                                         "data_parallel",
                                         (batch / parts + 1) * parts)});
    }
    return batch / parts;
}

std::vector<int> stage_blocks(const PlacedPlan& plan, std::string_view system) {
    const Partition& partition = plan.partition;
    const int head = partition.layer_count() - 1;
    std::vector<int> blocks;
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        const int begin = partition.first_layer(stage);
        const int end = begin + partition.layers_in(stage);
        if (begin > 0 && begin % 2 == 0) {
            refuse_lack(
                {.key = "pipeline.partition",
                 .subject = fmt::format("stage {} begins within block {}", stage, begin / 2 - 1),
                 .why = fmt::format("{} does not cut a block in two", system),
                 .hint = "plan with whole blocks: --whole-blocks of 'pipetwin plan MODEL' "
                         "and of 'pipetwin import hf'"});
        }
        // Layers 1, 3, 5, ... are the attention of a block.
        blocks.push_back(std::min(end, head) / 2 - std::min(begin, head) / 2);
    }
    return blocks;
}

}  // namespace pipetwin
