// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/base/picture_options.h"
#include "core/text/override.h"

namespace pipetwin {
struct ScenarioKey;
}

/// A pipeline on the command line in place of a scenario: options that are keys of [pipeline]
/// (`as_option` in their rows), and options of costs.
namespace pipetwin::cli {

/// An option that is no key of a scenario.
struct CostOption {
    std::string_view name;   ///< "--forward-ms"
    std::string_view value;  ///< in the help: "X[,X...]"
    std::string_view help;
    std::string_view words{};  ///< before the value in a title; empty: titles leave it out
    std::string_view unit{};   ///< behind it

    /// Whether it is a time of stages, or of ranks.
    bool is_time() const;
    /// The option with the times of stages of one with times of ranks, "--forward-ms" of
    /// "--rank-forward-ms"; empty for any other.
    std::string of_stages() const;
};

/// All options of costs, in the order of the help.
std::span<const CostOption> cost_options();

/// Keys that name a plan. Beside a scenario, `sweep` sets them in it.
inline constexpr std::array<std::string_view, 4> plan_options{
    "--schedule", "--stages", "--chunks", "--micro-batches"};
/// Keys that may be lists, of the plans to compare.
inline constexpr std::array<std::string_view, 3> list_options{
    "--schedule", "--stages", "--micro-batches"};

/// What was written for the options. A list has an entry for each of its values.
struct PlainOptions {
    std::vector<KeyValue> written;  ///< {"--stages", "4"}, in the order of the help

    bool has(std::string_view option) const { return value(option).has_value(); }
    /// The value, the first one of a list; none: the option was not given.
    std::optional<std::string> value(std::string_view option) const;
    /// The value of an option of whole numbers.
    std::optional<int> number(std::string_view option) const;
    /// All values; empty: the option was not given.
    std::vector<std::string> values(std::string_view option) const;
    /// Gives the option this value alone.
    void set(std::string_view option, std::string value);
    void erase(std::string_view option);

    bool any() const { return !written.empty(); }
    /// Whether a list names more than one plan.
    bool several() const;
};

/// Files for plans that are compared; each may be empty.
struct SweepFiles {
    PictureOptions pictures{};
    std::filesystem::path csv{};  ///< the table
};

/// The option of a key, with or without its table: "--micro-batches" for "pipeline.micro_batches".
std::string option_of_key(std::string_view key);

/// The key of [pipeline] that is such an option.
const ScenarioKey& pipeline_key(std::string_view option);

/// A setting of a scenario as the option with its value: "--chunks 2" for pipeline.chunks.
std::string as_option(const KeyValue& setting);

/// One for each value of a list, in its order; one alone where the option was not given.
std::vector<PlainOptions> one_for_each(const std::vector<PlainOptions>& plans,
                                       std::string_view option);

/// How many combinations of all lists there are.
std::size_t combinations(const PlainOptions& options);

}  // namespace pipetwin::cli
