// SPDX-License-Identifier: Apache-2.0

// How long the plan search takes, how far its answer is from being proven, and beside what it would
// take to simulate every plan that is open.
//
//   build/release/bench/plan_speed [repetitions] [name]      "name": only questions that contain it
//
// Processor time and time by the clock, medians of the repetitions. "every plan" is what making and
// simulating all open plans would take in the same threads, from a random sample of those that fit
// the profile; a plan of more than 3 million actions counts as one of 3 million.
#include "bench/clocks.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "sim/search/plan_search.h"
#include "sim/search/trial.h"

namespace {

using namespace pipetwin;
using bench::seconds_of;

struct Question {
    std::string name;
    Scenario scenario;
    Profile profile;
};

/// Everything open on that many devices of a known cluster.
Scenario open_scenario(const std::string& cluster, int devices, int batch) {
    return parse_scenario(
        fmt::format("[model]\nkind = \"profile\"\nfile = \"none.json\"\n[training]\nbatch = {}\n"
                    "[cluster]\nprofile = \"{}\"\ncount = {}\nnode_link = \"infiniband-ndr\"\n",
                    batch,
                    cluster,
                    devices),
        "bench.toml",
        {},
        Unwritten::Auto);
}

Profile published(const std::string& name, const std::string& device) {
    const std::filesystem::path file = find_model(name);
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return estimated_profile(parse_hf_config(text, file.string()),
                             find_device(device),
                             {.sequence = 4096, .micro_batch_size = 1, .precision = "bf16"});
}

/// Layers of 1 to 1.2 ms forward, as long for each half of the backward.
Profile deep(int layers, unsigned seed) {
    std::mt19937 random(seed);
    Profile profile;
    profile.device = "h100-sxm";
    profile.precision = "bf16";
    for (int i = 0; i < layers; ++i) {
        LayerCost layer{.name = fmt::format("layer{}", i),
                        .parameter_count = 100'000'000,
                        .parameter_bytes = Bytes{200'000'000}};
        const std::int64_t time = 1'000'000 + static_cast<std::int64_t>(random() % 200'000);
        for (const int size : {1, 8}) {
            const Bytes boundary{size * std::int64_t{8'000'000}};
            layer.samples.push_back({.micro_batch_size = size,
                                     .forward = Duration{size * time},
                                     .backward_input = Duration{size * time},
                                     .backward_weight = Duration{size * time},
                                     .input = boundary,
                                     .output = i + 1 < layers ? boundary : Bytes{},
                                     .saved = Bytes{size * std::int64_t{100'000'000}}});
        }
        profile.layers.push_back(std::move(layer));
    }
    return profile;
}

std::vector<Question> questions() {
    std::vector<Question> result{
        {"Llama 3 8B, 8 H100, batch 64",
         open_scenario("8x-h100-sxm", 8, 64),
         published("llama-3-8b", "h100-sxm")},
        {"Llama 3 70B, 64 H100, batch 256",
         open_scenario("8x-h100-sxm", 64, 256),
         published("llama-3-70b", "h100-sxm")},
        {"1000 layers, 1,024 H100, batch 4096",
         open_scenario("8x-h100-sxm", 1024, 4096),
         deep(1000, 1)},
    };
    Question tensor = result[1];
    tensor.name += ", tensor parallel";
    tensor.scenario.pipeline.tensor_parallel.open();
    result.insert(result.begin() + 2, std::move(tensor));
    Question roomy = result.back();
    roomy.name += ", no limit of memory";
    roomy.scenario.cluster.memory_limit = Bytes{std::int64_t{1} << 50};
    result.push_back(std::move(roomy));
    return result;
}

/// Seconds of processor time that simulating every open plan takes, from a sample.
double all_plans(const Question& question, const Model& model, const sim::SearchResult& result) {
    std::mt19937 random(1);
    constexpr int wanted = 40;
    constexpr std::int64_t most = 3'000'000;
    const sim::SearchSpace space{question.scenario, model, question.profile};
    double seconds = 0;
    int sampled = 0;
    for (int tries = 0; sampled < wanted && tries < 50 * wanted; ++tries) {
        const sim::Shape& shape = result.shapes[random() % result.shapes.size()];
        const std::vector<sim::ScheduleChoice> choices =
            choices_of(question.scenario, model, question.profile, shape);
        const sim::Candidate candidate{shape, choices[random() % choices.size()]};
        if (std::int64_t{6} * shape.stages * candidate.choice.chunks * shape.micro_batches > most) {
            continue;
        }
        const double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        const sim::Outcome outcome = try_candidate(space, candidate, {{}});
        if (outcome.actions > 0) {
            seconds += seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin;
            ++sampled;
        }
    }
    const std::int64_t plans = result.searched + result.pruned;
    return sampled == 0 ? 0 : seconds / sampled * static_cast<double>(plans);
}

void print(const Question& question, int repetitions) {
    const Model model = scenario_model(question.scenario, &question.profile);
    std::vector<double> wall;
    std::vector<double> processor;
    sim::SearchResult result;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
        const double wall_begin = seconds_of(CLOCK_MONOTONIC);
        const double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        result = sim::search_plans(question.scenario, model, question.profile);
        processor.push_back(seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin);
        wall.push_back(seconds_of(CLOCK_MONOTONIC) - wall_begin);
    }
    std::ranges::sort(wall);
    std::ranges::sort(processor);
    const double own = processor[processor.size() / 2];
    const auto gap = [&](Duration bound) {
        return 100 * (1 - to_seconds(bound) / to_seconds(result.ranked.front().step));
    };
    fmt::print(
        "{}\n  {:.2f} s by the clock, {:.2f} s of processor time; {} plans open, {} "
        "simulated\n",
        question.name,
        wall[wall.size() / 2],
        own,
        result.candidates,
        result.searched);
    if (result.ranked.empty()) {
        fmt::print("  nothing fits\n");
        return;
    }
    fmt::print(
        "  step {:.3f} s; {}, gap {:.2f} %; any partition {:.2f} %; every plan one by one "
        "{:.0f} x as long\n",
        to_seconds(result.ranked.front().step),
        result.proven_optimal ? "proven" : "not proven",
        gap(result.lower_bound),
        gap(result.any_partition_bound),
        all_plans(question, model, result) / own);
}

int run(int argc, char** argv) {
    const int repetitions = argc > 1 ? std::atoi(argv[1]) : 3;
    const std::string only = argc > 2 ? argv[2] : "";
    if (repetitions < 1) {
        fmt::print(stderr, "usage: plan_speed [repetitions] [name]\n");
        return 2;
    }
    for (const Question& question : questions()) {
        if (question.name.find(only) != std::string::npos) {
            print(question, repetitions);
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return 1;
    }
}
