// SPDX-License-Identifier: Apache-2.0

// pipetwin's side of the comparison with other simulators; bench/peers/run calls it.
//
//   peers_ours --write FILE   the pipeline, for the other two: rows, costs, links, makespan
//   peers_ours FORM N         simulates it N times, one line each: makespan and processor time
//
// FORM: simulate is sim::simulate(), which chooses the engine of fixed orders and records every
// span; events the other engine, which keeps a queue; step the makespan alone, without spans.
//
// The pipeline: 16 unequal stages, 512 micro-batches, 1f1b, links of unequal latency and size.
// FILE, one statement per line, all times in whole nanoseconds:
//
//   pipetwin-peers 1
//   tasks 31744            compute actions and transfers
//   makespan_ns 9876543    what simulate() says
//   ranks 16
//   links 30
//   link 0 1 20000 1500000 sender, receiver, latency, and how long a message occupies it
//   row 2048               cells of the next rank: C duration, S link (send), R link (receive)
//   C 4000000
//   S 0
//
// No two messages are ever on one link together (checked here), so it does not matter whether a
// simulator queues them or lets them share the link.
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/timeline.h"
#include "sim/engine/conditions.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/fixed_order.h"
#include "sim/simulate/simulate.h"

namespace {

using namespace pipetwin;

constexpr int stage_count = 16;
constexpr int micro_batches = 512;

/// Unequal and irregular, but the same on every machine: an index spread over 0..range-1.
std::int64_t spread(int index, std::int64_t range) {
    return (index + 1) * std::int64_t{7'654'321} % range;
}

Plan make_pipeline() {
    PlainCosts costs;
    costs.schedule = ScheduleKind::OneFOneB;
    costs.schedule_name = "1f1b";
    costs.shape = {.ranks = stage_count, .micro_batches = micro_batches};
    for (int stage = 0; stage < stage_count; ++stage) {
        const Duration forward(4'000'000 + spread(stage, 2'000'000));
        costs.forward.push_back(forward);
        costs.backward.push_back(2 * forward + Duration(spread(stage, 1'000'003)));
    }
    costs.link = {.bytes_per_second = 1e9};
    costs.boundary = {1'000'000};
    const Plan uniform = make_plan(costs);

    // A byte takes a nanosecond, so no simulator rounds.
    auto stages = uniform->costs;
    auto links = uniform->links;
    for (std::size_t boundary = 0; boundary < links.size(); ++boundary) {
        const int index = static_cast<int>(boundary);
        links[boundary].latency = Duration(10'000 + spread(index, 40'000));
        const Bytes message{1'000'000 + spread(index, 1'500'000)};
        for (auto& of_class : stages) {
            of_class[boundary].output = message;
            of_class[boundary + 1].input = message;
        }
    }
    return uniform.with_costs(std::move(stages), std::move(links));
}

/// Processor time of this process: what other programs take does not count.
double now() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::size_t count_tasks(const Timeline& timeline) {
    std::size_t tasks = 0;
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            tasks += is_compute(span.action.op) ? 1U : 0U;
        }
    }
    for (const auto& row : timeline.links) {
        tasks += row.size();
    }
    return tasks;
}

void require_lonely_messages(const Plan& plan, const Timeline& timeline) {
    for (std::size_t link = 0; link < timeline.links.size(); ++link) {
        const auto& row = timeline.links[link];
        const Duration latency = plan->links[link / 2].latency;
        for (std::size_t i = 1; i < row.size(); ++i) {
            PIPETWIN_EXPECT(row[i - 1].end + latency < row[i].begin,
                            "a message leaves after the one before has arrived");
        }
    }
}

void write_cell(std::ofstream& out, const Plan& plan, const Action& action) {
    if (is_send(action.op)) {
        out << "S " << edge_of(plan->schedule, action) << '\n';
    } else if (is_receive(action.op)) {
        out << "R " << edge_of(plan->schedule, action) << '\n';
    } else {
        PIPETWIN_EXPECT(is_compute(action.op), "the rows compute, send and receive");
        out << "C " << plan.duration(action).count() << '\n';
    }
}

void write(const Plan& plan, std::string_view path) {
    const Timeline timeline = sim::simulate(plan);
    require_lonely_messages(plan, timeline);
    std::ofstream out{std::string(path)};
    out << "pipetwin-peers 1\n"
        << "tasks " << count_tasks(timeline) << '\n'
        << "makespan_ns " << pipeline_time(timeline).count() << '\n'
        << "ranks " << plan.rank_count() << '\n'
        << "links " << timeline.links.size() << '\n';
    for (std::size_t link = 0; link < timeline.links.size(); ++link) {
        const auto boundary = link / 2;
        const bool forward = link % 2 == 0;
        const Duration occupied =
            sim::occupation(plan->links[boundary], plan->costs.front()[boundary].output);
        out << "link " << boundary + (forward ? 0 : 1) << ' ' << boundary + (forward ? 1 : 0) << ' '
            << plan->links[boundary].latency.count() << ' ' << occupied.count() << '\n';
    }
    for (const auto& row : plan->schedule.ranks) {
        out << "row " << row.size() << '\n';
        for (const Action& action : row) {
            write_cell(out, plan, action);
        }
    }
    out.close();
    if (!out) {
        throw Error(ErrorKind::BadInput, std::string(path), "cannot be written");
    }
}

/// One line per call; the makespan is read from its result afterwards.
void measure(int runs, const auto& call, const auto& makespan_of) {
    for (int run = 0; run < runs; ++run) {
        const double begin = now();
        auto result = call();
        const double end = now();
        fmt::print(
            "makespan_ns {} seconds {:.9f}\n", makespan_of(std::move(result)).count(), end - begin);
    }
}

/// Another engine gets its line here.
void measure_form(std::string_view form, const Plan& plan, int runs) {
    // A caller that simulates again, as behind a slider, hands its last timeline back.
    Timeline last;
    const auto makespan = [&](Timeline timeline) {
        last = std::move(timeline);
        return pipeline_time(last);
    };
    if (form == "simulate") {
        measure(
            runs, [&] { return sim::simulate(plan, std::move(last)); }, makespan);
    } else if (form == "events") {
        measure(
            runs,
            [&] { return sim::by_events(plan, sim::planned_conditions(plan), std::move(last)); },
            makespan);
    } else if (form == "step") {
        measure(
            runs,
            [&] { return sim::step_in_fixed_order(plan, sim::planned_conditions(plan)); },
            std::identity{});
    } else {
        throw Error(ErrorKind::BadInput,
                    "form",
                    fmt::format("found '{}', expected simulate, events or step", form));
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 3) {
            fmt::print(stderr, "usage: peers_ours --write FILE | simulate|events|step N\n");
            return 2;
        }
        const std::string_view what = argv[1];
        if (what == "--write") {
            write(make_pipeline(), argv[2]);
        } else {
            measure_form(what, make_pipeline(), std::atoi(argv[2]));
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
