// SPDX-License-Identifier: Apache-2.0

// Training runs that other people measured beside what we predict of them, set by set.
//
//   build/release/bench/published [folder] [name]     "name": only sets whose name contains it
//   build/release/bench/published --csv [folder] [name]     one line for each run
//   build/release/bench/published --ranges [folder] [name]  what estimate_error and order_error
//   hold
//   build/release/bench/published --stacks [folder] [name]  errors of runs with a stack, in sample
//   and with each source left out, by set, stack, device and precision
//   build/release/bench/published --peaks [folder] [name]   peaks by kind, and their errors
//   build/release/bench/published --evidence FILE           writes profiles/stacks/evidence.json
//
// A run that is predicted not to fit although it ran is marked so; its step is predicted all the
// same.
#include "bench/published/published_runs.h"
#include "bench/published/stack_runs.h"
#include "bench/published/stack_tables.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/text/json_text.h"

namespace {

using namespace pipetwin;
using namespace pipetwin::published;

double percent(double predicted, double measured) {
    return 100 * (predicted / measured - 1);
}

double gib(Bytes bytes) {
    return static_cast<double>(bytes.count) / (1 << 30);
}

void print_memory(const char* what, std::optional<Bytes> measured, Bytes predicted) {
    if (measured) {
        fmt::print("      {:<12} {:8.2f} GiB, predicted {:8.2f} {:+7.1f} %\n",
                   what,
                   gib(*measured),
                   gib(predicted),
                   percent(gib(predicted), gib(*measured)));
    }
}

/// Pairs that are further apart than this are to come in the right order.
constexpr double apart = 1.05;

void print_order(const Set& set, const Order& order) {
    fmt::print("  order: {}\n", order.text);
    std::vector<double> times;
    for (const std::string& name : order.runs) {
        const auto run = std::ranges::find(set.runs, name, &Run::name);
        if (run == set.runs.end()) {
            fmt::print("    no row '{}'\n", name);
            continue;
        }
        const Prediction of = predict(*run);
        const double rate = of.step_seconds ? *of.step_seconds / run->batch : 0;
        times.push_back(rate);
        fmt::print(
            "    {:<34} {:.5f} s a sample{}\n", name, rate, of.fits ? "" : " (does not fit)");
    }
    fmt::print("    {}\n", std::ranges::is_sorted(times) ? "right" : "WRONG");
}

void print_set(const Set& set) {
    fmt::print("\n{}{}\n  {}\n", set.name, set.hold_out ? " (held out)" : "", set.source);
    std::vector<double> errors;
    std::vector<std::pair<double, double>> pairs;  // measured, predicted rate
    int refused = 0;
    for (const Run& run : set.runs) {
        const Prediction of = predict(run);
        if (!of.step_seconds) {
            ++refused;
            fmt::print("  {:<34} refused: {}\n", run.name, of.refused);
            continue;
        }
        const bool wrong = run.fits && of.fits != *run.fits;
        refused += run.fits.value_or(false) && !of.fits ? 1 : 0;
        if (run.step_seconds) {
            const double error = percent(*of.step_seconds, *run.step_seconds);
            errors.push_back(std::abs(error));
            const double samples = run.batch / static_cast<double>(run.devices);
            pairs.emplace_back(samples / *run.step_seconds, samples / *of.step_seconds);
            fmt::print("  {:<34} {:9.3f} s, predicted {:9.3f} {:+6.1f} %   peak {:6.1f} GiB{}\n",
                       run.name,
                       *run.step_seconds,
                       *of.step_seconds,
                       error,
                       gib(of.peak.total()),
                       wrong ? "  FITS IS WRONG" : "");
        } else {
            fmt::print("  {:<34} predicted {:9.3f} s   peak {:6.1f} GiB{}\n",
                       run.name,
                       *of.step_seconds,
                       gib(of.peak.total()),
                       wrong ? "  FITS IS WRONG" : "");
        }
        print_memory("peak", run.peak, of.shown_peak);
        print_memory("state", run.state, of.block_state);
        print_memory("activations", run.activations, of.block_stash);
    }
    for (const Order& order : set.orders) {
        print_order(set, order);
    }
    if (errors.empty()) {
        return;
    }
    int right = 0;
    int all = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const double measured = pairs[i].first / pairs[j].first;
            if (measured > apart || measured < 1 / apart) {
                ++all;
                right += (measured > 1) == (pairs[i].second > pairs[j].second) ? 1 : 0;
            }
        }
    }
    double mean = 0;
    for (const double error : errors) {
        mean += error / static_cast<double>(errors.size());
    }
    std::ranges::sort(errors);
    fmt::print(
        "  {} rows: median {:.1f} %, mean {:.1f} %, largest {:.1f} %; {} refused or said not to "
        "fit although they ran; {} of {} pairs in the right order\n",
        set.runs.size(),
        (errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2,
        mean,
        errors.back(),
        refused,
        right,
        all);
}

void print_lines(const Set& set) {
    for (const Run& run : set.runs) {
        const Prediction of = predict(run);
        if (!run.step_seconds || !of.step_seconds) {
            continue;
        }
        fmt::print("{};{};{};{};{};{};{};{};{};{};{};{:.6g};{:.6g}\n",
                   set.name,
                   set.setup,
                   set.hold_out ? "hold-out" : "develop",
                   run.device,
                   run.name,
                   run.devices,
                   key_of(run, "pipeline.stages"),
                   key_of(run, "pipeline.tensor_parallel"),
                   key_of(run, "pipeline.data_parallel"),
                   key_of(run, "pipeline.shard"),
                   key_of(run, "pipeline.recompute"),
                   *run.step_seconds,
                   *of.step_seconds);
    }
}

void print_range(const char* kind, const LearnedRange& range) {
    fmt::print("{:<28} {:.3f} to {:.3f}, {} of {}\n",
               kind,
               range.low,
               range.high,
               counted(range.runs, "run"),
               counted(range.sources, "source"));
}

void print_ranges(const std::vector<Compared>& runs) {
    print_range("sharded weights", learned_range(runs, {.shards_weights = true}));
    print_range("tensor parallelism", learned_range(runs, {.tensor_parallel = 2}));
    print_range("neither", learned_range(runs, {}));
    print_range("calibrated (pairs)", calibrated_range(runs));
    for (const double from : {0.01, 0.04, 0.07, 0.10, 0.13, 0.16, 0.20}) {
        fmt::print("predicted {:.0f} to {:.0f} % apart: {:.1f} % in the right order\n",
                   100 * from,
                   100 * (from + 0.03),
                   100 * right_orders(runs, from, from + 0.03));
    }
}

/// Errors of published peaks, in per cent.
struct PeakErrors {
    int runs = 0;
    double sum = 0;  ///< without signs
    double lowest = 0;
    double highest = 0;

    void add(double error) {
        ++runs;
        sum += std::abs(error);
        lowest = std::min(lowest, error);
        highest = std::max(highest, error);
    }
    std::string text() const {
        return fmt::format("{}: mean {:.1f} %, {:+.1f} to {:+.1f} %",
                           counted(runs, "published peak"),
                           sum / std::max(1, runs),
                           lowest,
                           highest);
    }
};

/// Prints the peak of each run in GiB by kind, beside what was published and what there is room
/// for.
void print_peaks(const std::vector<Set>& sets) {
    PeakErrors all;
    int ran = 0;
    int refused = 0;
    for (const Set& set : sets) {
        PeakErrors errors;
        fmt::print("\n{}\n", set.name);
        for (const Run& run : set.runs) {
            const Prediction of = predict(run);
            if (!of.step_seconds) {
                continue;
            }
            const bool wrong = run.fits.value_or(false) && !of.fits;
            ran += run.fits.value_or(false) ? 1 : 0;
            refused += wrong ? 1 : 0;
            std::string text = fmt::format("{:7.1f}", gib(of.peak.total()));
            text += of.limit ? fmt::format(" of {:5.1f}", gib(*of.limit)) : "         ";
            for (int kind = 0; kind < memory_kind_count; ++kind) {
                const auto named = static_cast<MemoryKind>(kind);
                text += fmt::format("  {} {:.1f}", to_string(named), gib(of.peak[named]));
            }
            if (run.peak) {
                const double error = percent(gib(of.shown_peak), gib(*run.peak));
                errors.add(error);
                all.add(error);
                text += fmt::format("  published {:.1f} {:+.1f} %", gib(*run.peak), error);
            }
            fmt::print("{} {}{}\n", text, run.name, wrong ? "  RAN, SAID NOT TO FIT" : "");
        }
        if (errors.runs > 0) {
            fmt::print("  {}\n", errors.text());
        }
    }
    fmt::print("\n{}; {} of {} that ran are said not to fit\n", all.text(), refused, ran);
}

int run(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const std::string what = !words.empty() && words.front().starts_with("--") ? words.front() : "";
    if (!what.empty()) {
        words.erase(words.begin());
    }
    words.resize(2);
    const std::string shipped = PIPETWIN_SOURCE_DIR "/scenarios/published";
    if (what == "--evidence") {
        const std::vector<Set> all = read_sets(shipped);
        write_file(words[0], print_evidence(evidence_of(stack_runs(all))));
        return 0;
    }
    const bool lines = what == "--csv";
    if (lines) {
        fmt::print(
            "set;setup;use;device;run;devices;stages;tensor_parallel;data_parallel;shard;"
            "recompute;measured_s;predicted_s\n");
    }
    const std::string folder = words[0].empty() ? shipped : words[0];
    std::vector<Set> sets = read_sets(folder);
    std::erase_if(
        sets, [&words](const Set& set) { return set.name.find(words[1]) == std::string::npos; });
    if (what == "--stacks") {
        fmt::print("{}", stack_tables(stack_runs(sets)));
        return 0;
    }
    if (what == "--peaks") {
        print_peaks(sets);
        return 0;
    }
    if (what == "--ranges") {
        print_ranges(compared_runs(sets));
        return 0;
    }
    for (const Set& set : sets) {
        lines ? print_lines(set) : print_set(set);
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
