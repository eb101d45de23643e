// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/plain_numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
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
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"

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

/// Throws Error(Usage) for a mode of --recompute that stages without layers have not.
void expect_modes(std::string_view text) {
    constexpr std::string_view option = "--recompute";
    for (const std::string& mode : list_entries(option, text)) {
        if (std::ranges::count(words::recomputes, mode) == 0) {
            refuse(option,
                   fmt::format("'{}' is not one of its values", mode),
                   suggestion(mode, words::recomputes));
        }
    }
}

/// The value of a key as a scenario writes it: words have quotes.
std::string as_toml(const ScenarioKey& key, const std::string& value) {
    if (!key.may_be(Form::Text)) {
        return value;
    }
    std::vector<std::string> words{value};
    if (key.may_be(Form::Texts)) {
        words = list_entries(option_of_key(key.name), value);
    }
    std::ranges::transform(words, words.begin(), toml_string);
    return words.size() == 1 ? words.front() : fmt::format("[{}]", fmt::join(words, ", "));
}

/// Reads the keys of [pipeline] among the options as a scenario's, over what is known before.
/// Throws Error(Usage) with the option.
Scenario::PipelinePart given_keys(const PlainOptions& options, Scenario::PipelinePart known) {
    std::vector<Override> written;
    for (const ScenarioKey& key : pipeline_keys()) {
        if (const auto value = options.value(option_of_key(key.name))) {
            written.push_back({fmt::format("pipeline.{}", key.name), as_toml(key, *value)});
        }
    }
    Scenario scenario;
    scenario.pipeline = std::move(known);
    try {
        read_pipeline(written, scenario);
    } catch (const Error& error) {
        const std::string option = error.key().empty() ? error.place() : option_of_key(error.key());
        const Hint& hint = error.advice();
        refuse(option,
               error.text(),
               !hint.settings.empty() ? fmt::format("write {}", as_option(hint.settings.back()))
               : !hint.meant.empty()  ? hint
                                      : "'pipetwin simulate --help' explains " + option);
    }
    return scenario.pipeline;
}

/// The pipeline of a schedule that is known by its name.
Scenario::PipelinePart named_pipeline(PlainOptions options, PlainCosts& costs) {
    if (options.has("--receives")) {
        refuse("--receives",
               "it is for schedule files, but none is given",
               "leave it out: a generated schedule receives where it needs the tensor");
    }
    if (const auto name = options.value("--schedule")) {
        costs.schedule = asked_schedule(*name);
    }
    for (const std::string_view option : {"--stages", "--micro-batches"}) {
        if (!options.has(option)) {
            refuse("",
                   fmt::format("{} is missing", option),
                   "give --stages, --micro-batches, --forward-ms and --backward-ms, or name a "
                   "scenario");
        }
    }
    if (!options.has("--chunks")) {
        options.set("--chunks", fmt::to_string(default_chunks(schedule_traits(costs.schedule))));
    }
    if (!options.has("--recompute")) {
        options.set("--recompute", "none");
    }
    costs.schedule_name = std::string(to_string(costs.schedule));
    return given_keys(options, {});
}

/// The pipeline of a schedule file, which says its shape, too.
Scenario::PipelinePart file_pipeline(const PlainOptions& options, PlainCosts& costs) {
    const std::filesystem::path file = *options.value("--schedule-file");
    std::vector<std::string_view> said_by_file;
    std::ranges::copy_if(
        std::array<std::string_view, 5>{
            "--schedule", "--stages", "--chunks", "--micro-batches", "--group-size"},
        std::back_inserter(said_by_file),
        [&options](std::string_view option) { return options.has(option); });
    const Schedule& schedule =
        costs.schedule_from_file.emplace(read_schedule_file(file));  // if it is there at all
    if (!said_by_file.empty()) {
        refuse(said_by_file.front(),
               fmt::format("the schedule file {} sets it already", file.string()),
               fmt::format("leave out {}", fmt::join(said_by_file, ", ")));
    }
    if (options.has("--recompute") && recompute_of(schedule) != Recompute::None) {
        refuse("--recompute", "the file recomputes already", "leave the option out");
    }
    costs.schedule = ScheduleKind::FromFile;
    costs.schedule_name = file.filename().string();
    Scenario::PipelinePart pipeline;
    pipeline.schedule.open();
    pipeline.stages = std::max(1, schedule.rank_count());
    pipeline.chunks = std::max(1, schedule.stage_count() / *pipeline.stages);
    pipeline.micro_batches = schedule.micro_batches;
    pipeline.file_pieces = std::max(1, model_stage_count(schedule));
    return given_keys(options, pipeline);
}

/// Reads where the order comes from, its shape, and the other keys of the pipeline.
void read_pipeline_of(const PlainOptions& options, PlainCosts& costs) {
    if (const auto modes = options.value("--recompute")) {
        expect_modes(*modes);
    }
    const bool has_file = options.has("--schedule-file");
    const Scenario::PipelinePart pipeline =
        has_file ? file_pipeline(options, costs) : named_pipeline(options, costs);
    static_cast<PipelineSettings&>(costs) = pipeline;
    costs.shape = {.ranks = *pipeline.stages,
                   .chunks = *pipeline.chunks,
                   .micro_batches = *pipeline.micro_batches};
    costs.recompute = *pipeline.recompute;
    costs.recompute_timing = pipeline.recompute_timing.known();
    if (!has_file) {
        blame("--stages, --chunks, --micro-batches", [&costs] { check_shape(costs.shape); });
    }
}

/// `prefix` is that of the options that were given: "--", or "--rank-" for times of ranks.
void read_compute(const PlainOptions& options,
                  std::string_view prefix,
                  int pieces,
                  PlainCosts& costs) {
    const auto option = [prefix](std::string_view name) {
        return fmt::format("{}{}", prefix, name);
    };
    const auto read = [&](std::string_view name) {
        return cost_list(options.value(fmt::format("--{}", name)), option(name), pieces);
    };
    costs.forward = read("forward-ms");
    costs.backward = read("backward-ms");
    costs.backward_input = read("backward-input-ms");
    costs.backward_weight = read("backward-weight-ms");
    costs.recompute_cost = read("recompute-ms");
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
    for (const std::string_view option :
         {"--rank-recompute-ms", "--recompute-ms", "--recompute-timing"}) {
        if (!recomputes && options.has(option)) {
            refuse(option,
                   "nothing is recomputed, so it has no effect",
                   "add --recompute always, or leave it out");
        }
    }
    if (options.has("--group-size") && !schedule_traits(costs.schedule).has_groups) {
        refuse("--group-size",
               fmt::format("it has no effect, because {} has no groups of micro-batches",
                           costs.schedule_name),
               "leave it out");
    }
    const bool has_bandwidth = options.has("--bandwidth-gbps");
    if (has_bandwidth != options.has("--boundary-bytes")) {
        refuse(has_bandwidth ? "--bandwidth-gbps" : "--boundary-bytes",
               has_bandwidth ? "without the bytes of a message it has no effect"
                             : "without the bandwidth of the links it has no effect",
               has_bandwidth ? "add --boundary-bytes N" : "add --bandwidth-gbps X");
    }
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

void refuse_beside_scenario(const PlainOptions& options,
                            const std::filesystem::path& scenario,
                            const std::vector<Override>& overrides) {
    const auto& [option, value] = options.written.front();
    const std::string key = key_of_option(option);
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
                         : tried_setting(key, value, scenario, overrides));
}

PlainCosts plain_costs(const PlainOptions& given) {
    PlainCosts costs;
    read_pipeline_of(given, costs);
    const PlainOptions options = with_stage_times(given, costs);
    const int pieces =
        costs.file_pieces > 0 ? costs.file_pieces : costs.shape.ranks * costs.shape.chunks;
    read_compute(options, has_rank_times(given) ? "--rank-" : "--", pieces, costs);
    if (const auto latency = options.value("--latency-ms")) {
        costs.link.latency = milliseconds(*latency, "--latency-ms");
    }
    if (const auto bandwidth = options.value("--bandwidth-gbps")) {
        constexpr double bytes_per_gigabit = 1e9 / 8;
        costs.link.bytes_per_second = number(*bandwidth, "--bandwidth-gbps") * bytes_per_gigabit;
    }
    if (const auto bytes = options.value("--boundary-bytes")) {
        costs.boundary = blame("--boundary-bytes", [&bytes] { return parse_bytes(*bytes); });
    }
    if (const auto skips = options.value("--skips")) {
        if (costs.schedule_from_file) {
            refuse("--skips",
                   "the rows of a schedule file name such messages themselves, as 0SEND_F2>3",
                   "leave it out, or use a schedule that is generated");
        }
        costs.skips = parse_skips(*skips, pieces);
    }
    refuse_without_effect(given, costs);
    return costs;
}

}  // namespace pipetwin::cli
