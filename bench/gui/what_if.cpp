// SPDX-License-Identifier: Apache-2.0

// How long a what-if takes from the slider to the run that is drawn, and a heat map.
//
//   build/release/bench/gui_what_if [repetitions] [part of the name of what is measured]
//
// Processor time, medians of the repetitions, and what that is of the bar. A run is all that is
// drawn and said of a what-if: rows, memory and figures; to the frame, with the timeline painted at
// 1920 x 1080. What the other panels say of waits and of the critical path comes after it, from a
// worker.
#include "gui/view/what_if/what_if.h"

#include "bench/clocks.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <QGuiApplication>
#include <QImage>
#include <QPainter>
#include <fmt/format.h>

#include "core/base/error.h"
#include "gui/timeline/timeline_painter.h"
#include "gui/view/analysis/step_analysis.h"
#include "gui/view/run/planned_run.h"
#include "gui/view/what_if/heat_map.h"
#include "gui/what_if/simulation_controller.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"

namespace {

using namespace pipetwin;
using bench::seconds_of;

/// Layers of 1 ms a part.
Profile even_profile(int layers) {
    Profile profile;
    for (int i = 0; i < layers; ++i) {
        LayerCost layer{.name = fmt::format("layer{}", i), .parameter_bytes = Bytes{4'000'000}};
        for (const int size : {1, 2, 4, 8, 16, 32}) {
            const Duration time = size * Duration{1'000'000};
            const Bytes boundary{size * std::int64_t{1'000'000}};
            layer.samples.push_back({.micro_batch_size = size,
                                     .forward = time,
                                     .backward_input = time,
                                     .backward_weight = time,
                                     .input = boundary,
                                     .output = i + 1 < layers ? boundary : Bytes{},
                                     .saved = 3 * boundary});
        }
        profile.layers.push_back(std::move(layer));
    }
    return profile;
}

gui::WhatIfSource source_of(int stages, int micro_batches, int batch) {
    const Profile profile = even_profile(stages);
    const Scenario written = parse_scenario(
        fmt::format("[model]\nkind = \"profile\"\nfile = \"none.json\"\n[training]\nbatch = {}\n"
                    "[pipeline]\nstages = {}\nmicro_batches = {}\nschedule = \"1f1b\"\n"
                    "[cluster]\nlink_gbps = 800\n",
                    batch,
                    stages,
                    micro_batches),
        "bench.toml");
    Model model = scenario_model(written, &profile);
    SettledScenario scenario = settle(written);
    Plan plan = sim::make_settled_plan(scenario, model, profile);
    auto run = std::make_shared<gui::RunData>();
    run->planned = std::make_shared<const gui::PlannedRun>(
        std::move(scenario), std::move(model), profile, std::move(plan));
    return gui::WhatIfSource(std::move(run));
}

std::shared_ptr<const gui::RunData> run_of(const gui::WhatIfSource& source,
                                           const gui::WhatIf& settings) {
    const gui::WhatIfResult result = gui::simulate_what_if(source, settings);
    PIPETWIN_EXPECT(result.run != nullptr, result.outcome.reason);
    return result.run;
}

/// The whole step, with as many ranks as possible in sight.
void paint(const gui::RunData& run, QImage& image) {
    gui::TimelineScene scene;
    scene.run = &run;
    scene.palette = gui::palette_of(gui::Theme::Light);
    scene.tracks = gui::tracks_of(run.twin.rank_count());
    scene.places = gui::StepPlaces(run.twin, scene.alignment);
    scene.size = image.size();
    scene.label_width = gui::label_width_for(run, QGuiApplication::font());
    scene.ruler_height = gui::ruler_height_for(&run, QGuiApplication::font());
    const gui::RowMetrics metrics = gui::filling(run.twin, scene.mode, scene.tracks, {}, 1, {});
    scene.layout = gui::layout_rows(run.twin, scene.mode, scene.tracks, metrics);
    scene.view = gui::fitted(Duration{0}, scene.places.length(), scene.time_width());
    QPainter painter(&image);
    gui::paint_timeline(painter, scene);
}

struct Wanted {
    int repetitions = 11;
    std::string name;  ///< a part of it
};

void print(const std::string& what,
           std::optional<double> bar,
           const Wanted& wanted,
           const std::function<void(int)>& once) {
    if (what.find(wanted.name) == std::string::npos) {
        return;
    }
    std::vector<double> seconds;
    once(0);  // memory is touched for the first time
    for (int repetition = 1; repetition <= wanted.repetitions; ++repetition) {
        const double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        once(repetition);
        seconds.push_back(seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin);
    }
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2];
    fmt::print("{:<46} {:8.2f} ms (from {:.2f} to {:.2f})",
               what,
               1e3 * median,
               1e3 * seconds.front(),
               1e3 * seconds.back());
    fmt::print(
        "{}\n",
        bar ? fmt::format(", {:.2f} of the bar of {:.0f} ms", median / *bar, 1e3 * *bar) : "");
}

void print_all(const Wanted& wanted) {
    constexpr double frame = 0.016;
    constexpr double map = 0.050;
    for (const auto& [stages, micro_batches] : {std::pair(8, 32), {16, 128}, {64, 1024}}) {
        const gui::WhatIfSource source = source_of(stages, micro_batches, micro_batches);
        const std::string size = fmt::format("K = {}, M = {}", stages, micro_batches);
        const auto latency_of = [&source](int repetition) {
            gui::WhatIf settings = source.settings();
            settings.latency_us = 1 + repetition;
            return settings;
        };
        const auto micro_batches_of = [&source](int repetition) {
            gui::WhatIf settings = source.settings();
            settings.micro_batches -= 1 + repetition % 4;
            return settings;
        };
        print("slider of a latency to run, " + size, std::nullopt, wanted, [&](int repetition) {
            run_of(source, latency_of(repetition));
        });
        print("slider of M to run, " + size, std::nullopt, wanted, [&](int repetition) {
            run_of(source, micro_batches_of(repetition));
        });
        QImage image(1920, 1080, QImage::Format_ARGB32_Premultiplied);
        print("slider to frame, " + size, frame, wanted, [&](int repetition) {
            paint(*run_of(source, latency_of(repetition)), image);
        });
        print("slider of M to frame, " + size, frame, wanted, [&](int repetition) {
            paint(*run_of(source, micro_batches_of(repetition)), image);
        });
        print("slider to all panels, " + size, std::nullopt, wanted, [&](int repetition) {
            const auto run = run_of(source, latency_of(repetition));
            const gui::StepAnalysis analysis(run, gui::Side::Predicted, 0);
            PIPETWIN_EXPECT(analysis.has_causes(), analysis.note());
        });
    }
    const gui::WhatIfSource source = source_of(16, 32, 32);
    print("heat map, 16 x 32", map, wanted, [&](int) {
        const gui::HeatMap cells = gui::heat_map(source, source.settings());
        PIPETWIN_EXPECT(cells.cells.size() == std::size_t{16} * 32, "the map is 16 x 32");
    });
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const QGuiApplication application(argc, argv);
        print_all({.repetitions = std::max(1, argc > 1 ? std::atoi(argv[1]) : 11),
                   .name = argc > 2 ? argv[2] : ""});
    } catch (const std::exception& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return 1;
    }
    return 0;
}
