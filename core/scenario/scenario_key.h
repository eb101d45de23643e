#pragma once

#include <algorithm>
#include <concepts>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_writer.h"
#include "core/text/toml_table.h"

/// The keys of a scenario's tables: what reads and prints them. For the files of the tables alone;
/// others include core/scenario/scenario.h.
namespace pipetwin {

/// A key of a table: its name, how it is read into a `Root`, which is a Scenario or a layer, and
/// how it is printed from there. Keys are read and printed in the order of their table, but for
/// those that name another.
template <class Root>
struct Key {
    using Read = void (*)(const Key& key, const TomlTable& table, Root& root);
    using Check = void (*)(const TomlTable& table, const Root& root);
    using Print = void (*)(const Key& key, ScenarioWriter& writer, const Root& root);

    std::string_view name;
    Read read = nullptr;    ///< null: read along with another key, or before all of them
    Print print = nullptr;  ///< null: printed along with another key, or not at all
    Range range{};          ///< of a number
    std::span<const std::string_view> words{};  ///< that the value is one of, as in the enum
    Check check = nullptr;                      ///< made as soon as the key is read; null: none
    std::string_view read_behind{};             ///< another key; empty: where it stands
    std::string_view printed_behind{};          ///< another key; empty: where it stands

    /// This key with another reader, with a check, or at another place; a table is made of these.
    constexpr Key read_by(Read own) const {
        Key key = *this;
        key.read = own;
        return key;
    }
    constexpr Key checked_by(Check own) const {
        Key key = *this;
        key.check = own;
        return key;
    }
    constexpr Key read_after(std::string_view other) const {
        Key key = *this;
        key.read_behind = other;
        return key;
    }
    constexpr Key printed_after(std::string_view other) const {
        Key key = *this;
        key.printed_behind = other;
        return key;
    }
};

using ScenarioKey = Key<Scenario>;  ///< of a table of a scenario
using LayerKey = Key<LayerSpec>;    ///< of a table of a layer

/// The names of some keys, in the order of their table.
template <class Root>
std::vector<std::string_view> names_of(std::span<const Key<Root>> keys) {
    std::vector<std::string_view> names;
    for (const Key<Root>& key : keys) {
        names.push_back(key.name);
    }
    return names;
}

/// The keys of a table in the order in which they are read or printed: each that names another in
/// `behind` is moved there.
template <class Root>
std::vector<Key<Root>> in_order(std::span<const Key<Root>> keys,
                                std::string_view Key<Root>::*behind) {
    std::vector<Key<Root>> ordered;
    std::ranges::copy_if(keys, std::back_inserter(ordered), [behind](const Key<Root>& key) {
        return (key.*behind).empty();
    });
    for (const Key<Root>& key : keys) {
        if (!(key.*behind).empty()) {
            const auto other = std::ranges::find(ordered, key.*behind, &Key<Root>::name);
            PIPETWIN_EXPECT(other != ordered.end(), "a key goes behind one that is not there");
            ordered.insert(other + 1, key);
        }
    }
    return ordered;
}

/// Reads every key out of `table`. Throws Error(BadInput) with the place in the file.
template <class Root>
void read_keys(std::span<const Key<Root>> keys, const TomlTable& table, Root& root) {
    for (const Key<Root>& key : in_order(keys, &Key<Root>::read_behind)) {
        if (key.read != nullptr) {
            key.read(key, table, root);
        }
        if (key.check != nullptr) {
            key.check(table, root);
        }
    }
}

/// Prints a line for every key that is printed.
template <class Root>
void print_keys(std::span<const Key<Root>> keys, ScenarioWriter& writer, const Root& root) {
    for (const Key<Root>& key : in_order(keys, &Key<Root>::printed_behind)) {
        if (key.print != nullptr) {
            key.print(key, writer, root);
        }
    }
}

/// Keys by the member that holds their value: `integer<&GptSizes::heads>("heads", any_size)`. Where
/// one is not written, the member keeps the value it has.
namespace keys {

/// What a member is in, and of which type it is.
template <class Class, class Value>
std::type_identity<Class> class_of(Value Class::*member);
template <class Class, class Value>
std::type_identity<Value> value_of(Value Class::*member);
template <auto member>
using ClassOf = typename decltype(class_of(member))::type;
template <auto member>
using ValueOf = typename decltype(value_of(member))::type;
/// What a key with this member is read into.
template <auto member>
using RootOf = std::conditional_t<std::same_as<ClassOf<member>, LayerSpec>, LayerSpec, Scenario>;

/// The part of a scenario that has members of `Class`.
template <class Class, class AnyScenario>
auto& part_of(AnyScenario& scenario) {
    if constexpr (std::same_as<Class, GptSizes>) {
        return scenario.model.gpt;
    } else if constexpr (std::same_as<Class, Scenario::TrainingPart>) {
        return scenario.training;
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
template <auto member, class Root>
auto& field(Root& root) {
    if constexpr (std::same_as<std::remove_const_t<Root>, LayerSpec>) {
        return root.*member;
    } else {
        return part_of<ClassOf<member>>(root).*member;
    }
}

/// Prints a number, or true or false.
template <auto member>
void print_number(const Key<RootOf<member>>& key,
                  ScenarioWriter& writer,
                  const RootOf<member>& root) {
    writer.number(key.name, field<member>(root));
}

/// What is read and printed by functions of its own; null for neither.
constexpr ScenarioKey own(std::string_view name, ScenarioKey::Read read, ScenarioKey::Print print) {
    return {.name = name, .read = read, .print = print};
}

/// A whole number.
template <auto member>
constexpr Key<RootOf<member>> integer(std::string_view name, Range range) {
    using Root = RootOf<member>;
    return {.name = name,
            .read =
                [](const Key<Root>& key, const TomlTable& table, Root& root) {
                    if (const auto value = table.integer(key.name, key.range)) {
                        field<member>(root) = static_cast<ValueOf<member>>(*value);
                    }
                },
            .print = print_number<member>,
            .range = range};
}

/// A whole number that has to be written.
template <auto member>
constexpr Key<RootOf<member>> required(std::string_view name, Range range) {
    using Root = RootOf<member>;
    return integer<member>(name, range)
        .read_by([](const Key<Root>& key, const TomlTable& table, Root& root) {
            field<member>(root) = table.required_int(key.name, key.range);
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
constexpr Key<RootOf<member>> number(std::string_view name, Range range) {
    using Root = RootOf<member>;
    return {.name = name,
            .read =
                [](const Key<Root>& key, const TomlTable& table, Root& root) {
                    double& value = field<member>(root);
                    value = table.number(key.name, key.range).value_or(value);
                },
            .print = print_number<member>,
            .range = range};
}

/// A probability of being dropped.
template <auto member>
constexpr Key<RootOf<member>> probability(std::string_view name) {
    using Root = RootOf<member>;
    return number<member>(name, {0, 1})
        .read_by([](const Key<Root>& key, const TomlTable& table, Root& root) {
            const double value = table.number(key.name, key.range).value_or(0);
            if (value == 1) {
                table.refuse(
                    key.name, "a number from 0 up to, but not, 1", "with 1 nothing would be left");
            }
            field<member>(root) = value;
        });
}

/// True or false.
template <auto member>
constexpr Key<RootOf<member>> boolean(std::string_view name) {
    using Root = RootOf<member>;
    return {.name = name,
            .read =
                [](const Key<Root>& key, const TomlTable& table, Root& root) {
                    bool& value = field<member>(root);
                    value = table.boolean(key.name).value_or(value);
                },
            .print = print_number<member>};
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
