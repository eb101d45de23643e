// SPDX-License-Identifier: Apache-2.0
#include "sim/search/module_choice.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/scenario/planner.h"
#include "core/text/json_text.h"
#include "core/timeline/footprint.h"
#include "sim/search/plan_search.h"

namespace pipetwin::sim {
namespace module_choice_test {

Profile costs_of(const std::string& name, int blocks) {
    const std::filesystem::path file = find_model(name);
    DecoderModel model = parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    model.blocks = blocks;
    if (!model.has_experts.empty()) {
        model.has_experts.resize(static_cast<std::size_t>(blocks));
    }
    return estimated_profile(
        model, find_device("h100-sxm"), {.sequence = 4096, .precision = "bf16"});
}

/// Four stages of two blocks, of which the first has four micro-batches at once and the last one.
Scenario scenario_with(const std::string& keys, const std::string& cluster = "") {
    return parse_scenario(
        "[model]\nkind = \"profile\"\nfile = \"none.json\"\n"
        "[training]\nbatch = 8\n"
        "[cluster]\ndevice = \"h100-sxm\"\nper_node = 8\nstack = \"none\"\n" +
            cluster +
            "[pipeline]\nschedule = \"1f1b\"\nstages = 4\nmicro_batches = 8\n"
            "recompute = \"none\"\npartition = [2, 2, 2, 2]\n" +
            keys,
        "s.toml");
}

SearchResult search(const Scenario& scenario, const Profile& profile) {
    SearchOptions options;
    options.finds_closest = false;
    return search_plans(scenario, scenario_model(scenario, &profile), profile, options);
}

std::optional<Duration> step_of(const Scenario& scenario, const Profile& profile) {
    const SearchResult result = search(scenario, profile);
    return result.ranked.empty() ? std::nullopt : std::optional(result.ranked.front().step);
}

/// Peak of the fullest rank.
Bytes peak_with(const std::string& keys, const Profile& profile) {
    const SettledScenario scenario = settle(scenario_with(keys));
    const Model model = scenario_model(scenario, &profile);
    return std::ranges::max(peak_totals(make_plan(scenario, model, profile, RowsFrom::Generator)));
}

class Auto : public ::testing::TestWithParam<std::pair<std::string, std::vector<std::string>>> {};

/// Limits between what all modules leave and what no module needs.
TEST_P(Auto, IsNeverSlowerThanOneWordForAllStages) {
    const auto& [name, words] = GetParam();
    const Profile profile = costs_of(name, 8);
    std::string all;
    for (const std::string& word : words) {
        all += (all.empty() ? "\"" : ", \"") + word + "\"";
    }
    const Bytes most = peak_with("", profile);
    const Bytes least = peak_with("recompute_modules = [" + all + "]\n", profile);
    ASSERT_LT(least, most);
    std::mt19937_64 random(59);
    std::uniform_int_distribution<std::int64_t> limit(least.count, most.count);
    int found = 0;
    for (int question = 0; question < 40; ++question) {
        const std::string cluster = fmt::format("memory_limit = {}\n", limit(random));
        const Scenario open = scenario_with("recompute_modules = \"auto\"\n", cluster);
        const SearchResult result = search(open, profile);
        const bool has_any = !result.ranked.empty();
        found += has_any ? 1 : 0;
        for (const std::string& word : words) {
            const auto step = step_of(
                scenario_with("recompute_modules = [\"" + word + "\"]\n", cluster), profile);
            if (step) {
                ASSERT_TRUE(has_any) << cluster << word;
                ASSERT_LE(result.ranked.front().step, *step) << cluster << word;
            }
        }
        if (has_any) {
            const SettledScenario planned = with_plan(open, result.ranked.front());
            const Scenario again = parse_scenario(print_scenario(planned.as_scenario()), "s.toml");
            ASSERT_EQ(again.pipeline.recompute_modules, result.ranked.front().modules);
            ASSERT_EQ(step_of(again, profile), result.ranked.front().step);
        }
    }
    EXPECT_GT(found, 30);
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    Auto,
    ::testing::Values(std::pair(std::string("llama-3-8b"),
                                std::vector<std::string>{"core_attn", "layernorm", "mlp"}),
                      std::pair(std::string("mixtral-8x7b"),
                                std::vector<std::string>{
                                    "core_attn", "layernorm", "moe_act", "moe"})));

TEST(ModulesAsNeeded, RecomputesNothingWhereEverythingFits) {
    const Profile profile = costs_of("llama-3-8b", 8);
    const SearchResult result = search(scenario_with("recompute_modules = \"auto\"\n"), profile);
    ASSERT_FALSE(result.ranked.empty());
    EXPECT_TRUE(result.ranked.front().modules.empty());
    EXPECT_EQ(result.ranked.front().step, step_of(scenario_with(""), profile));
}

/// The first stage of 1F1B has as many micro-batches as there are stages, the last has one.
TEST(ModulesAsNeeded, RecomputesMoreOnStagesThatHaveMore) {
    const Profile profile = costs_of("llama-3-8b", 8);
    const Bytes most = peak_with("", profile);
    const SearchResult result =
        search(scenario_with("recompute_modules = \"auto\"\n",
                             fmt::format("memory_limit = {}\n", most.count - 1)),
               profile);
    ASSERT_FALSE(result.ranked.empty());
    const ModuleLists& modules = result.ranked.front().modules;
    EXPECT_EQ(std::ranges::count_if(modules.of_piece,
                                    [](const RecomputeModules& list) { return !list.empty(); }),
              1);
}

}  // namespace module_choice_test
}  // namespace pipetwin::sim
