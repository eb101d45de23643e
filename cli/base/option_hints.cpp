#include "cli/base/option_hints.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/suggest.h"
#include "core/costs/shipped_profiles.h"
#include "core/scenario/scenario_tables.h"

namespace pipetwin::cli {

namespace {

/// What other programs call an option of ours.
struct ForeignOption {
    std::string_view theirs;
    std::string_view ours;
};

constexpr std::array foreign_options{ForeignOption{"--seq", "--sequence"},
                                     ForeignOption{"--seq-len", "--sequence"},
                                     ForeignOption{"--seq-length", "--sequence"},
                                     ForeignOption{"--sequence-length", "--sequence"},
                                     ForeignOption{"--max-seq-len", "--sequence"},
                                     ForeignOption{"--context", "--sequence"},
                                     ForeignOption{"--context-length", "--sequence"},
                                     ForeignOption{"--batch", "--batch-tokens"},
                                     ForeignOption{"--batch-size", "--batch-tokens"},
                                     ForeignOption{"--global-batch-size", "--batch-tokens"},
                                     ForeignOption{"--cost", "--price"},
                                     ForeignOption{"--gpu-price", "--price"},
                                     ForeignOption{"--dtype", "--precision"},
                                     ForeignOption{"--gpus", "--nodes"},
                                     ForeignOption{"--num-gpus", "--nodes"},
                                     ForeignOption{"--ngpus", "--nodes"},
                                     ForeignOption{"--devices", "--nodes"},
                                     ForeignOption{"--world-size", "--nodes"},
                                     ForeignOption{"--num-nodes", "--nodes"},
                                     ForeignOption{"--nnodes", "--nodes"},
                                     ForeignOption{"--gpu", "--cluster"},
                                     ForeignOption{"--hardware", "--cluster"},
                                     ForeignOption{"--schedules", "--schedule"},
                                     ForeignOption{"--output", "--out"},
                                     ForeignOption{"--nproc-per-node", "--ranks"},
                                     ForeignOption{"--np", "--ranks"},
                                     ForeignOption{"--verbose-level", "--verbose"}};

constexpr std::array<std::string_view, 10> commands_of_scenarios{
    "run", "simulate", "sweep", "plan", "profile", "model", "train", "launch", "check", "export"};

}  // namespace

std::string key_of_option(const std::string& option) {
    std::string word = option.substr(std::min(option.size(), option.find_first_not_of('-')));
    std::ranges::replace(word, '-', '_');
    for (const KeyGroup& group : all_key_groups()) {
        if (!group.where.starts_with('[') || group.where.starts_with("[[")) {
            continue;
        }
        std::vector<std::string_view> names;
        std::ranges::transform(group.keys, std::back_inserter(names), &KeyFacts::name);
        if (const std::string_view same = same_word(word, names); !same.empty()) {
            const std::string table = group.where.substr(1, group.where.find(']') - 1);
            return fmt::format("{}.{}", table, same);
        }
    }
    return "";
}

std::string hint_for_option(const std::string& command,
                            const std::string& word,
                            const std::vector<std::string_view>& known) {
    const auto* const foreign = std::ranges::find(foreign_options, word, &ForeignOption::theirs);
    if (foreign != foreign_options.end() && std::ranges::count(known, foreign->ours) > 0) {
        return foreign->ours == "--nodes"
                   ? "did you mean '--nodes'? 8 nodes of --cluster 8x-h100-sxm have 64 GPUs"
                   : fmt::format("did you mean '{}'?", foreign->ours);
    }
    const std::string_view near = nearest_word(word, known);
    const bool reads_scenario =
        std::ranges::find(commands_of_scenarios, command) != commands_of_scenarios.end();
    const std::string key = reads_scenario ? key_of_option(word) : "";
    if (!key.empty() && !near.starts_with(word)) {
        return fmt::format("it is a key of the scenario: --set {}=VALUE", key);
    }
    return near.empty() ? fmt::format("'pipetwin {} --help' lists its options", command)
                        : fmt::format("did you mean '{}'?", near);
}

std::string cluster_hint() {
    const std::vector<std::string> known = cluster_names();
    return known.empty() ? "name the kind of node to plan for: --cluster FILE.toml"
                         : fmt::format(
                               "name the kind of node to plan for, as in --cluster {}; "
                               "known: {}",
                               known.front(),
                               fmt::join(known, ", "));
}

}  // namespace pipetwin::cli
