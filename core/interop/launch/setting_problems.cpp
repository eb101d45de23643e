// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/setting_problems.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/word_list.h"

namespace pipetwin {

namespace {

/// Words of names that speak of the model, what of it is trained, its split, its schedule, its
/// batch, its memory or its precision.
constexpr std::string_view words_of_runs =
    "pipeline pp vpp virtual parallel parallelism tp cp ep fsdp zero shard sharding degree stage "
    "stages chunks layer layers block blocks depth width dim expert experts capacity head heads "
    "hidden ffn mlp vocab vocabulary seq seqlen sequence length lengths batch batchsize "
    "microbatch microbatches accumulation recompute remat offload offloading swap fp8 fp4 mxfp8 "
    "mxfp4 nvfp4 int8 quant quantize precision dtype lora peft adapter mamba ssm mtp encoder "
    "partition partitions splits layout moe topk attention attn conv residual pipe spec schedule "
    "interleave interleaved zb dualpipe bubble freeze frozen tuner distill distillation teacher "
    "packing packed window sliding gated glu tied untied embedding embeddings optimizer "
    "expansion feedforward intermediate checkpointing bf16 fp16 fp32 half amp";

}  // namespace

const SettingGroup* group_with(std::span<const SettingGroup> groups, std::string_view name) {
    const auto found = std::ranges::find_if(
        groups, [name](const SettingGroup& group) { return has_word(group.names, name); });
    return found == groups.end() ? nullptr : &*found;
}

std::string_view word_of_a_run(std::string_view name) {
    while (!name.empty()) {
        const std::size_t end = std::min(name.find_first_of("-_."), name.size());
        const std::string_view word = name.substr(0, end);
        if (has_word(words_of_runs, word)) {
            return word;
        }
        name.remove_prefix(std::min(end + 1, name.size()));
    }
    return {};
}

void SettingProblems::add(std::string place, std::string setting, std::string_view why) {
    problems_.push_back({.place = std::move(place),
                         .setting = std::move(setting),
                         .why = std::string(why),
                         .kind = Kind::ChangesRun});
}

void SettingProblems::add_unknown(std::string place,
                                  std::string setting,
                                  std::string_view name,
                                  std::string_view why,
                                  std::string_view meant) {
    const std::string_view word = word_of_a_run(name);
    const Kind kind = !word.empty()    ? Kind::ChangesRun
                      : !meant.empty() ? Kind::Slip
                                       : Kind::Unknown;
    std::string text =
        meant.empty() ? std::string(why) : fmt::format("{}, did you mean '{}'?", why, meant);
    if (!word.empty()) {
        text += fmt::format(" ('{}' may say that it changes the run)", word);
    }
    problems_.push_back({.place = std::move(place),
                         .setting = std::move(setting),
                         .why = std::move(text),
                         .kind = kind});
}

void SettingProblems::settle(LeaveOut leave_out,
                             std::vector<std::string>& warnings,
                             std::vector<std::string>& left_out) const {
    const auto stays = [leave_out](const Problem& problem) {
        return (problem.kind == Kind::ChangesRun && leave_out != LeaveOut::All) ||
               (problem.kind == Kind::Slip && leave_out == LeaveOut::Nothing);
    };
    std::vector<std::string> texts;
    std::string place;
    bool changes_run = false;
    for (const Problem& problem : problems_) {
        if (!stays(problem)) {
            continue;
        }
        place = texts.empty() ? problem.place : place;
        changes_run = changes_run || problem.kind == Kind::ChangesRun;
        texts.push_back(problem.setting == problem.place
                            ? problem.why
                            : fmt::format("{}: {}", problem.setting, problem.why));
    }
    if (!texts.empty()) {
        throw Error(
            ErrorKind::BadInput,
            place,
            fmt::format("{}", fmt::join(texts, "; ")),
            changes_run
                ? "no scenario can say that, so a prediction may be of another run: --insist "
                  "leaves "
                  "it out, and says so in the result"
                : "write the name that was meant, or add --ignore-unknown, which leaves out what "
                  "is "
                  "not known");
    }
    std::vector<std::string_view> unknown;
    for (const Problem& problem : problems_) {
        if (problem.kind == Kind::ChangesRun) {
            warnings.push_back(fmt::format("{}: changes the run, and is left out: {}: {}",
                                           problem.place,
                                           problem.setting,
                                           problem.why));
            left_out.push_back(problem.setting);
            continue;
        }
        place = unknown.empty() ? problem.place : place;
        unknown.push_back(problem.setting);
    }
    if (!unknown.empty()) {
        warnings.push_back(
            fmt::format("{}: not known here, and left out: {}", place, fmt::join(unknown, "; ")));
    }
}

}  // namespace pipetwin
