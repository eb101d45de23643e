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

/// Words of names that speak of the model, its split, its batch, its memory or its precision.
constexpr std::string_view words_of_runs =
    "pipeline pp vpp virtual parallel parallelism tp cp ep fsdp zero shard sharding degree stage "
    "stages chunks layer layers block blocks depth width dim expert experts capacity head heads "
    "hidden ffn mlp vocab vocabulary seq seqlen sequence length lengths batch batchsize "
    "microbatch microbatches accumulation recompute remat offload offloading swap fp8 fp4 mxfp8 "
    "mxfp4 nvfp4 int8 quant quantize precision dtype lora peft adapter mamba ssm mtp encoder "
    "partition partitions splits layout moe topk attention attn conv residual";

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
                         .changes_run = true});
}

void SettingProblems::add_unknown(std::string place,
                                  std::string setting,
                                  std::string_view name,
                                  std::string_view why) {
    const std::string_view word = word_of_a_run(name);
    problems_.push_back(
        {.place = std::move(place),
         .setting = std::move(setting),
         .why = word.empty() ? std::string(why)
                             : fmt::format("{} ('{}' may say that it changes the run)", why, word),
         .changes_run = !word.empty()});
}

void SettingProblems::settle(LeaveOut leave_out,
                             std::vector<std::string>& warnings,
                             std::vector<std::string>& left_out) const {
    const auto stays = [leave_out](const Problem& problem) {
        return leave_out == LeaveOut::Nothing ||
               (leave_out == LeaveOut::Unknown && problem.changes_run);
    };
    std::vector<std::string> texts;
    std::string place;
    bool changes_run = false;
    for (const Problem& problem : problems_) {
        if (!stays(problem)) {
            continue;
        }
        place = texts.empty() ? problem.place : place;
        changes_run = changes_run || problem.changes_run;
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
                ? "no scenario can say that, so a prediction is of another run: --insist leaves it "
                  "out, and says so in the result"
                : "no scenario can say that: take it out of the file, or add --ignore-unknown, "
                  "which leaves it out with a warning");
    }
    for (const Problem& problem : problems_) {
        warnings.push_back(fmt::format("{}: {}: {}: {}",
                                       problem.place,
                                       problem.changes_run ? "changes the run, and is left out"
                                                           : "not understood, and left out",
                                       problem.setting,
                                       problem.why));
        if (problem.changes_run) {
            left_out.push_back(problem.setting);
        }
    }
}

}  // namespace pipetwin
