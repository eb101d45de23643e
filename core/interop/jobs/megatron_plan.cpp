// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/number_type.h"
#include "core/interop/jobs/megatron_job.h"
#include "core/interop/megatron_config.h"
#include "core/interop/megatron_division.h"
#include "core/interop/megatron_memory.h"
#include "core/interop/megatron_model.h"
#include "core/plan/plan.h"
#include "core/scenario/division.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

namespace {

MegatronLayout layout_of(const PlacedPlan& placed) {
    MegatronLayout layout = megatron_layout(placed.partition, placed.schedule);
    std::string& last = layout.stages.back();
    last.insert(last.size() - 1, static_cast<std::size_t>(placed.prediction_layers), 'm');
    return layout;
}

[[noreturn]] void refuse_plan(std::string key, std::string what, std::string hint) {
    throw Error(ErrorKind::Infeasible, "", std::move(what), std::move(hint)).about(std::move(key));
}

/// Decoder layers of every stage.
std::vector<int> blocks_of(const MegatronLayout& layout) {
    std::vector<int> blocks;
    for (const std::string& stage : layout.stages) {
        blocks.push_back(static_cast<int>(std::ranges::count(stage, 't')));
    }
    return blocks;
}

/// Sizes of the first and the last stage, where all between are alike.
bool set_ends(const std::vector<int>& blocks, MegatronFlags& flags) {
    const std::size_t last = blocks.size() - 1;
    const int between = blocks[1];
    const bool are_alike = std::all_of(blocks.begin() + 1,
                                       blocks.begin() + static_cast<std::ptrdiff_t>(last),
                                       [between](int b) { return b == between; });
    if (!are_alike || std::ranges::find(blocks, 0) != blocks.end()) {
        return false;
    }
    if (blocks.front() != between || last == 1) {
        flags.first_layers = blocks.front();
    }
    if (blocks.back() != between || last == 1) {
        flags.last_layers = blocks.back();
    }
    return true;
}

/// Equal stages need no layout, nor do stages that are equal but for the ends: older versions of
/// Megatron do not know layouts.
void set_layout(const MegatronLayout& layout, int chunks, MegatronFlags& flags) {
    const std::vector<int> blocks = blocks_of(layout);
    const bool equal = blocks.front() > 0 &&
                       std::ranges::all_of(blocks, [&](int b) { return b == blocks.front(); });
    if (equal) {
        if (chunks > 1) {
            flags.virtual_stage_layers = blocks.front();
        }
    } else if (chunks > 1 || !set_ends(blocks, flags)) {
        flags.layout = layout;
    }
}

/// The words of the model, and to how many Megatron pads them.
void set_vocabulary(int vocabulary, int devices, MegatronFlags& flags, PlanNotes& notes) {
    flags.vocabulary = vocabulary;
    constexpr int default_divisor = 128;
    if (vocabulary % (default_divisor * devices) != 0) {
        flags.vocabulary_divisor = 1;
    }
    if (const int padded = padded_vocabulary(flags).value_or(vocabulary); padded != vocabulary) {
        notes.remark(
            fmt::format("Megatron divides a vocabulary evenly among {} devices: it pads the {} "
                        "words to {}, and 'import megatron' reads this number back",
                        devices,
                        vocabulary,
                        padded));
    }
}

/// The flags of the model, and further ones as words. Costs without a config.json say nothing of
/// its sizes, which a note says.
MegatronModelFlags flags_of_model(const PlacedPlan& placed, PlanNotes& notes) {
    const int blocks = placed.partition.layer_count() / 2 - 1;
    if (placed.config.empty()) {
        notes.remark(
            "the costs do not contain the sizes of the model: add --hidden-size, "
            "--num-attention-heads, --seq-length, --vocab-size and any other flags that describe "
            "it, or plan the model by its name or config.json");
        MegatronModelFlags model;
        model.flags.layers = blocks;
        if (placed.prediction_layers > 0) {
            model.flags.prediction_layers = placed.prediction_layers;
        }
        return model;
    }
    MegatronModelFlags model =
        megatron_model_flags(placed.config, placed.config_name, placed.sequence);
    if (model.flags.layers != blocks) {
        throw Error(ErrorKind::BadInput,
                    placed.config_name,
                    fmt::format("{}, but the plan has {}",
                                counted(model.flags.layers.value_or(0), "block"),
                                blocks),
                    "is it the config.json of another model? plan this one again");
    }
    for (const std::string& missing : model.missing) {
        notes.lack("model",
                   "warning: Megatron-LM has no flag for " + missing,
                   "plan a model that Megatron-LM has flags for");
    }
    if (model.flags.vocabulary) {
        model.flags.tensor_size = placed.scenario.pipeline.tensor_parallel;
        set_vocabulary(*model.flags.vocabulary, *model.flags.tensor_size, model.flags, notes);
    }
    return model;
}

/// The number type of weights and gradients. Megatron sums those of bf16 in fp32 by default, those
/// of fp16 in fp16.
void set_precision(const PlacedPlan& placed,
                   MegatronFlags& flags,
                   std::vector<std::string>& further,
                   PlanNotes& notes) {
    const bool sums_narrow = placed.scenario.training.gradients == GradientType::Same;
    flags.fp16 = placed.precision == "fp16";
    flags.gradients_fp32 = flags.fp16 && !sums_narrow;
    flags.bf16 = !flags.fp16 && placed.scenario.training.precision == Precision::Bf16;
    flags.gradients_narrow = flags.bf16 && sums_narrow;
    if (has_narrow_products(placed.precision)) {
        further.emplace_back(placed.precision == "nvfp4"   ? "--fp4-format e2m1"
                             : placed.precision == "mxfp8" ? "--fp8-format e4m3 --fp8-recipe mxfp8"
                             : placed.precision == "fp8-block"
                                 ? "--fp8-format e4m3 --fp8-recipe blockwise"
                                 : "--fp8-format hybrid");
        notes.remark(fmt::format(
            "the costs are those of products in {}, beside --bf16 for the rest", placed.precision));
    }
}

/// Types of the optimizer's state that have as many bytes as the scenario says, where Megatron has
/// such types.
void set_state_types(const PlacedPlan& placed, MegatronFlags& flags, PlanNotes& notes) {
    constexpr int adam_in_fp32 = 12;
    const int bytes = placed.scenario.training.optimizer_state_bytes.value_or(adam_in_fp32);
    if (!(flags.bf16 || flags.fp16) || bytes == adam_in_fp32) {
        return;
    }
    MegatronFlags tried = flags;
    tried.state_types = true;
    tried.fp8 = has_narrow_products(placed.precision) && placed.precision != "fp8";
    tried.fp8_recipe = placed.precision;
    for (const std::string_view mean : {"fp32", "bf16", "fp8"}) {
        for (const std::string_view copy : {"fp32", "fp16"}) {
            tried.main_type = copy;
            tried.mean_type = tried.square_type = mean;
            if (megatron_state_bytes(tried) == bytes) {
                flags.state_types = true;
                flags.main_type = tried.main_type;
                flags.mean_type = flags.square_type = tried.mean_type;
                return;
            }
        }
    }
    notes.lack(
        "training.optimizer_state_bytes",
        fmt::format("warning: Megatron-LM has no flag for training.optimizer_state_bytes = {}",
                    bytes),
        "set it to 12");
}

void set_training(const SettledScenario& scenario, MegatronFlags& flags, PlanNotes& notes) {
    const auto& training = scenario.training;
    flags.separate_accumulation =
        flags.separate_accumulation || training.accumulation == Accumulation::Separate;
    // A scenario of costs alone is not trained here: its clip_norm of 0 is the default, and
    // Megatron keeps a default of its own.
    if (scenario.model.kind != ModelKind::Profile || training.clip_norm > 0) {
        flags.clip_norm = training.clip_norm;
    }
    if (training.optimizer == OptimizerKind::Adam) {
        notes.lack("training.optimizer",
                   "Megatron's adam decays weights apart from gradients, as adamw does: 'import "
                   "megatron' reads the flags back as adamw",
                   "set it to \"adamw\"");
    } else if (training.optimizer != OptimizerKind::AdamW) {
        flags.optimizer = "sgd";
        if (training.optimizer != OptimizerKind::Momentum) {
            notes.lack("training.optimizer",
                       fmt::format(
                           "Megatron has adam and sgd with momentum, but not {}: the flags say sgd",
                           to_string(training.optimizer)),
                       "set it to \"momentum\"");
        }
    }
}

/// Megatron's groups of layers are less than a stage, or computed again at another time.
void note_groups(const SettledScenario& scenario, bool are_smaller, int group, PlanNotes& notes) {
    if (are_smaller) {
        notes.lack(
            "pipeline.recompute",
            fmt::format("warning: pipeline.recompute = \"always\" keeps the input of a stage; "
                        "Megatron keeps "
                        "the input of every {}, because its groups have to divide all stages",
                        group == 1 ? "layer" : counted(group, "layer")),
            "set it to \"block\"");
    }
    if (scenario.pipeline.recompute_timing == RecomputeTiming::Eager) {
        notes.lack(
            "pipeline.recompute_timing",
            "warning: pipeline.recompute_timing = \"eager\": Megatron computes again once the "
            "gradient has "
            "arrived, as \"lazy\" says",
            "set it to \"lazy\"");
    }
}

/// Blocks of a group, which have to divide those of every stage. Throws Error(Infeasible) where
/// they do not.
int groups_of_megatron(const SettledScenario& scenario, const MegatronLayout& layout) {
    const int together = scenario.pipeline.recompute_blocks;
    const std::vector<int> blocks = blocks_of(layout);
    const auto divides = [](int group) { return [group](int n) { return n % group == 0; }; };
    const int most = std::max(1, std::ranges::max(blocks));
    if (together >= most && std::ranges::all_of(blocks, divides(most))) {
        return most;  // of every stage all
    }
    if (!std::ranges::all_of(blocks, divides(together))) {
        refuse_plan("pipeline.recompute_blocks",
                    fmt::format("pipeline.recompute_blocks = {}, but stages have {} blocks, and "
                                "Megatron's groups have to divide them",
                                together,
                                fmt::join(blocks, ", ")),
                    "set it to 1, or to another divisor of all of them");
    }
    return together;
}

/// The words of the list that all stages have. Megatron's flags say one list for all of them, and
/// no numbers of blocks.
template <class List>
std::vector<std::string> words_for_all_stages(const std::string& key,
                                              const std::vector<List>& lists) {
    if (lists.empty()) {
        return {};
    }
    if (std::ranges::any_of(lists, [&](const List& list) { return list != lists.front(); })) {
        refuse_plan(
            key,
            fmt::format("{} has a list for each stage, and Megatron has one for all of them", key),
            "write one list of words");
    }
    std::vector<std::string> words = words_of(lists.front());
    for (const std::string& word : words) {
        if (word.find(':') != std::string::npos) {
            refuse_plan(
                key,
                fmt::format(
                    "{} has {}, and Megatron computes a module again in all blocks", key, word),
                fmt::format("write {}", word.substr(0, word.find(':'))));
        }
    }
    return words;
}

/// Parts of blocks that are computed again or have inputs in host memory, in Megatron's words.
void set_modules(const SettledScenario& scenario, MegatronFlags& flags) {
    flags.recompute_modules = words_for_all_stages("pipeline.recompute_modules",
                                                   scenario.pipeline.recompute_modules.of_piece);
    flags.recompute_selective = flags.recompute_selective || !flags.recompute_modules.empty();
    flags.offload_modules =
        words_for_all_stages("pipeline.offload_modules", scenario.pipeline.offload_modules);
    flags.offloads_inputs = !flags.offload_modules.empty();
    if (flags.offloads_inputs && scenario.pipeline.offload_fraction != 1) {
        flags.offload_fraction = scenario.pipeline.offload_fraction;
    }
}

/// Megatron hands activations of whole layers to host memory in one stage alone, without recompute,
/// and never those of all layers (megatron/core/transformer/transformer_config.py).
void set_offloaded_blocks(const SettledScenario& scenario, int blocks, MegatronFlags& flags) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const int offloaded = pipeline.offload_blocks.value_or(0);
    if (offloaded == 0) {
        return;
    }
    const bool recomputes = pipeline.layer_recompute != LayerRecompute::None ||
                            pipeline.recompute != RecomputeRules(Recompute::None);
    if (pipeline.stages > 1 || recomputes || !flags.offload_modules.empty() ||
        offloaded >= blocks) {
        refuse_plan("pipeline.offload_blocks",
                    fmt::format("pipeline.offload_blocks = {}: Megatron offloads fewer than the {} "
                                "layers of one stage, without recompute and modules of its own",
                                offloaded,
                                blocks),
                    "set it to 0");
    }
    flags.offloaded_layers = offloaded;
}

/// Megatron keeps the input of every N layers of a stage, and N has to divide them: the more, the
/// nearer to keeping that of the stage alone.
void set_recompute(const SettledScenario& scenario,
                   const MegatronLayout& layout,
                   MegatronFlags& flags,
                   PlanNotes& notes) {
    switch (scenario.pipeline.layer_recompute) {
        case LayerRecompute::None:
            break;
        case LayerRecompute::Selective:
            flags.recompute_selective = true;
            notes.remark(
                "warning: pipeline.recompute = \"selective\": Megatron computes core attention "
                "again; costs that 'import hf' estimates with FlashAttention compute single "
                "operators "
                "again and keep less, those with --attention standard do as Megatron does");
            return;
        case LayerRecompute::Block:
            flags.recompute_full = true;
            flags.recompute_first = scenario.pipeline.recompute_only > 0;
            flags.recompute_layers = flags.recompute_first ? scenario.pipeline.recompute_only
                                                           : groups_of_megatron(scenario, layout);
            if (scenario.pipeline.recompute_early_stop) {
                notes.lack(
                    "pipeline.recompute_early_stop",
                    "warning: pipeline.recompute_early_stop = true: Megatron computes a block "
                    "again to its end",
                    "set it to false");
            }
            return;
    }
    const RecomputeRules rules = scenario.pipeline.recompute;
    if (!rules.everywhere()) {
        refuse_plan(
            "pipeline.recompute",
            fmt::format("pipeline.recompute is {}, but Megatron's flags apply to all stages",
                        to_string(rules)),
            "set it to \"always\" or \"none\" for all stages");
    }
    switch (*rules.everywhere()) {
        case Recompute::None:
            set_modules(scenario, flags);
            return;
        case Recompute::Always: {
            const std::vector<int> blocks = blocks_of(layout);
            const int group =
                std::max(1, std::reduce(blocks.begin(), blocks.end(), 0, [](int a, int b) {
                             return std::gcd(a, b);
                         }));
            flags.recompute_full = true;
            flags.recompute_layers = group;
            note_groups(scenario, group < std::ranges::max(blocks), group, notes);
            return;
        }
        case Recompute::ExceptLast:
            refuse_plan("pipeline.recompute",
                        "pipeline.recompute = \"except-last\", which Megatron has no flag for",
                        "set it to \"always\" or \"none\"");
    }
}

/// What the devices of a rank, and replicas, share. ZeRO-2 and -3 are Megatron's own FSDP, with the
/// flags that its user guide calls required.
void set_shares(const SettledScenario& scenario,
                MegatronFlags& flags,
                std::vector<std::string>& further,
                PlanNotes& notes) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    flags.shard_optimizer = pipeline.shard != Shard::None;
    if (const int sharing = group_size(scenario); sharing < pipeline.data_parallel) {
        further.push_back(fmt::format("--num-distributed-optimizer-instances {}",
                                      pipeline.data_parallel / sharing));
    }
    if (pipeline.shard > Shard::Optimizer) {
        flags.megatron_fsdp = true;
        flags.separate_accumulation = true;
        flags.sharding = pipeline.shard == Shard::Weights ? "optim_grads_params" : "optim_grads";
        further.emplace_back("--ckpt-format fsdp_dtensor");
        notes.remark(fmt::format(
            "pipeline.shard = \"{}\" is Megatron-FSDP, in Megatron Core 0.14 and later: run it "
            "without CUDA_DEVICE_MAX_CONNECTIONS=1",
            to_string(pipeline.shard)));
        // Gradients that replicas divide go into their sums with every micro-batch, and none are
        // added up before: the step is the one with that flag.
        const bool adds_up = pipeline.data_parallel == 1 && pipeline.micro_batches > 1;
        if (adds_up && scenario.training.accumulation != Accumulation::Separate) {
            notes.remark(
                "Megatron-FSDP asks for --no-gradient-accumulation-fusion; the plan adds up "
                "gradients in the matrix products: --set training.accumulation=separate predicts "
                "the step with that flag");
        }
    }
    if (pipeline.shard == Shard::Weights && pipeline.prefetch != 1) {
        notes.lack(
            "pipeline.prefetch",
            fmt::format("warning: pipeline.prefetch = {}: in Megatron's FSDP, "
                        "--suggested-communication-unit-size (a number of elements) sets how much "
                        "it gathers ahead",
                        pipeline.prefetch),
            "set it to 1");
    }
    if (pipeline.tensor_parallel > 1) {
        flags.sequence_parallel = pipeline.sequence_parallel;
    } else if (pipeline.sequence_parallel) {
        notes.remark(
            "warning: pipeline.sequence_parallel changes nothing where a rank has one device: "
            "Megatron "
            "turns --sequence-parallel off then, and it is left out");
    }
    const bool scatters = pipeline.scatter_boundaries && !pipeline.sequence_parallel &&
                          pipeline.tensor_parallel > 1 && pipeline.stages > 1;
    if (scatters) {
        notes.lack(
            "pipeline.scatter_boundaries",
            "warning: pipeline.scatter_boundaries = true: Megatron did so by default until March "
            "2023, and no later version does; there is no flag for it",
            "set it to false");
    }
}

/// Megatron numbers devices in one of two orders.
void set_order(const SettledScenario& scenario, MegatronFlags& flags) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const AxisOrder order = axis_order(scenario);
    if (pipeline.order && order != data_last && order != pipeline_last) {
        refuse_plan(
            "pipeline.order",
            fmt::format("pipeline.order = \"{}\", but Megatron has two orders", to_string(order)),
            fmt::format(
                "set it to \"{}\" or \"{}\"", to_string(pipeline_last), to_string(data_last)));
    }
    const bool is_said = pipeline.order || scenario.cluster.placement == Placement::Fill;
    flags.pipeline_before_data =
        is_said && order == data_last && pipeline.data_parallel > 1 && pipeline.stages > 1;
}

/// How devices share samples and experts.
void set_division(const SettledScenario& scenario, MegatronFlags& flags) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    if (pipeline.context_parallel > 1) {
        flags.context_size = pipeline.context_parallel;
        flags.context_method = pipeline.context_method;
        if (pipeline.context_method == ContextMethod::RingAllToAll) {
            flags.context_sizes =
                hierarchical_sizes(pipeline.context_parallel,
                                   scenario.cluster.domain_devices() / pipeline.tensor_parallel);
        }
    }
    const int tensor = pipeline.expert_tensor_devices();
    if (pipeline.expert_parallel > 1 || tensor != pipeline.tensor_parallel) {
        flags.expert_size = pipeline.expert_parallel;
        flags.expert_tensor_size = tensor;
        set_dispatch(pipeline.expert_dispatch, flags);
    }
}

/// Rows of experts: no flag says which experts get how many.
void set_rows_of_experts(const PlacedPlan& placed, MegatronFlags& flags, PlanNotes& notes) {
    const auto& training = placed.scenario.training;
    if (training.expert_capacity > 0) {
        flags.expert_capacity = training.expert_capacity;
        flags.fills_capacity = true;
    }
    if (const int rows = rows_of_padding(placed.precision); training.expert_padding > 1) {
        flags.fills_rows = rows > 1;
        if (rows != training.expert_padding) {
            notes.lack(
                "training.expert_padding",
                fmt::format("warning: training.expert_padding = {}: in {} Megatron fills rows up "
                            "to multiples of {}",
                            training.expert_padding,
                            placed.precision,
                            rows),
                "set it to 1");
        }
    }
    if (training.expert_load != Scenario::TrainingPart::LoadOfExperts{}) {
        notes.lack(
            "training.expert_load",
            "training.expert_load: the router decides which experts get how many tokens; the one "
            "flag for it is --moe-router-force-load-balancing, for balanced loads in a benchmark",
            "set it to \"balanced\"");
    }
}

void set_batch(const SettledScenario& scenario, MegatronFlags& flags) {
    const std::vector<int> sizes =
        micro_batch_sizes(replica_batch(scenario), scenario.pipeline.micro_batches);
    if (sizes.front() != sizes.back()) {
        refuse_plan(
            "training.batch",
            fmt::format("micro-batches of {} and of {} samples, but Megatron's have equal sizes",
                        sizes.front(),
                        sizes.back()),
            "set training.batch to a multiple of pipeline.micro_batches times data_parallel");
    }
    flags.micro_batch_size = sizes.front();
    flags.global_batch_size = scenario.training.batch;
}

/// The schedule that Megatron runs with one stage per rank, or with several.
std::string_view schedule_of_megatron(bool several_stages) {
    for (const ScheduleName& known : known_schedules()) {
        const ScheduleTraits& traits = schedule_traits(known.kind);
        if (traits.in_megatron && (traits.chunks != ChunkCounts::One) == several_stages) {
            return known.name;
        }
    }
    throw InternalError("Megatron has a schedule for each number of stages");
}

/// Says so where Megatron does not run the schedule: what it gets is another one.
void note_schedule(const PlacedPlan& placed, PlanNotes& notes) {
    const std::string& schedule = placed.scenario.pipeline.schedule;
    if (!schedule_traits(schedule).in_megatron) {
        notes.lack(
            "pipeline.schedule",
            fmt::format(
                "Megatron has no schedule like {0}: with this layout it runs {1}, which has "
                "another "
                "time and memory; --set pipeline.schedule={1} predicts them",
                has_schedule_file(placed.scenario)
                    ? "the rows of " + std::filesystem::path(schedule).filename().string()
                    : schedule,
                schedule_of_megatron(placed.schedule.stage_count() > placed.schedule.rank_count())),
            fmt::format("set it to \"{}\"",
                        schedule_of_megatron(placed.schedule.stage_count() >
                                             placed.schedule.rank_count())));
    }
}

/// Megatron's groups have as many micro-batches as there are ranks unless a flag says otherwise.
void set_groups(const SettledScenario& scenario,
                int chunks,
                MegatronFlags& flags,
                PlanNotes& notes) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    if (chunks == 1 || !schedule_traits(pipeline.schedule).has_groups) {
        return;
    }
    if (pipeline.micro_batches < pipeline.stages) {
        notes.lack("pipeline.micro_batches",
                   fmt::format("Megatron refuses fewer micro-batches ({}) than ranks ({}) where a "
                               "rank has several "
                               "stages",
                               pipeline.micro_batches,
                               pipeline.stages),
                   fmt::format("set it to {}", pipeline.stages));
        return;
    }
    const int group = interleaved_group_size(
        {.ranks = pipeline.stages, .chunks = chunks, .micro_batches = pipeline.micro_batches},
        pipeline.group_size);
    if (pipeline.group_size > 0 || group != pipeline.stages) {
        flags.group_size = group;
    }
}

}  // namespace

MegatronLayout megatron_plan_layout(const PlacedPlan& plan, PlanNotes& notes) {
    note_schedule(plan, notes);
    return layout_of(plan);
}

std::string MegatronPlanFlags::line() const {
    std::string line = print_megatron_flags(flags);
    line.pop_back();
    for (const std::string& words : further) {
        line += ' ' + words;
    }
    return line;
}

MegatronPlanFlags megatron_plan_flags(const PlacedPlan& plan, PlanNotes& notes) {
    const SettledScenario& scenario = plan.scenario;
    const MegatronLayout layout = layout_of(plan);
    MegatronModelFlags model = flags_of_model(plan, notes);
    MegatronFlags& flags = model.flags;
    std::vector<std::string>& further = model.further;
    flags.tensor_size = scenario.pipeline.tensor_parallel;
    set_shares(scenario, flags, further, notes);
    flags.tensor_overlap = flags.sequence_parallel && plan.hides_tensor;
    flags.overlap_reduction = scenario.pipeline.overlap_reduction;
    flags.overlap_gather =
        flags.overlap_reduction && scenario.pipeline.overlap_gather.value_or(false);
    flags.pipeline_size = plan.schedule.rank_count();
    const int chunks = plan.schedule.stage_count() / plan.schedule.rank_count();
    set_layout(layout, chunks, flags);
    set_groups(scenario, chunks, flags, notes);
    set_precision(plan, flags, further, notes);
    set_state_types(plan, flags, notes);
    set_training(scenario, flags, notes);
    set_division(scenario, flags);
    set_order(scenario, flags);
    set_rows_of_experts(plan, flags, notes);
    set_batch(scenario, flags);
    set_recompute(scenario, layout, flags, notes);
    set_offloaded_blocks(scenario, plan.blocks(), flags);
    note_schedule(plan, notes);
    return {.flags = flags, .further = further, .knows_model = !plan.config.empty()};
}

}  // namespace pipetwin
