// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "core/model/model.h"
#include "core/scenario/division.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/schedule_traits.h"
#include "tests/cli/support.h"
#include "tests/support/soak.h"

// Drawn plans go out to another system and come back: a plan that the system cannot say is refused,
// does what the hint says, and is exported again.

namespace pipetwin::cli {
namespace job_round_trip_test {

using ::testing::HasSubstr;

/// Draws numbers and words; one object for each plan.
class Draw {
  public:
    explicit Draw(std::uint64_t number) : random_(number) {}

    int between(int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(random_);
    }
    bool one_of(int chances) { return between(1, chances) == 1; }
    template <class Value>
    Value of(std::initializer_list<Value> values) {
        return *(values.begin() + between(0, static_cast<int>(values.size()) - 1));
    }

  private:
    std::mt19937_64 random_;
};

/// What is drawn of a plan.
struct DrawnPlan {
    std::string model{};  ///< the table [model]
    std::string rest{};
    int stages = 1;
    int chunks = 1;
    int layers = 0;

    std::string text() const { return model + rest; }
};

/// So many blocks in each of so many stages, all at least one.
std::vector<int> drawn_partition(Draw& draw, int stages) {
    std::vector<int> blocks(static_cast<std::size_t>(stages));
    const bool is_even = draw.one_of(2);
    const int each = draw.between(1, 3);
    for (int& of_stage : blocks) {
        of_stage = is_even ? each : draw.between(1, 3);
    }
    return blocks;
}

std::string training_of(Draw& draw, int batch) {
    std::string text = fmt::format("[training]\nbatch = {}\n", batch);
    const std::string_view optimizer =
        draw.of<std::string_view>({"adamw", "adamw", "adam", "momentum"});
    text += fmt::format("optimizer = \"{}\"\n", optimizer);
    text += fmt::format("learning_rate = {}\n", draw.of({3e-4, 1e-3, 8e-5}));
    text +=
        fmt::format("steps = {}\nwarmup_steps = {}\n", draw.between(20, 90), draw.between(0, 9));
    text += fmt::format("learning_rate_schedule = \"{}\"\n",
                        draw.of({"constant", "linear", "cosine", "cosine", "inverse-sqrt"}));
    text += fmt::format("clip_norm = {}\n", draw.of({0.0, 1.0, 0.5}));
    if (draw.one_of(2)) {
        text += "weight_decay = 0.1\n";
    }
    if (draw.one_of(3)) {
        text += "precision = \"fp32\"\n";
    } else {
        text += fmt::format("precision = \"bf16\"\ngradients = \"{}\"\n",
                            draw.of({"fp32", "fp32", "same"}));
        if (draw.one_of(3)) {
            text += fmt::format("optimizer_state_bytes = {}\n", draw.of({4, 8, 12}));
        }
    }
    if (draw.one_of(8)) {
        text += "accumulation = \"separate\"\n";
    }
    return text;
}

std::string memory_of(Draw& draw, int replicas, int devices) {
    std::string text;
    const int recompute = draw.between(1, 8);
    if (recompute == 1) {
        text += fmt::format("recompute = \"block\"\nrecompute_blocks = {}\n", draw.between(1, 2));
    } else {
        text += fmt::format("recompute = \"{}\"\n",
                            draw.of({"none", "none", "block", "block", "selective", "always"}));
    }
    if (replicas > 1) {
        text += fmt::format("shard = \"{}\"\n",
                            draw.of({"none", "optimizer", "optimizer", "gradients", "weights"}));
        if (replicas == 4 && draw.one_of(3)) {
            text += "shard_group = 2\n";
        }
        if (draw.one_of(6)) {
            text += "overlap_reduction = true\n";
        }
    }
    if (devices > 1 && draw.one_of(8)) {
        text += "order = \"tp-cp-ep-pp-dp\"\n";
    }
    if (draw.one_of(12)) {
        text += "channel_capacity = 2\n";
    }
    return text;
}

std::string division_of(Draw& draw, int tensor, int context) {
    std::string text;
    if (tensor > 1) {
        const bool divides = !draw.one_of(4);
        text += fmt::format("tensor_parallel = {}\nsequence_parallel = {}\n", tensor, divides);
        text += fmt::format("tensor_overlap = {}\n", divides && draw.one_of(2));
    }
    if (context > 1) {
        text += fmt::format("context_parallel = {}\ncontext_method = \"{}\"\n",
                            context,
                            draw.of({"ring", "all-gather", "all-gather", "all-to-all"}));
    }
    return text;
}

/// A plan of a decoder of this kind in a pipeline, or without one.
DrawnPlan drawn_plan(std::uint64_t number, std::string_view kind) {
    Draw draw(number);
    const int stages = draw.of({1, 1, 2, 2, 3, 4, 4});
    const auto schedule = draw.of<std::string_view>({"1f1b",
                                                     "1f1b",
                                                     "gpipe",
                                                     "interleaved-1f1b",
                                                     "interleaved-1f1b",
                                                     "interleaved-zb",
                                                     "zb-v",
                                                     "zb-h1",
                                                     "looped-bfs"});
    const ChunkCounts counts = schedule_traits(schedule).chunks;
    const int chunks = counts == ChunkCounts::One   ? 1
                       : counts == ChunkCounts::Two ? 2
                                                    : draw.between(2, 3);
    const int micro_batches = stages * draw.between(1, 3);
    const int replicas = draw.of({1, 2, 2, 4});
    const int tensor = draw.of({1, 1, 2, 4});
    const int context = draw.of({1, 1, 1, 2});
    const std::vector<int> blocks = drawn_partition(draw, stages * chunks);
    const int samples = draw.between(1, 3);
    const bool is_odd = draw.one_of(10);
    const int batch = micro_batches * replicas * samples + (is_odd ? replicas : 0);
    DrawnPlan plan{.stages = stages, .chunks = chunks};
    plan.layers = std::accumulate(blocks.begin(), blocks.end(), 0);
    plan.model = fmt::format(
        "[model]\nkind = \"{}\"\nlayers = {}\nd_model = 64\nheads = 8\ncontext = 64\n"
        "vocabulary = 256\n{}",
        kind,
        plan.layers,
        kind == "llama" ? "feed_forward = 128\n" : "");
    plan.rest = training_of(draw, batch) +
                fmt::format(
                    "[pipeline]\nstages = {}\nchunks = {}\nschedule = \"{}\"\n"
                    "micro_batches = {}\ndata_parallel = {}\npartition = [{}]\n",
                    stages,
                    chunks,
                    schedule,
                    micro_batches,
                    replicas,
                    fmt::join(blocks, ", ")) +
                memory_of(draw, replicas, replicas * stages) + division_of(draw, tensor, context);
    return plan;
}

/// What is asked of two scenarios: that they are the same run. Keys without effect are left out.
std::string run_in_words(const Scenario& read, bool has_partition) {
    const SettledScenario scenario = settle(read);
    const auto& pipeline = scenario.pipeline;
    const auto& training = scenario.training;
    const bool in_pipeline = pipeline.stages > 1;
    const bool has_shares = pipeline.data_parallel > 1 || pipeline.context_parallel > 1;
    const bool is_narrow = training.precision == Precision::Bf16;
    // A group of blocks is at most a stage.
    const std::vector<int> blocks = pipeline.partition.value_or({pipeline.recompute_blocks});
    const int most_blocks = *std::max_element(blocks.begin(), blocks.end());
    std::string text =
        fmt::format("{} stages {} chunks {} micro-batches {} replicas batch {} {} clip {}",
                    pipeline.stages,
                    pipeline.chunks,
                    pipeline.micro_batches,
                    pipeline.data_parallel,
                    training.batch,
                    to_string(training.optimizer),
                    training.clip_norm);
    text += in_pipeline || pipeline.micro_batches > 1 ? " " + pipeline.schedule : "";
    text += fmt::format(" recompute {} {} {}",
                        static_cast<int>(pipeline.layer_recompute),
                        std::min(pipeline.recompute_blocks, most_blocks),
                        to_string(pipeline.recompute));
    text += has_shares ? fmt::format(" shard {} of {}",
                                     to_string(pipeline.shard),
                                     pipeline.shard == Shard::None ? 0 : group_size(scenario))
                       : "";
    text += fmt::format(" {}", to_string(training.precision));
    text += is_narrow ? fmt::format(" gradients {} state {}",
                                    to_string(training.gradients.value_or(GradientType::Fp32)),
                                    training.optimizer_state_bytes.value_or(12))
                      : "";
    text += pipeline.tensor_parallel > 1
                ? fmt::format(" tensor {} {} {}",
                              pipeline.tensor_parallel,
                              pipeline.sequence_parallel,
                              pipeline.sequence_parallel && pipeline.tensor_overlap.value_or(false))
                : "";
    text += pipeline.context_parallel > 1 ? fmt::format(" context {} {}",
                                                        pipeline.context_parallel,
                                                        to_string(pipeline.context_method))
                                          : "";
    text += in_pipeline && pipeline.data_parallel > 1
                ? fmt::format(" order {}", to_string(axis_order(scenario)))
                : "";
    // Gradients that replicas divide go into their sums with every micro-batch.
    text += pipeline.shard <= Shard::Optimizer
                ? fmt::format(" adds up {}", to_string(training.accumulation))
                : "";
    if (has_partition && in_pipeline) {
        const Model model = scenario_model(read);
        text += fmt::format(" partition {}",
                            fmt::join(scenario_partition(read, model)->layers_per_stage(), " "));
    }
    return text;
}

/// Settings that a hint names: "set it to X", about the key in front of the error, or "set KEY to
/// X", or "set KEY = X". A schedule that is to be written as a file becomes another one here.
std::map<std::string, std::string> settings_of_hint(const std::string& err) {
    static const std::regex about(R"(((?:pipeline|training|cluster)\.\w+))");
    static const std::regex it(R"(set it to ("[^"]*"|\[[^\]]*\]|\w[\w.]*))");
    static const std::regex other(
        R"(((?:pipeline|training|cluster)\.\w+) (?:to|=) ("[^"]*"|\w[\w.]*))");
    const std::size_t begin = err.find("hint: ");
    std::smatch key;
    std::smatch value;
    if (begin == std::string::npos || !std::regex_search(err, key, about)) {
        return {};
    }
    const std::string hint = err.substr(begin);
    if (hint.find("export torch-csv") != std::string::npos) {
        return {{"pipeline.schedule", "\"1f1b\""}, {"pipeline.chunks", "1"}};
    }
    if (std::regex_search(hint, value, it)) {
        return {{key.str(1), value.str(1)}};
    }
    std::map<std::string, std::string> settings;
    for (std::sregex_iterator at(hint.begin(), hint.end(), other); at != std::sregex_iterator();
         ++at) {
        settings[at->str(1)] = at->str(2);
    }
    return settings;
}

/// A system that a plan goes to and comes back from.
struct System {
    std::string format;    ///< of export
    std::string importer;  ///< of import
    std::string kind = "llama";
    bool has_partition = true;  ///< what comes back has the partition
    bool has_devices = true;    ///< what comes back says how many replicas there are
};

/// A partition of equal stages, as near as they get.
std::string equal_partition(int layers, int stages) {
    std::vector<int> blocks(static_cast<std::size_t>(stages), layers / stages);
    for (int i = 0; i < layers % stages; ++i) {
        ++blocks[static_cast<std::size_t>(i)];
    }
    return fmt::format("[{}]", fmt::join(blocks, ", "));
}

/// A fragment without its table [model].
std::string without_model(const std::string& fragment) {
    const std::size_t begin = fragment.find("[model]\n");
    if (begin == std::string::npos) {
        return fragment;
    }
    const std::size_t next = fragment.find("\n[", begin);
    return fragment.substr(0, begin) + fragment.substr(std::min(next, fragment.size() - 1) + 1);
}

class JobRoundTrip : public InFolder {
  protected:
    /// Exports a plan, doing as hints say, and imports it again.
    void expect_same_run(std::uint64_t number, const System& system) {
        DrawnPlan plan = drawn_plan(number, system.kind);
        if (!system.has_devices) {  // which nothing says the size of groups without
            plan.rest = std::regex_replace(plan.rest, std::regex("shard_group = 2\n"), "");
        }
        SCOPED_TRACE(fmt::format("plan {}, {}:\n{}", number, system.format, plan.text()));
        const std::string scenario = file("plan.toml", plan.text());
        const std::string out = path("job");
        std::map<std::string, std::string> set;  // by hints
        const auto tried = [&] {
            std::vector<std::string> args{
                "export", system.format, scenario, "--force", "--out", out};
            for (const auto& [key, value] : set) {
                args.insert(args.end(), {"--set", key + "=" + value});
            }
            return pipetwin(args);
        };
        Outcome exported = tried();
        for (int tries = 0; exported.code != 0 && tries < 12; ++tries) {
            EXPECT_EQ(exported.code, 3) << exported.err;
            ++refused_;
            const std::map<std::string, std::string> hint = settings_of_hint(exported.err);
            ASSERT_FALSE(hint.empty()) << exported.err;
            for (const auto& [key, value] : hint) {
                refused_keys_.insert(key);
                set[key] = value;
            }
            if (hint.contains("pipeline.chunks") || hint.contains("pipeline.stages")) {
                const auto whole = [&](const std::string& key, int drawn) {
                    return set.contains(key) ? std::stoi(set[key]) : drawn;
                };
                set["pipeline.partition"] = equal_partition(
                    plan.layers,
                    whole("pipeline.stages", plan.stages) * whole("pipeline.chunks", plan.chunks));
            }
            exported = tried();
        }
        const std::vector<Override> overrides = [&] {
            std::vector<Override> all;
            for (const auto& [key, value] : set) {
                all.push_back({key, value});
            }
            return all;
        }();
        ASSERT_EQ(exported.code, 0) << exported.err;
        const std::string back = path("back.toml");
        const Outcome imported =
            pipetwin({"import", system.importer, out, "--stack", "none", "--force", "--out", back});
        ASSERT_EQ(imported.code, 0) << imported.err << content_of(out);
        const Scenario before = parse_scenario(plan.text(), "plan.toml", overrides);
        std::vector<Override> replicas;  // as the note on the import says
        if (!system.has_devices) {
            replicas = {{"pipeline.data_parallel", fmt::to_string(*before.pipeline.data_parallel)},
                        {"pipeline.micro_batches", fmt::to_string(*before.pipeline.micro_batches)}};
        }
        const std::string fragment = content_of(back);
        if (fragment.find("kind = \"gpt\"") != std::string::npos) {
            EXPECT_EQ(parse_scenario(fragment, "back.toml").model, before.model);
        }
        Scenario after =
            parse_scenario(plan.model + without_model(fragment), "back.toml", replicas);
        if (!system.has_partition) {  // stages of one block have no groups of two
            after.pipeline.partition = before.pipeline.partition;
        }
        const bool has_partition = system.has_partition && !before.pipeline.partition.is_auto();
        EXPECT_EQ(run_in_words(after, has_partition), run_in_words(before, has_partition))
            << content_of(out) << imported.err;
    }

    void expect_same_runs(const System& system) {
        const int cases = tests::soaked(10);
        constexpr int most_failures = 5;
        for (int i = 0; i < cases && failures_ < most_failures; ++i) {
            const auto failures = [] {
                return ::testing::UnitTest::GetInstance()
                    ->current_test_info()
                    ->result()
                    ->total_part_count();
            };
            const int before = failures();
            expect_same_run(tests::seed() * 1'000'000 + static_cast<std::uint64_t>(i), system);
            failures_ += failures() > before ? 1 : 0;
        }
        std::cout << fmt::format("{}: {} plans, {} refusals about {}\n",
                                 system.format,
                                 cases,
                                 refused_,
                                 fmt::join(refused_keys_, " "));
    }

  private:
    int refused_ = 0;
    int failures_ = 0;
    std::set<std::string> refused_keys_;
};

TEST_F(JobRoundTrip, AConfigurationOfTorchtitanComesBack) {
    expect_same_runs({.format = "torchtitan-toml", .importer = "torchtitan"});
}

TEST_F(JobRoundTrip, AConfigurationOfDeepSpeedComesBack) {
    expect_same_runs({.format = "deepspeed", .importer = "deepspeed", .has_partition = false});
}

TEST_F(JobRoundTrip, ASlurmScriptComesBack) {
    expect_same_runs({.format = "sbatch", .importer = "megatron", .kind = "gpt"});
}

TEST_F(JobRoundTrip, OverridesOfMegatronBridgeComeBack) {
    expect_same_runs(
        {.format = "bridge", .importer = "megatron", .kind = "gpt", .has_devices = false});
}

}  // namespace job_round_trip_test
}  // namespace pipetwin::cli
