// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/plan_lists.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/base/calendar.h"
#include "cli/base/grammar.h"
#include "cli/base/option_lists.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"

namespace pipetwin::cli {

namespace {

constexpr int most_nodes = 1 << 16;

/// "4,8" of "4-8", "4..8" and "4:8"; empty for any other text.
std::string ends_of_range(std::string_view text) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    for (const std::string_view to : {"-", "..", ":"}) {
        if (end == 0 || text.substr(end, to.size()) != to) {
            continue;
        }
        const std::string_view last = text.substr(end + to.size());
        if (!last.empty() && last.find_first_not_of("0123456789") == std::string_view::npos) {
            return fmt::format("{},{}", text.substr(0, end), last);
        }
    }
    return "";
}

/// Throws Error(Usage) for an entry that is written twice.
void refuse_repeated(std::string_view option, const std::vector<std::string>& entries) {
    std::vector<std::string> once;
    std::string repeated;
    for (const std::string& entry : entries) {
        if (std::ranges::count(once, entry) == 0) {
            once.push_back(entry);
        } else {
            repeated = entry;
        }
    }
    if (!repeated.empty()) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("'{}' is in the list more than once", repeated),
                    fmt::format("write it once: {} {}", option, fmt::join(once, ",")));
    }
}

/// The entries, each once, of an option that is one word; none where it is not given.
std::vector<std::string> entries_once(std::string_view option, const std::string& text) {
    if (text.empty()) {
        return {};
    }
    std::vector<std::string> entries = list_entries(option, text);
    refuse_repeated(option, entries);
    return entries;
}

std::vector<int> numbers_of_nodes(const std::string& text) {
    std::vector<int> numbers;
    for (const std::string& entry : entries_once("--nodes", text)) {
        int number = 0;
        const char* const end = entry.data() + entry.size();
        const auto [rest, status] = std::from_chars(entry.data(), end, number);
        if (status == std::errc{} && rest == end && number >= 1 && number <= most_nodes) {
            numbers.push_back(number);
            continue;
        }
        const std::string range = ends_of_range(entry);
        const std::string example =
            text.find(',') == std::string::npos ? "8" : std::string(list_example("--nodes"));
        throw Error(
            ErrorKind::Usage,
            "--nodes",
            fmt::format("'{}', expected {}",
                        entry,
                        range.empty() ? fmt::format("a whole number from 1 to {}", most_nodes)
                                      : std::string("one number, or several with commas")),
            range.empty() ? fmt::format("write it as in --nodes {}", example)
                          : fmt::format("name each number, as in --nodes {}", range));
    }
    return numbers;
}

/// Throws Error(Usage) for prices that are neither one nor one for each cluster.
void expect_price_of_each(const PlanOptions& options, std::size_t clusters) {
    const std::size_t prices = options.prices.size();
    if (prices <= 1 || prices == clusters) {
        return;
    }
    if (clusters == 1) {
        throw Error(
            ErrorKind::Usage,
            "--price",
            fmt::format("'{:g}', expected a number above zero, and one for each cluster",
                        fmt::join(options.prices, ",")),
            prices == 2
                ? fmt::format("did you mean '{:g}.{:g}'?", options.prices[0], options.prices[1])
                : std::string("write it as in --price 2.5"));
    }
    throw Error(ErrorKind::Usage,
                "--price",
                fmt::format("{}, expected one, or one for each of the {}",
                            counted(prices, "price"),
                            counted(clusters, "cluster")),
                "name one for each in the order of --cluster, as in --price 2.5,4");
}

/// Throws Error(Usage) for a deadline that is none.
void expect_deadline(const PlanOptions& options) {
    const std::string_view option = options.days    ? "--days"
                                    : options.until ? "--until"
                                    : options.from  ? "--from"
                                                    : "";
    if (option.empty()) {
        return;
    }
    if (!options.until && options.from) {
        throw Error(ErrorKind::Usage,
                    "--from",
                    options.days ? "--days counts from any day"
                                 : "it is the day from which --until counts, which is missing",
                    options.days ? "leave --from out, or write --until DATE in place of --days"
                                 : "add --until DATE, as in --until 2027-03-31");
    }
    if (options.until) {
        const auto until = read_day(*options.until, "--until");
        const auto from = options.from ? read_day(*options.from, "--from") : today();
        if (days_between(from, until) < 1) {
            throw Error(
                ErrorKind::Usage,
                "--until",
                fmt::format("{} is not after {}, {}",
                            day_text(until),
                            day_text(from),
                            options.from ? "the day of --from" : "today, from which it counts"),
                options.from && from == until ? std::string("name a later day")
                : options.from
                    ? fmt::format(
                          "did you mean '--from {} --until {}'?", day_text(until), day_text(from))
                    : fmt::format("name a later day, or the day of the start: "
                                  "--from DATE --until {}",
                                  day_text(until)));
        }
    }
    if (!options.tokens) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    "needs --tokens, as days follow from the length of the training",
                    "add --tokens 15T, or as many as the training has");
    }
}

/// The first option that a table cannot have beside it; empty: none is given.
std::string_view option_of_one_plan(const PlanOptions& options, const CommonOptions& common) {
    return !common.out.empty()            ? "--out"
           : !options.heat_map.empty()    ? "--heatmap"
           : options.hybrid               ? "--hybrid"
           : options.largest              ? "--largest"
           : !options.order_out.empty()   ? "--order-out"
           : !options.calibration.empty() ? "--calibrate"
                                          : "";
}

void refuse_options_of_one_plan(const PlanOptions& options,
                                const CommonOptions& common,
                                const Combination& first) {
    const std::string_view option = option_of_one_plan(options, common);
    if (option.empty()) {
        return;
    }
    throw Error(ErrorKind::Usage,
                std::string(option),
                "it is for one plan, but a table of combinations is asked for",
                option == "--out"
                    ? fmt::format("plan the row that you choose alone, as in --cluster {} --nodes "
                                  "{} --out {}; --csv FILE.csv writes the table",
                                  first.cluster,
                                  first.nodes,
                                  common.out.string())
                    : fmt::format("leave it out, or plan one row alone, as in --cluster {} --nodes "
                                  "{}",
                                  first.cluster,
                                  first.nodes));
}

std::string stack_entry(const std::string& entry) {
    const std::string name = stack_named(entry);
    if (!name.empty()) {
        find_stack(name, "--stack");
    }
    return entry;
}

}  // namespace

void add_combinations(CLI::App& app, PlanOptions& options) {
    const std::string group = "Several clusters, numbers of nodes or stacks at once";
    app.add_option("--days",
                   options.days,
                   "Days within which the training is to end: the table says which row does for "
                   "the least cost")
        ->check(finite_in(CLI::PositiveNumber))
        ->type_name("X")
        ->group(group);
    app.add_option("--until", options.until, "In place of --days: the day by which it is to end")
        ->type_name("DATE")
        ->group(group);
    app.add_option("--from", options.from, "Day from which --until counts (default: today)")
        ->type_name("DATE")
        ->group(group);
    app.get_option("--days")->excludes("--until");
    app.add_option("--mtbf-hours",
                   options.mtbf_hours,
                   "Mean time between failures of one device, in hours (default 50000)")
        ->check(finite_in(CLI::Range(1e-3, 1e9)))
        ->type_name("X")
        ->group(group);
    app.add_option(
           "--checkpoint-s", options.checkpoint_s, "Seconds to write a checkpoint (default 60)")
        ->check(finite_in(CLI::Range(0.0, 1e6)))
        ->type_name("X")
        ->group(group);
    app.add_option(
           "--restart-s", options.restart_s, "Seconds to restart after a failure (default 1200)")
        ->check(finite_in(CLI::Range(0.0, 1e6)))
        ->type_name("X")
        ->group(group);
    app.add_flag("--evidence", options.evidence, "Add where each number of the table comes from")
        ->group(group);
    app.add_flag("--markdown", options.markdown, "Print the table as Markdown")->group(group);
    add_pictures(app,
                 options.pictures,
                 "Draw cost over days of all combinations, and the front of those that no other "
                 "beats",
                 group);
}

std::string_view option_of_table(const PlanOptions& options) {
    return options.days           ? "--days"
           : options.until        ? "--until"
           : options.from         ? "--from"
           : options.mtbf_hours   ? "--mtbf-hours"
           : options.checkpoint_s ? "--checkpoint-s"
           : options.restart_s    ? "--restart-s"
           : options.evidence     ? "--evidence"
           : options.markdown     ? "--markdown"
                                  : options.pictures.first_option();
}

void complete_combinations(PlanOptions& options, const CommonOptions& common) {
    const std::vector<int> nodes = numbers_of_nodes(options.node_list);
    const std::vector<std::string> clusters = entries_once("--cluster", options.cluster);
    const std::vector<std::string> stacks = entries_once("--stack", options.stack.value_or(""));
    options.nodes = nodes.empty() ? 1 : nodes.front();
    if (clusters.size() == 1) {
        options.cluster = clusters.front();
    }
    expect_price_of_each(options, std::max<std::size_t>(1, clusters.size()));
    expect_deadline(options);
    if (clusters.empty() && options.heat_map.empty() && options.pictures.look != FigureLook{}) {
        throw Error(ErrorKind::Usage,
                    option_of_look(options.pictures.look),
                    "it is for a picture, but none is asked for",
                    "name one: --heatmap FILE.svg");
    }
    check_pictures_beside(options.pictures, !options.heat_map.empty());
    const bool is_table =
        !option_of_table(options).empty() || (!options.csv.empty() && options.swept.empty());
    const bool is_several = nodes.size() > 1 || clusters.size() > 1 || stacks.size() > 1;
    if (!is_table && !is_several) {
        return;
    }
    if (clusters.empty()) {  // other options of a table are refused before
        throw Error(ErrorKind::Usage,
                    "--csv",
                    "it is for several plans, but there is one",
                    "add --sweep KEY=A,B, or name a model and several clusters or --nodes");
    }
    if (options.pictures.any() && !options.tokens) {
        throw Error(ErrorKind::Usage,
                    std::string(options.pictures.first_option()),
                    "needs --tokens, as days follow from the length of the training",
                    "add --tokens 15T, or as many as the training has");
    }
    for (const std::string& cluster : clusters) {
        if (!cluster.ends_with(".toml")) {
            find_cluster(cluster, "--cluster");
        }
    }
    std::ranges::for_each(stacks, stack_entry);
    for (std::size_t i = 0; i < clusters.size(); ++i) {
        for (const int count : nodes.empty() ? std::vector{1} : nodes) {
            Combination one{.cluster = clusters[i], .nodes = count};
            if (!options.prices.empty()) {
                one.price = options.prices[options.prices.size() == 1 ? 0 : i];
            }
            if (stacks.empty()) {
                options.combinations.push_back(one);
            }
            for (const std::string& stack : stacks) {
                one.stack = stack;
                options.combinations.push_back(one);
            }
        }
    }
    constexpr std::size_t most_combinations = 200;
    if (options.combinations.size() > most_combinations) {
        throw Error(ErrorKind::Usage,
                    "--nodes",
                    fmt::format("{} combinations, expected at most {}",
                                options.combinations.size(),
                                most_combinations),
                    "shorten one of the lists");
    }
    if (!options.swept.empty()) {
        throw Error(ErrorKind::Usage,
                    "--sweep",
                    "it compares plans of one cluster, but a table of combinations is asked for",
                    fmt::format("leave it out, or name one: --cluster {} --nodes {}",
                                options.combinations.front().cluster,
                                options.combinations.front().nodes));
    }
    if (!options.combinations.empty()) {
        refuse_options_of_one_plan(options, common, options.combinations.front());
    }
    if (options.markdown && common.json) {
        throw Error(ErrorKind::Usage,
                    "--markdown",
                    "the table is printed as JSON",
                    "leave out --markdown or --json");
    }
}

}  // namespace pipetwin::cli
