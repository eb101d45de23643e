// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/metrics.h"
#include "core/timeline/render_timeline.h"
#include "sim/simulate/simulate.h"
#include "tests/support/places.h"
#include "tests/support/plain_plan.h"

/// A schedule in, its timeline as text out. Each file of tests/golden begins with lines `key =
/// value`, then an empty line, then the picture. With PIPETWIN_UPDATE_GOLDEN=1 in the environment
/// the pictures are written anew: look at every changed character, and give the reason for it in
/// the commit.
namespace pipetwin::sim {
namespace golden_test {

namespace fs = std::filesystem;

const fs::path folder = fs::path(places::source_folder()) / "tests" / "golden";

struct Golden {
    std::string head;     ///< the `key = value` lines as they stand
    std::string picture;  ///< everything after the empty line
    PlainCosts costs;
    Duration column = testing::milliseconds(1);
};

std::vector<Duration> milliseconds_of(const std::string& list, int stages) {
    std::vector<Duration> durations;
    std::istringstream in(list);
    for (double ms = 0; in >> ms;) {
        durations.push_back(from_milliseconds(ms, "golden file"));
    }
    if (durations.size() == 1) {
        durations.resize(static_cast<std::size_t>(stages), durations.front());
    }
    return durations;
}

Recompute recompute_of(const std::string& name) {
    for (const Recompute recompute : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
        if (to_string(recompute) == name) {
            return recompute;
        }
    }
    throw std::runtime_error("no recompute mode " + name);
}

void set(Golden& golden, const std::string& key, const std::string& value) {
    PlainCosts& costs = golden.costs;
    const int stages = costs.shape.ranks;
    if (key == "schedule") {
        costs.schedule = schedule_kind(value);
        costs.schedule_name = value;
    } else if (key == "stages") {
        costs.shape.ranks = std::stoi(value);
    } else if (key == "micro_batches") {
        costs.shape.micro_batches = std::stoi(value);
    } else if (key == "forward_ms") {
        costs.forward = milliseconds_of(value, stages);
    } else if (key == "backward_ms") {
        costs.backward = milliseconds_of(value, stages);
    } else if (key == "recompute_ms") {
        costs.recompute_cost = milliseconds_of(value, stages);
    } else if (key == "latency_ms") {
        costs.link.latency = milliseconds_of(value, 1).front();
    } else if (key == "recompute") {
        costs.recompute = recompute_of(value);
    } else if (key == "recompute_timing") {
        costs.recompute_timing = value == "lazy" ? RecomputeTiming::Lazy : RecomputeTiming::Eager;
    } else if (key == "channel_capacity") {
        costs.channel_capacity = std::stoi(value);
    } else if (key == "column_ms") {
        golden.column = milliseconds_of(value, 1).front();
    } else {
        throw std::runtime_error("unknown key " + key);
    }
}

Golden read(const fs::path& file) {
    std::ifstream in(file);
    Golden golden;
    std::string line;
    while (std::getline(in, line) && !line.empty()) {
        golden.head += line + "\n";
        const auto equals = line.find(" = ");
        set(golden, line.substr(0, equals), line.substr(equals + 3));
    }
    std::ostringstream rest;
    rest << in.rdbuf();
    golden.picture = rest.str();
    return golden;
}

/// The picture and below it the figures: pipeline time, bubble, and for every rank its largest
/// number of live activations.
std::string draw(const Golden& golden) {
    const Plan plan = make_plan(golden.costs);
    const Timeline timeline = simulate(plan);
    const Metrics metrics = measure(plan, timeline);
    std::string text = render_timeline(timeline, golden.column);
    text += fmt::format("\ntime {} ms, bubble {:.4f}, live activations",
                        to_milliseconds(metrics.makespan),
                        metrics.bubble.total);
    for (const DeviceMetrics& device : metrics.devices) {
        text += fmt::format(" {}", device.peak_live_activations);
    }
    return text + "\n";
}

std::vector<std::string> golden_names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
        names.push_back(entry.path().stem().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

class GoldenTimeline : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTimeline, IsAsTheFileShowsIt) {
    const fs::path file = folder / (GetParam() + ".txt");
    const Golden golden = read(file);
    const std::string picture = draw(golden);
    const char* const update = std::getenv("PIPETWIN_UPDATE_GOLDEN");
    if (update != nullptr && std::string_view(update) == "1") {
        std::ofstream(file) << golden.head << "\n" << picture;
        return;
    }
    EXPECT_EQ(picture, golden.picture) << file.string();
}

INSTANTIATE_TEST_SUITE_P(Files,
                         GoldenTimeline,
                         ::testing::ValuesIn(golden_names()),
                         [](const auto& file) { return file.param; });

}  // namespace golden_test
}  // namespace pipetwin::sim
