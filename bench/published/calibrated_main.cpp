// SPDX-License-Identifier: Apache-2.0

// Published runs as calibrations of each other: of every set that is no hold-out, the runs of one
// model, each predicted by the factor of all others.
//
//   build/release/bench/published_calibration [folder]
//   build/release/bench/published_calibration --stacks [folder] [needs]   runs with stacks that
//   correct their stacks; "needs": of sets that need a stack alone
#include "bench/published/calibrated_runs.h"
#include "bench/published/calibrated_stacks.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/median.h"

namespace {

using namespace pipetwin;
using namespace pipetwin::published;

/// Distances from what was measured, as shares.
struct Errors {
    std::vector<double> estimated;
    std::vector<double> by_others;
};

/// Distances of steps, and of the peaks that are stated.
struct RunErrors {
    Errors steps;
    Errors peaks;
};

void add_all(Errors& all, const Errors& more) {
    all.estimated.insert(all.estimated.end(), more.estimated.begin(), more.estimated.end());
    all.by_others.insert(all.by_others.end(), more.by_others.begin(), more.by_others.end());
}

void print_errors(const std::string& what, const Errors& errors) {
    if (errors.by_others.empty()) {
        return;
    }
    fmt::print(
        "{:<44} {:3} runs   estimated {:5.1f} %, by the others {:5.1f} % (medians), "
        "at most {:5.1f} % and {:5.1f} %\n",
        what,
        errors.estimated.size(),
        100 * median(errors.estimated),
        100 * median(errors.by_others),
        100 * std::ranges::max(errors.estimated),
        100 * std::ranges::max(errors.by_others));
}

void add_model(const Set& set, const ModelRuns& of, RunErrors& all) {
    try {
        const sim::Calibration found = sim::calibrate_by_runs(of.runs, of.model, of.profile);
        RunErrors errors;
        for (const sim::CalibratedRun& run : found.runs) {
            errors.steps.estimated.push_back(std::abs(run.predicted_step / run.measured_step - 1));
            errors.steps.by_others.push_back(std::abs(run.leave_one_out_error.value_or(0)));
            if (run.leave_one_out_peak_error) {
                const double share = static_cast<double>(run.predicted_peak.count) /
                                     static_cast<double>(run.measured_peak->count);
                errors.peaks.estimated.push_back(std::abs(share - 1));
                errors.peaks.by_others.push_back(std::abs(*run.leave_one_out_peak_error));
            }
        }
        print_errors(fmt::format("{}: {}, x {:.2f}", set.name, of.name, found.compute_factor),
                     errors.steps);
        print_errors(fmt::format("  memory, x {:.2f}", found.memory_factor.value_or(1)),
                     errors.peaks);
        add_all(all.steps, errors.steps);
        add_all(all.peaks, errors.peaks);
    } catch (const Error& error) {
        fmt::print("{}: {}: {}: {}\n", set.name, of.name, error.place(), error.text());
    }
}

int run(const std::string& folder) {
    RunErrors all;
    for (const Set& set : read_sets(folder)) {
        if (set.hold_out) {
            continue;
        }
        for (const ModelRuns& of : runs_by_model(set)) {
            if (of.runs.size() > 1) {
                add_model(set, of, all);
            }
        }
    }
    print_errors("all", all.steps);
    print_errors("all, memory", all.peaks);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::vector<std::string> words(argv + 1, argv + argc);
        const bool of_stacks = !words.empty() && words.front() == "--stacks";
        words.erase(words.begin(), words.begin() + (of_stacks ? 1 : 0));
        const std::string folder =
            words.empty() ? PIPETWIN_SOURCE_DIR "/scenarios/published" : words.front();
        if (!of_stacks) {
            return run(folder);
        }
        std::vector<Set> sets = read_sets(folder);
        if (words.size() > 1) {
            std::erase_if(sets, [](const Set& set) { return !set.needs_stack; });
        }
        fmt::print("{}", corrected_tables(sets));
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return 1;
    }
}
