// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/plain_numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/option_hints.h"
#include "cli/base/option_lists.h"
#include "cli/base/schedule_file.h"
#include "cli/predict/rank_times.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/plan/plain_plan.h"
#include "core/scenario/scenario_words.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/receives.h"

namespace pipetwin::cli {

namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& text, const Hint& hint) {
    throw Error(ErrorKind::Usage, std::string(option), text, hint);
}

/// Calls `work`; turns an error into one that names the option.
template <class Work>
auto blame(std::string_view option, Work work) {
    try {
        return work();
    } catch (const Error& error) {
        throw Error(ErrorKind::Usage, std::string(option), error.text(), error.advice());
    }
}

/// The number of the option's own unit that a number with a unit is: "0.05" of "50us" where
/// milliseconds are expected; empty: there is no number, or its unit is another quantity's.
std::string meant_number(std::string_view text, std::string_view option) {
    struct Unit {
        std::string_view ending;  ///< of the option
        std::string_view word;
        double factor;
    };
    constexpr std::array units{Unit{"-ms", "ms", 1},
                               Unit{"-ms", "us", 1e-3},
                               Unit{"-ms", "ns", 1e-6},
                               Unit{"-ms", "s", 1e3},
                               Unit{"-gbps", "Gbps", 1},
                               Unit{"-gbps", "gbps", 1},
                               Unit{"-gbps", "Gb/s", 1},
                               Unit{"-gbps", "Gbit/s", 1},
                               Unit{"-gbps", "GB/s", 8},
                               Unit{"-gbps", "GBps", 8},
                               Unit{"-gbps", "Tbps", 1e3},
                               Unit{"-gbps", "Mbps", 1e-3}};
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc{} || !std::isfinite(value) || value < 0) {
        return "";
    }
    std::string_view word(rest, static_cast<std::size_t>(end - rest));
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    const auto* const unit = std::ranges::find_if(
        units, [&](const Unit& one) { return option.ends_with(one.ending) && one.word == word; });
    return unit == units.end() ? "" : fmt::format("{:g}", value * unit->factor);
}

double number(std::string_view text, std::string_view option) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc{} || rest != end || !std::isfinite(value) || value < 0) {
        const std::string meant = meant_number(text, option);
        refuse(option,
               fmt::format("'{}' is not a number of zero or more", text),
               meant.empty() ? fmt::format("write it as in {} 18.5", option)
                             : fmt::format("did you mean '{}'?", meant));
    }
    return value;
}

Duration milliseconds(std::string_view text, std::string_view option) {
    const double value = number(text, option);
    return blame(option, [&] { return from_milliseconds(value, option); });
}

/// One number for every piece alike, or one per piece in model order; empty if the option was not
/// given.
std::vector<Duration> cost_list(const std::optional<std::string>& text,
                                std::string_view option,
                                int pieces) {
    std::vector<Duration> costs;
    if (!text) {
        return costs;
    }
    for (const std::string& entry : list_entries(option, *text)) {
        costs.push_back(milliseconds(entry, option));
    }
    if (costs.size() == 1) {
        costs.assign(as_index(pieces), costs.front());
    }
    if (costs.size() == 2 && pieces != 2 && text->starts_with("0,")) {
        refuse(option,
               fmt::format("2 numbers for {}", counted(pieces, "stage")),
               fmt::format("a comma divides stages; did you mean '{}.{}'?",
                           text->substr(0, text->find(',')),
                           text->substr(text->find(',') + 1)));
    }
    if (costs.size() != static_cast<std::size_t>(pieces)) {
        refuse(option,
               fmt::format("{} for {}", counted(costs.size(), "number"), counted(pieces, "stage")),
               "give one number for all stages, or one for each, in model order: --stages times "
               "--chunks numbers");
    }
    return costs;
}

/// The value that an option's word names, of an enum with these words.
template <class Value, std::size_t count>
Value choice(const std::optional<std::string>& text,
             std::string_view option,
             const std::array<std::string_view, count>& words,
             Value otherwise) {
    if (!text) {
        return otherwise;
    }
    const auto* const word = std::ranges::find(words, *text);
    if (word == words.end()) {
        refuse(
            option, fmt::format("'{}' is not one of its values", *text), suggestion(*text, words));
    }
    return static_cast<Value>(word - words.begin());
}

/// One mode for every piece alike, or one per piece in model order.
RecomputeRules recompute_rules(const std::optional<std::string>& text, int pieces) {
    std::vector<Recompute> modes;
    for (const std::string& entry : list_entries("--recompute", text.value_or("none"))) {
        modes.push_back(
            choice(std::optional(entry), "--recompute", words::recomputes, Recompute::None));
    }
    if (modes.size() != 1 && std::cmp_not_equal(modes.size(), pieces)) {
        refuse("--recompute",
               fmt::format("{} for {}", counted(modes.size(), "mode"), counted(pieces, "stage")),
               "give one mode for all stages, or one for each, in model order: --stages times "
               "--chunks modes");
    }
    return RecomputeRules(std::move(modes));
}

int required(const std::optional<int>& value, std::string_view option) {
    if (!value) {
        refuse(
            "",
            fmt::format("{} is missing", option),
            "give --stages, --micro-batches, --forward-ms and --backward-ms, or name a scenario");
    }
    return *value;
}

/// Names the option of the number that is out of range, or all three where they are too many
/// actions together.
void expect_shape(const ScheduleShape& shape) {
    for (const auto& [alone, option] :
         {std::pair(ScheduleShape{.ranks = shape.ranks}, "--stages"),
          std::pair(ScheduleShape{.ranks = 1, .chunks = shape.chunks}, "--chunks"),
          std::pair(ScheduleShape{.ranks = 1, .micro_batches = shape.micro_batches},
                    "--micro-batches")}) {
        blame(option, [&alone = alone] { check_shape(alone); });
    }
    blame("--stages, --chunks, --micro-batches", [&] { check_shape(shape); });
}

/// Reads where the order comes from: a file, or the name of a schedule and its shape.
void read_order(const PlainOptions& options, PlainCosts& costs) {
    if (options.schedule_file.empty()) {
        if (options.receives) {
            refuse("--receives",
                   "it is for schedule files, but none is given",
                   "leave it out: a generated schedule receives where it needs the tensor");
        }
        if (options.schedule) {
            costs.schedule = asked_schedule(*options.schedule);
        }
        costs.shape = {
            .ranks = required(options.stages, "--stages"),
            .chunks = options.chunks.value_or(default_chunks(schedule_traits(costs.schedule))),
            .micro_batches = required(options.micro_batches, "--micro-batches")};
        expect_shape(costs.shape);
        costs.schedule_name = std::string(to_string(costs.schedule));
        return;
    }
    const std::array<std::pair<bool, std::string_view>, 5> said_by_file{
        {{options.schedule.has_value(), "--schedule"},
         {options.stages.has_value(), "--stages"},
         {options.chunks.has_value(), "--chunks"},
         {options.micro_batches.has_value(), "--micro-batches"},
         {options.group_size.has_value(), "--group-size"}}};
    std::vector<std::string> given;
    for (const auto& [is_given, option] : said_by_file) {
        if (is_given) {
            given.emplace_back(option);
        }
    }
    costs.schedule_from_file = read_schedule_file(options.schedule_file);  // if it is there at all
    if (!given.empty()) {
        refuse(given.front(),
               fmt::format("the schedule file {} sets it already", options.schedule_file.string()),
               fmt::format("leave out {}", fmt::join(given, ", ")));
    }
    costs.receives = choice(options.receives, "--receives", words::receives, Receives::Posted);
    if (options.recompute && recompute_of(*costs.schedule_from_file) != Recompute::None) {
        refuse("--recompute", "the file recomputes already", "leave the option out");
    }
    costs.schedule = ScheduleKind::FromFile;
    costs.schedule_name = options.schedule_file.filename().string();
    const int ranks = std::max(1, costs.schedule_from_file->rank_count());
    costs.shape = {.ranks = ranks,
                   .chunks = std::max(1, costs.schedule_from_file->stage_count() / ranks),
                   .micro_batches = costs.schedule_from_file->micro_batches};
}

/// `prefix` is that of the options that were given: "--", or "--rank-" for times of ranks.
void read_compute(const PlainOptions& options,
                  std::string_view prefix,
                  int pieces,
                  PlainCosts& costs) {
    const auto option = [prefix](std::string_view name) {
        return fmt::format("{}{}", prefix, name);
    };
    const auto read = [&](const std::optional<std::string>& text, std::string_view name) {
        return cost_list(text, option(name), pieces);
    };
    costs.forward = read(options.forward_ms, "forward-ms");
    costs.backward = read(options.backward_ms, "backward-ms");
    costs.backward_input = read(options.backward_input_ms, "backward-input-ms");
    costs.backward_weight = read(options.backward_weight_ms, "backward-weight-ms");
    costs.recompute_cost = read(options.recompute_ms, "recompute-ms");
    if (costs.forward.empty()) {
        refuse("",
               fmt::format("{} is missing", option("forward-ms")),
               fmt::format("add {}{}, the times of one {}",
                           option("forward-ms X"),
                           costs.backward.empty() && costs.backward_input.empty()
                               ? " and " + option("backward-ms X")
                               : "",
                           prefix == "--" ? "stage" : "rank"));
    }
    const bool whole = !costs.backward.empty();
    const bool input = !costs.backward_input.empty();
    const bool weight = !costs.backward_weight.empty();
    const auto [part, other] = input ? std::pair("backward-input-ms", "backward-weight-ms")
                                     : std::pair("backward-weight-ms", "backward-input-ms");
    if (whole && (input || weight)) {
        refuse(option(part),
               fmt::format("cannot be used together with {}", option("backward-ms")),
               "leave one of the two out");
    }
    if (input != weight) {
        refuse(option(part),
               fmt::format("needs {}, which is missing", option(other)),
               fmt::format("add {} X, or give {} alone", option(other), option("backward-ms X")));
    }
    if (!whole && !input) {
        refuse("",
               fmt::format("{} is missing", option("backward-ms")),
               fmt::format("add {}, or {} {}",
                           option("backward-ms X"),
                           option("backward-input-ms X"),
                           option("backward-weight-ms X")));
    }
    for (std::size_t piece = 0; input && piece < costs.backward_input.size(); ++piece) {
        costs.backward.push_back(costs.backward_input[piece] + costs.backward_weight[piece]);
    }
}

/// Reads "0:3,1:2", pairs of so many stages.
std::vector<StagePair> parse_skips(std::string_view text, int stages) {
    std::vector<StagePair> skips;
    const auto fail = [text] {
        refuse("--skips",
               fmt::format("'{}' is not a list of pairs of stages", text),
               "write the earlier stage, a colon and the later one, as in --skips 0:3,1:2");
    };
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const char* const last = text.data() + end;
        StagePair skip;
        const auto [colon, first_error] = std::from_chars(text.data() + begin, last, skip.from);
        if (first_error != std::errc{} || colon == last || *colon != ':') {
            fail();
        }
        const auto [rest, second_error] = std::from_chars(colon + 1, last, skip.to);
        if (second_error != std::errc{} || rest != last) {
            fail();
        }
        if (skip.from < 0 || skip.to >= stages || distance(skip) < 2) {
            refuse("--skips",
                   fmt::format("'{}': a skip must pass over at least one stage, from an earlier "
                               "stage to a later one; the stages are 0 to {}",
                               text.substr(begin, end - begin),
                               stages - 1),
                   "write the earlier stage, a colon and the later one, as in --skips 0:3,1:2");
        }
        skips.push_back(skip);
        begin = end + 1;
    }
    std::ranges::sort(skips);
    skips.erase(std::unique(skips.begin(), skips.end()), skips.end());
    return skips;
}

/// Throws Error(Usage) for the first option that would change nothing.
void refuse_without_effect(const PlainOptions& options, const PlainCosts& costs) {
    const bool recomputes =
        costs.recompute.everywhere() != Recompute::None ||
        (costs.schedule_from_file && recompute_of(*costs.schedule_from_file) != Recompute::None);
    if (!recomputes &&
        (options.recompute_ms || options.rank_recompute_ms || options.recompute_timing)) {
        refuse(options.rank_recompute_ms ? "--rank-recompute-ms"
               : options.recompute_ms    ? "--recompute-ms"
                                         : "--recompute-timing",
               "nothing is recomputed, so it has no effect",
               "add --recompute always, or leave it out");
    }
    if (options.group_size && !schedule_traits(costs.schedule).has_groups) {
        refuse("--group-size",
               fmt::format("it has no effect, because {} has no groups of micro-batches",
                           costs.schedule_name),
               "leave it out");
    }
    if (options.bandwidth_gbps.has_value() != options.boundary_bytes.has_value()) {
        refuse(options.bandwidth_gbps ? "--bandwidth-gbps" : "--boundary-bytes",
               options.bandwidth_gbps ? "without the bytes of a message it has no effect"
                                      : "without the bandwidth of the links it has no effect",
               options.bandwidth_gbps ? "add --boundary-bytes N" : "add --bandwidth-gbps X");
    }
}

/// The value of an option that has the name of a scenario's key.
std::string given_value(const PlainOptions& options, std::string_view option) {
    const auto text_of = [](const auto& value) { return value ? fmt::to_string(*value) : ""; };
    return option == "--schedule"           ? text_of(options.schedule)
           : option == "--stages"           ? text_of(options.stages)
           : option == "--chunks"           ? text_of(options.chunks)
           : option == "--micro-batches"    ? text_of(options.micro_batches)
           : option == "--group-size"       ? text_of(options.group_size)
           : option == "--deferred-weights" ? text_of(options.deferred_weights)
           : option == "--message-order"    ? text_of(options.message_order)
           : option == "--recompute"        ? text_of(options.recompute)
           : option == "--recompute-timing" ? text_of(options.recompute_timing)
                                            : "VALUE";
}

}  // namespace

ScheduleKind asked_schedule(const std::string& name) {
    try {
        return schedule_kind(name);
    } catch (const Error& error) {
        const std::filesystem::path file = std::filesystem::path(name).replace_extension(".csv");
        std::error_code ignored;
        const bool is_there = std::filesystem::is_regular_file(file, ignored);
        const bool is_path = name.find_first_of("./") != std::string::npos;
        refuse("--schedule",
               error.text(),
               !is_path || !error.advice().meant.empty() ? error.hint()
               : is_there
                   ? fmt::format("a schedule file ends in .csv: did you mean '{}'?", file.string())
                   : "a schedule file ends in .csv; pipetwin simulate --help lists the "
                     "schedules");
    }
}

std::vector<double> numbers(const std::string& text, std::string_view option) {
    std::vector<double> values;
    for (const std::string& entry : list_entries(option, text)) {
        values.push_back(number(entry, option));
    }
    return values;
}

std::string as_option(const KeyValue& setting) {
    std::string name = setting.key.substr(setting.key.find('.') + 1);
    std::ranges::replace(name, '_', '-');
    std::string value = setting.value;
    std::erase(value, '"');
    return value.empty() ? "--" + name : fmt::format("--{} {}", name, value);
}

void refuse_beside_scenario(const PlainOptions& options,
                            const std::filesystem::path& scenario,
                            const std::vector<Override>& overrides) {
    const std::string_view option = options.given();
    const std::string key = key_of_option(std::string(option));
    const std::string name = scenario.string();
    std::error_code ignored;
    const bool is_schedule =
        std::ranges::count(known_schedules(), std::string_view(name), &ScheduleName::name) > 0 &&
        !std::filesystem::exists(scenario, ignored);
    refuse(option,
           fmt::format("describes a pipeline without a scenario, but '{}' is given as a scenario",
                       name),
           is_schedule   ? fmt::format("--schedule {} names a schedule", name)
           : key.empty() ? "leave the option out, or leave the scenario out"
                         : tried_setting(key, given_value(options, option), scenario, overrides));
}

PlainCosts plain_costs(const PlainOptions& given) {
    PlainCosts costs;
    read_order(given, costs);
    const PlainOptions options = with_stage_times(given, costs);
    const int pieces = costs.schedule_from_file
                           ? std::max(1, model_stage_count(*costs.schedule_from_file))
                           : costs.shape.ranks * costs.shape.chunks;
    read_compute(options, has_rank_times(given) ? "--rank-" : "--", pieces, costs);
    costs.recompute = recompute_rules(options.recompute, pieces);
    costs.recompute_timing = choice(options.recompute_timing,
                                    "--recompute-timing",
                                    words::recompute_timings,
                                    schedule_traits(costs.schedule).recompute_timing);
    costs.message_order = choice(
        options.message_order, "--message-order", words::message_orders, MessageOrder::AsScheduled);
    costs.group_size = options.group_size.value_or(0);
    costs.deferred_weights = options.deferred_weights.value_or(0);
    if (options.latency_ms) {
        costs.link.latency = milliseconds(*options.latency_ms, "--latency-ms");
    }
    if (options.bandwidth_gbps) {
        constexpr double bytes_per_gigabit = 1e9 / 8;
        costs.link.bytes_per_second =
            number(*options.bandwidth_gbps, "--bandwidth-gbps") * bytes_per_gigabit;
    }
    if (options.boundary_bytes) {
        costs.boundary =
            blame("--boundary-bytes", [&] { return parse_bytes(*options.boundary_bytes); });
    }
    if (options.skips && costs.schedule_from_file) {
        refuse("--skips",
               "the rows of a schedule file name such messages themselves, as 0SEND_F2>3",
               "leave it out, or use a schedule that is generated");
    }
    if (options.skips) {
        costs.skips = parse_skips(*options.skips, pieces);
    }
    refuse_without_effect(given, costs);
    return costs;
}

}  // namespace pipetwin::cli
