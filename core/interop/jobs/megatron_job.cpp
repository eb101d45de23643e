// SPDX-License-Identifier: Apache-2.0
#include "core/interop/jobs/megatron_job.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/interop/jobs/megatron_words.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

namespace {

using JobPipeline = SettledScenario::PipelinePart;

void refuse_for_megatron(std::string key, std::string subject, std::string why, std::string hint) {
    refuse_lack({.key = std::move(key),
                 .subject = std::move(subject),
                 .why = std::move(why),
                 .hint = std::move(hint)});
}

/// Megatron runs 1f1b, or interleaved-1f1b where a rank has several stages.
void expect_schedule(const JobPipeline& pipeline) {
    const ScheduleTraits& traits = schedule_traits(pipeline.schedule);
    const bool is_alone = pipeline.stages == 1 && pipeline.micro_batches == 1;
    if (traits.in_megatron || is_alone) {
        return;
    }
    const ScheduleKind other =
        pipeline.chunks > 1 ? ScheduleKind::Interleaved1F1B : ScheduleKind::OneFOneB;
    refuse_for_megatron(
        "pipeline.schedule",
        fmt::format("pipeline.schedule = \"{}\"", pipeline.schedule),
        "Megatron has no such schedule",
        fmt::format("set it to \"{}\", and plan again", schedule_traits(other).name));
}

void expect_words_of_megatron(const PlacedPlan& plan) {
    const JobPipeline& pipeline = plan.scenario.pipeline;
    if (pipeline.recompute != RecomputeRules(Recompute::None)) {
        refuse_for_megatron("pipeline.recompute",
                            fmt::format("pipeline.recompute, {}", to_string(pipeline.recompute)),
                            "Megatron keeps the input of every group of blocks, like \"block\"",
                            "set it to \"block\"");
    }
    if (plan.scenario.training.weight_decay_of == WeightDecayOf::Weights) {
        refuse_for_megatron("training.weight_decay_of",
                            "training.weight_decay_of = \"weights\"",
                            "Megatron leaves out norms and biases, but not the embedding",
                            "set it to \"all\"");
    }
    if (pipeline.overlap_gather.value_or(false) && !pipeline.overlap_reduction) {
        refuse_for_megatron("pipeline.overlap_gather",
                            "pipeline.overlap_gather = true",
                            "Megatron gathers weights beside forwards only where it sums gradients "
                            "beside backwards",
                            "set pipeline.overlap_reduction to true");
    }
}

}  // namespace

MegatronJob megatron_job(const PlacedPlan& plan) {
    expect_no_lack(lacks_of_every_system(plan, "Megatron"));
    expect_schedule(plan.scenario.pipeline);
    expect_words_of_megatron(plan);
    static_cast<void>(samples_of_micro_batch(plan, "Megatron"));
    MegatronJob job;
    PlanNotes notes;
    try {
        job.plan = megatron_plan_flags(plan, notes);
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::Infeasible && !error.key().empty()) {
            throw error.with_kind(ErrorKind::BadInput);
        }
        throw;
    }
    constexpr std::string_view warning = "warning: ";
    for (const PlanNote& note : notes.all()) {
        const bool warns = note.text.starts_with(warning);
        std::string text = note.text.substr(warns ? warning.size() : 0);
        if (!note.key.empty()) {
            if (text.find(note.key) == std::string::npos) {
                text = fmt::format("{}: {}", note.key, text);
            }
            throw Error(ErrorKind::BadInput, "", std::move(text), note.hint).about(note.key);
        }
        job.remarks.push_back(std::move(text));
    }
    job.nodes = job_nodes(plan);
    for (const std::string& key : keys_for_people(plan)) {
        job.remarks.push_back("not said here: " + key);
    }
    return job;
}

std::vector<FlagGroup> flag_groups(const PlacedPlan& plan, const MegatronJob& job) {
    std::vector<FlagGroup> groups{
        {.name = "MODEL"},
        {.name = "PARALLEL",
         .flags_with = "parallel virtual first-pipeline last-pipeline layout mapping "
                       "distributed overlap sharding fsdp cp-comm dispatcher scatter "
                       "num-distributed microbatch-group",
         .flags = {}},
        {.name = "TRAINING",
         .flags_with = "batch bf16 fp16 fp8 fp4 recompute offload optimizer clip-grad "
                       "grad-reduce accumulat main-params exp-avg precision-aware capacity "
                       "padding-for ckpt-format",
         .flags = {}}};
    std::vector<std::string> all = flags_of_line(job.plan.line());
    std::erase_if(all, [](const std::string& flag) { return flag.starts_with("--vocab-size "); });
    for (const std::string& flag : all) {
        const std::string_view name = std::string_view(flag).substr(0, flag.find(' '));
        const auto has_part = [&](const FlagGroup& group) {
            return std::ranges::any_of(words_in(group.flags_with), [&](std::string_view part) {
                return name.find(part) != std::string_view::npos;
            });
        };
        const auto found = std::ranges::find_if(groups, has_part);
        (found == groups.end() ? groups.front() : *found).flags.push_back(flag);
    }
    std::ranges::copy(training_flags(plan), std::back_inserter(groups.back().flags));
    return groups;
}

std::string stand_in_data(const MegatronJob& job) {
    const std::optional<int>& vocabulary = job.plan.flags.vocabulary;
    return fmt::format(
        "--mock-data --tokenizer-type NullTokenizer{}",
        vocabulary && *vocabulary > 1 ? fmt::format(" --vocab-size {}", *vocabulary - 1) : "");
}

std::vector<std::string> flags_of_line(std::string_view line) {
    std::vector<std::string> flags;
    for (const std::string_view word : words_in(line)) {
        if (word.starts_with("--") || flags.empty()) {
            flags.emplace_back(word);
        } else {
            flags.back() += fmt::format(" {}", word);
        }
    }
    return flags;
}

std::vector<std::string> training_flags(const PlacedPlan& plan) {
    const auto& training = plan.scenario.training;
    std::vector<std::string> flags{
        fmt::format("--train-iters {}", training.steps),
        fmt::format("--lr {}", real_text(training.learning_rate)),
        fmt::format("--lr-decay-style {}", to_string(training.learning_rate_schedule)),
        fmt::format("--lr-warmup-iters {}", training.warmup_steps)};
    if (training.final_learning_rate > 0) {
        flags.push_back(fmt::format("--min-lr {}", real_text(training.final_learning_rate)));
    }
    const AdamNumbers adam = adam_numbers(plan);
    flags.push_back(fmt::format("--weight-decay {}", real_text(adam.weight_decay)));
    if (traits(training.optimizer).has_betas) {
        flags.push_back(fmt::format("--adam-beta1 {} --adam-beta2 {} --adam-eps {}",
                                    real_text(adam.beta1),
                                    real_text(adam.beta2),
                                    real_text(adam.epsilon)));
    } else if (training.momentum) {
        flags.push_back(fmt::format("--sgd-momentum {}", real_text(*training.momentum)));
    }
    flags.push_back(fmt::format("--seed {}", training.seed));
    return flags;
}

}  // namespace pipetwin
