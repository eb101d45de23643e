// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_writer.h"
#include "core/text/toml_table.h"

/// The keys of a scenario's tables: what reads and prints them. For the files of the tables alone;
/// others include core/scenario/scenario.h.
namespace pipetwin {

/// A key of a table: its name, how it is read into a scenario, and how it is printed. Keys are read
/// and printed in the order of their table, but for those that name another.
struct ScenarioKey {
    /// Reads the key out of its table into the scenario. Throws Error(BadInput).
    using Read = void (*)(const ScenarioKey& key, const TomlTable& table, Scenario& scenario);
    /// Throws Error(BadInput) where the value does not fit what was read before it.
    using Check = void (*)(const TomlTable& table, const Scenario& scenario);
    /// Prints the key with its value.
    using Print = void (*)(const ScenarioKey& key,
                           ScenarioWriter& writer,
                           const Scenario& scenario);

    std::string_view name;
    Read read = nullptr;    ///< null: read along with another key, or before all of them
    Print print = nullptr;  ///< null: printed along with another key, or not at all
    Range range{};          ///< of a number
    std::span<const std::string_view> words{};  ///< that the value is one of, as in the enum
    Check check = nullptr;                      ///< made as soon as the key is read; null: none
    std::string_view read_behind{};             ///< another key; empty: where it stands
    std::string_view printed_behind{};          ///< another key; empty: where it stands

    /// This key with another reader.
    constexpr ScenarioKey read_by(Read own) const {
        ScenarioKey key = *this;
        key.read = own;
        return key;
    }
    /// This key with a check, which runs as soon as the key is read.
    constexpr ScenarioKey checked_by(Check own) const {
        ScenarioKey key = *this;
        key.check = own;
        return key;
    }
    /// This key with another printer.
    constexpr ScenarioKey printed_by(Print own) const {
        ScenarioKey key = *this;
        key.print = own;
        return key;
    }
    /// This key, read after the key `other` instead of at its own place.
    constexpr ScenarioKey read_after(std::string_view other) const {
        ScenarioKey key = *this;
        key.read_behind = other;
        return key;
    }
    /// This key, printed after the key `other` instead of at its own place.
    constexpr ScenarioKey printed_after(std::string_view other) const {
        ScenarioKey key = *this;
        key.printed_behind = other;
        return key;
    }
};

/// The names of some keys, in the order of their table.
std::vector<std::string_view> names_of(std::span<const ScenarioKey> keys);

/// Reads every key out of `table`. Throws Error(BadInput) with the place in the file.
void read_keys(std::span<const ScenarioKey> keys, const TomlTable& table, Scenario& scenario);

/// Prints a line for every key that is printed.
void print_keys(std::span<const ScenarioKey> keys,
                ScenarioWriter& writer,
                const Scenario& scenario);

/// Keys by the member that holds their value: `integer<&GptSizes::heads>("heads", any_size)`. Where
/// one is not written, the member keeps the value it has.
namespace keys {

/// The class of a member; for decltype only.
template <class Class, class Value>
std::type_identity<Class> class_of(Value Class::*member);
/// The type of a member; for decltype only.
template <class Class, class Value>
std::type_identity<Value> value_of(Value Class::*member);
/// The class that has the member.
template <auto member>
using ClassOf = typename decltype(class_of(member))::type;
/// The type of the member's value.
template <auto member>
using ValueOf = typename decltype(value_of(member))::type;
/// The part of a scenario that has members of `Class`.
template <class Class, class AnyScenario>
auto& part_of(AnyScenario& scenario) {
    if constexpr (std::same_as<Class, GptSizes>) {
        return scenario.model.gpt;
    } else if constexpr (std::same_as<Class, LlamaSizes>) {
        return scenario.model.llama;
    } else if constexpr (std::same_as<Class, TranslationSizes>) {
        return scenario.model.translation;
    } else if constexpr (std::same_as<Class, Rotary>) {
        return scenario.model.llama.rotary;
    } else if constexpr (std::same_as<Class, AmoebaNetSizes>) {
        return scenario.model.amoebanet;
    } else if constexpr (std::same_as<Class, ResNetSizes>) {
        return scenario.model.resnet;
    } else if constexpr (std::same_as<Class, UNetSizes>) {
        return scenario.model.unet;
    } else if constexpr (std::same_as<Class, Scenario::TrainingPart>) {
        return scenario.training;
    } else if constexpr (std::same_as<Class, Scenario::ImageChanges>) {
        return scenario.data.changes;
    } else if constexpr (std::same_as<Class, Scenario::PairSettings>) {
        return scenario.data.pairs;
    } else if constexpr (std::same_as<Class, Scenario::ClusterPart>) {
        return scenario.cluster;
    } else if constexpr (std::same_as<Class, Scenario::OutputPart>) {
        return scenario.output;
    } else {
        static_assert(std::derived_from<Scenario::PipelinePart, Class>);
        return scenario.pipeline;
    }
}

/// The value of a key with this member.
template <auto member, class AnyScenario>
auto& field(AnyScenario& scenario) {
    return part_of<ClassOf<member>>(scenario).*member;
}

/// Prints a number, or true or false.
template <auto member>
void print_number(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    writer.number(key.name, field<member>(scenario));
}

/// What is read and printed by functions of its own; null for neither.
constexpr ScenarioKey own(std::string_view name, ScenarioKey::Read read, ScenarioKey::Print print) {
    return {.name = name, .read = read, .print = print};
}

/// A whole number.
template <auto member>
constexpr ScenarioKey integer(std::string_view name, Range range) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    if (const auto value = table.integer(key.name, key.range)) {
                        field<member>(scenario) = static_cast<ValueOf<member>>(*value);
                    }
                },
            .print = print_number<member>,
            .range = range};
}

/// A whole number that has to be written.
template <auto member>
constexpr ScenarioKey required(std::string_view name, Range range) {
    return integer<member>(name, range)
        .read_by([](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            field<member>(scenario) = table.required_int(key.name, key.range);
        });
}

/// A whole number, or none for "auto".
template <auto member>
constexpr ScenarioKey planned(std::string_view name, Range range) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    if (table.is_auto(key.name)) {
                        field<member>(scenario) = std::nullopt;
                    } else if (table.has(key.name)) {
                        field<member>(scenario) = table.required_int(key.name, key.range);
                    }
                },
            .print =
                [](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
                    writer.planned(key.name, field<member>(scenario));
                },
            .range = range};
}

/// A real number.
template <auto member>
constexpr ScenarioKey number(std::string_view name, Range range) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    double& value = field<member>(scenario);
                    value = table.number(key.name, key.range).value_or(value);
                },
            .print = print_number<member>,
            .range = range};
}

/// A probability of being dropped out of `table`; 0 where it is not written. Throws
/// Error(BadInput).
double read_probability(const TomlTable& table, std::string_view name);

/// A probability of being dropped.
template <auto member>
constexpr ScenarioKey probability(std::string_view name) {
    return number<member>(name, {0, 1})
        .read_by([](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            field<member>(scenario) = read_probability(table, key.name);
        });
}

/// True or false.
template <auto member>
constexpr ScenarioKey boolean(std::string_view name) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    bool& value = field<member>(scenario);
                    value = table.boolean(key.name).value_or(value);
                },
            .print = print_number<member>};
}

/// A real number, or none where it is not written; printed where it is.
template <auto member>
constexpr ScenarioKey written_number(std::string_view name, Range range) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    if (const auto value = table.number(key.name, key.range)) {
                        field<member>(scenario) = value;
                    }
                },
            .print =
                [](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
                    if (const auto& value = field<member>(scenario)) {
                        writer.number(key.name, *value);
                    }
                },
            .range = range};
}

/// True or false, or none where it is not written; printed where it is.
template <auto member>
constexpr ScenarioKey written_boolean(std::string_view name) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    if (const auto value = table.boolean(key.name)) {
                        field<member>(scenario) = value;
                    }
                },
            .print =
                [](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
                    if (const auto& value = field<member>(scenario)) {
                        writer.number(key.name, *value);
                    }
                }};
}

/// One of some words, which are in the order of the member's enum.
template <auto member>
constexpr ScenarioKey choice(std::string_view name, std::span<const std::string_view> words) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    if (const auto word = table.choice(key.name, key.words)) {
                        field<member>(scenario) = static_cast<ValueOf<member>>(*word);
                    }
                },
            .print =
                [](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
                    writer.string(key.name, key.words[as_index(field<member>(scenario))]);
                },
            .words = words};
}

}  // namespace keys
}  // namespace pipetwin
