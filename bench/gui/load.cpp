// SPDX-License-Identifier: Apache-2.0

// What the desktop program does with large runs: processor time to load a Chrome trace, to index
// its actions and to paint a frame, and the most memory that it took.
//
//   build/release/bench/gui_load [small] [load | index | paint]     "small": a tenth of it
//
// A run is 1f1b: 8 ranks with 1M actions, 64 ranks with 10M. Frames are 1920 x 1080 with both
// sides, the error strips and the memory curves; the median of 9. Bars: load 1 s and index 24 bytes
// an action, frames 8 ms and 16 ms.
#include "bench/clocks.h"
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <QGuiApplication>
#include <QImage>
#include <fmt/format.h>

#include "core/artifacts/chrome_trace.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/text/json_text.h"
#include "core/timeline/footprint.h"
#include "gui/timeline/timeline_painter.h"
#include "sim/simulate/simulate.h"

namespace {

using namespace pipetwin;
using namespace pipetwin::gui;

double now() {
    return bench::seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double peak_megabytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

struct Size {
    int ranks;
    int micro_batches;
    std::size_t actions;  ///< about so many
};

Plan plan_of(const Size& size) {
    PlainCosts costs;
    costs.schedule = ScheduleKind::OneFOneB;
    costs.schedule_name = "1f1b";
    costs.shape = {.ranks = size.ranks, .micro_batches = size.micro_batches};
    for (int stage = 0; stage < size.ranks; ++stage) {
        const int slower = (stage * 7) % 11 * 31'337;
        costs.forward.emplace_back(1'000'003 + slower);
        costs.backward.emplace_back(2'000'017 + 2 * slower);
    }
    costs.link = {.latency = Duration{5'000}, .bytes_per_second = 12.5e9};
    costs.boundary = Bytes{1'000'000};
    return make_plan(costs);
}

std::size_t actions_of(const Timeline& step) {
    std::size_t sum = 0;
    for (const auto& row : step.ranks) {
        sum += row.size();
    }
    return sum;
}

/// Steps that are each a little longer than the one before.
Trace measured_run(const Plan& plan, const Timeline& predicted, std::size_t actions) {
    Trace trace;
    trace.plan_hash = plan.hash();
    trace.schedule_name = "1f1b";
    trace.schedule = plan->schedule;
    const std::size_t steps = std::max<std::size_t>(1, actions / actions_of(predicted));
    for (std::size_t number = 0; number < steps; ++number) {
        Timeline step{.origin = Origin::Measured,
                      .ranks = predicted.ranks,
                      .links = {},
                      .host_copies = {},
                      .replicas = {}};
        const auto percent = static_cast<std::int64_t>(101 + number % 10);
        for (auto& row : step.ranks) {
            for (Span& span : row) {
                for (Duration* const time : {&span.begin, &span.ready, &span.end}) {
                    *time = *time * percent / 100;
                }
            }
        }
        trace.timelines.steps.push_back(std::move(step));
    }
    return trace;
}

void load(const Size& size) {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / fmt::format("gui_load.{}.json", ::getpid());
    std::size_t actions = 0;
    {
        const Plan plan = plan_of(size);
        const Trace trace = measured_run(plan, sim::simulate(plan), size.actions);
        actions = trace.timelines.steps.size() * actions_of(trace.timelines.steps.front());
        write_file(file, print_chrome_trace(trace));
    }
    const double begin = now();
    const Trace trace = read_chrome_trace(file);
    const double seconds = now() - begin;
    fmt::print("load   {:>8} actions  {:7.3f} s   {:6.0f} MB of text  {} steps\n",
               actions,
               seconds,
               static_cast<double>(std::filesystem::file_size(file)) / 1e6,
               trace.timelines.steps.size());
    std::filesystem::remove(file);
}

RunData run_of(const Size& size) {
    RunData run;
    const Plan plan = plan_of(size);
    const Timeline predicted = sim::simulate(plan);
    TimelineSet both{
        .steps = {predicted}, .peak_bytes = {}, .breakdown = {}, .replayed_step = {}, .noise = {}};
    const std::vector<MemoryCurve> memory = footprint(plan, predicted);
    DrawnSide first = drawn_side(both, memory);
    const Trace trace = measured_run(plan, predicted, size.actions);
    const double begin = now();
    DrawnSide second = drawn_side(trace.timelines, memory);
    const double seconds = now() - begin;
    std::size_t bytes = 0;
    std::size_t actions = 0;
    for (const StepRows& step : second.steps) {
        for (const RowIndex& row : step.ranks) {
            bytes += row.bytes();
            actions += static_cast<std::size_t>(row.size());
        }
    }
    fmt::print("index  {:>8} actions  {:7.3f} s   {:6.1f} bytes an action\n",
               actions,
               seconds,
               static_cast<double>(bytes) / static_cast<double>(actions));
    run.twin = {.predicted = std::move(first.steps), .measured = std::move(second.steps)};
    run.predicted = std::move(first.data);
    run.measured = std::move(second.data);
    run.schedule_name = "1f1b";
    run.micro_batches = size.micro_batches;
    return run;
}

double frame(const TimelineScene& scene, QImage& image) {
    std::vector<double> seconds;
    for (int i = 0; i < 9; ++i) {
        QPainter painter(&image);
        const double begin = now();
        paint_timeline(painter, scene);
        seconds.push_back(now() - begin);
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
}

void paint(const RunData& run) {
    QImage image(1920, 1080, QImage::Format_ARGB32_Premultiplied);
    TimelineScene scene;
    scene.run = &run;
    scene.palette = palette_of(Theme::Light);
    scene.tracks = tracks_of(run.twin.rank_count());
    scene.places = StepPlaces(run.twin, scene.alignment);
    scene.size = image.size();
    scene.label_width = label_width_for(run, QGuiApplication::font());
    scene.ruler_height = ruler_height_for(&run, QGuiApplication::font());
    // Rows as low as they get, so that as many ranks as possible are in sight.
    const RowMetrics metrics = filling(run.twin, scene.mode, scene.tracks, {}, 1, {});
    scene.layout = layout_rows(run.twin, scene.mode, scene.tracks, metrics);
    const Duration length = scene.places.length();
    for (const int zoom : {1, 10, 1000}) {
        scene.view = fitted(
            length / 2 - length / (2 * zoom), length / 2 + length / (2 * zoom), scene.time_width());
        fmt::print("frame  {:>8} ranks  x{:<5} {:7.2f} ms\n",
                   run.twin.rank_count(),
                   zoom,
                   1e3 * frame(scene, image));
    }
}

void measure(const std::vector<std::string>& words) {
    const auto has = [&](const char* word) { return std::ranges::count(words, word) > 0; };
    const bool all = !has("load") && !has("index") && !has("paint");
    const std::size_t part = has("small") ? 10 : 1;
    if (all || has("load")) {
        load({.ranks = 8, .micro_batches = 100, .actions = 1'000'000 / part});
        fmt::print("peak   {:.0f} MB, of which the text to write is most\n", peak_megabytes());
    }
    for (const Size& size : {Size{8, 100, 1'000'000 / part}, Size{64, 512, 10'000'000 / part}}) {
        if (all || has("index") || has("paint")) {
            const RunData run = run_of(size);
            if (all || has("paint")) {
                paint(run);
            }
            fmt::print("peak   {:.0f} MB\n", peak_megabytes());
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    qputenv("QT_QPA_PLATFORM", "offscreen");
    const QGuiApplication application(argc, argv);
    try {
        measure({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
