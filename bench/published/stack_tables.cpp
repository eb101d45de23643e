// SPDX-License-Identifier: Apache-2.0
#include "bench/published/stack_tables.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "core/base/median.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate_error.h"

namespace pipetwin::published {

namespace {

/// Runs of one line of a table.
struct Group {
    std::vector<double> errors;
    std::vector<double> left_out;
    int inside = 0;
    int inside_others = 0;
};

/// "median, mean, bias, largest" of errors, in per cent.
std::string error_columns(const std::vector<double>& errors) {
    std::vector<double> distances;
    std::ranges::transform(
        errors, std::back_inserter(distances), [](double error) { return std::abs(error); });
    const double sum = std::accumulate(distances.begin(), distances.end(), 0.0);
    return fmt::format("{:6.1f} {:5.1f} {:+6.1f} {:6.1f}",
                       100 * median(distances),
                       100 * sum / static_cast<double>(distances.size()),
                       100 * median(errors),
                       100 * std::ranges::max(distances));
}

std::string line(const std::string& name, const Group& group, const std::string& stated) {
    const auto runs = static_cast<double>(group.errors.size());
    return fmt::format("  {:<46}{:5}  {}   {}   {:4.0f} {:4.0f} {:>8}\n",
                       name,
                       group.errors.size(),
                       error_columns(group.errors),
                       error_columns(group.left_out),
                       100 * group.inside / runs,
                       100 * group.inside_others / runs,
                       stated);
}

/// Left-out errors that the files of the runs' stacks state of their sustained shares: "4.6".
std::string stated_error(const std::vector<const StackRun*>& runs) {
    std::optional<double> stated;
    for (const StackRun* const row : runs) {
        for (const Stack::Sustained& of : find_stack(row->run->stack)->sustained) {
            if (of.share.fitted_to == row->fitted_to && of.share.leave_one_out_percent) {
                stated = std::max(stated.value_or(0), *of.share.leave_one_out_percent);
            }
        }
    }
    return stated ? fmt::format("{:.1f}", *stated) : "";
}

}  // namespace

std::string stack_tables(const std::vector<StackRun>& runs) {
    if (runs.empty()) {
        return "";
    }
    const Evidence evidence = evidence_of(runs);
    const std::vector<bool> inside = inside_ranges_of_others(runs);
    const auto table = [&](const std::string& title, const auto& name_of) {
        std::map<std::string, Group> groups;
        std::map<std::string, std::vector<const StackRun*>> members;
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const StackRun& row = runs[i];
            const std::string name = name_of(row);
            Group& group = groups[name];
            const ErrorRange range = range_of_stack(
                evidence, row.run->stack, row.run->device, row.run->devices, row.experts);
            const double factor = row.measured / row.predicted;
            group.errors.push_back(row.error());
            group.left_out.push_back(row.left_out_error());
            group.inside += factor >= range.low && factor <= range.high ? 1 : 0;
            group.inside_others += inside[i] ? 1 : 0;
            members[name].push_back(&row);
        }
        std::string text = fmt::format("\n{}\n", title);
        for (const auto& [name, group] : groups) {
            text += line(name, group, stated_error(members[name]));
        }
        return text;
    };
    std::string text = fmt::format(
        "\n  errors of steps in per cent                      runs  median  mean   bias largest   "
        "without the "
        "source               inside    file\n{:>124}\n",
        "own  others  says");
    text += table("by stack and set", [](const StackRun& row) {
        return fmt::format("{} {}", row.run->stack, row.set->name);
    });
    text += table("by stack", [](const StackRun& row) { return row.run->stack; });
    text += table("by stack, device and precision", [](const StackRun& row) {
        return fmt::format(
            "{} {} {}", row.run->stack, row.run->device, row.run->estimate.precision);
    });
    const auto kind_of = [](const StackRun& row) {
        return row.set->needs_stack ? "sets that need a stack" : "other sets";
    };
    text += table("by device and precision", [&](const StackRun& row) {
        return fmt::format("{} {}, {}", row.run->device, row.run->estimate.precision, kind_of(row));
    });
    text += table("all", kind_of);
    text += "\nsustained shares: in the files, the best for all sources together\n";
    std::map<std::string, const StackRun*> shares;
    for (const StackRun& row : runs) {
        if (!row.fitted_to.empty()) {
            shares.emplace(row.fitted_to, &row);
        }
    }
    for (const auto& [fitted_to, row] : shares) {
        text += fmt::format("  {:.3f} {:.3f}  {}\n", row->sustained, row->best, fitted_to);
    }
    return text +
           fmt::format("\nnumbers of the stacks that are fitted: {}; runs with a stack: {}\n",
                       fitted_numbers(),
                       runs.size());
}

}  // namespace pipetwin::published
