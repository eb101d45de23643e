// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/as_index.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_writer.h"
#include "core/text/toml_table.h"

/// The keys of a scenario's tables: what reads and prints them. For the files of the tables alone;
/// others include core/scenario/scenario.h.
namespace pipetwin {

/// What the value of a key may be; several are joined by |.
enum class Form : unsigned {
    None = 0,
    Integer = 1,
    Number = 2,
    Boolean = 4,
    Text = 8,  ///< one of the key's words, where it has any
    Integers = 16,
    Numbers = 32,
    Texts = 64,
    Sizes = 128,      ///< a list of bytes, as texts or numbers
    Lists = 256,      ///< a list of lists of numbers
    Tables = 512,     ///< [[table.key]]
    Auto = 1024,      ///< "auto"
    TextLists = 2048  ///< a list of lists of text
};
constexpr Form operator|(Form a, Form b) {
    return static_cast<Form>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/// A key of a table, said once: its name, how it is read into a scenario and printed, and what
/// pages, the schema and editors say about it. Keys are read and printed in the order of their
/// table, but for those that name another.
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
    Form forms = Form::None;
    std::string_view meaning{};    ///< of the key, as pages have it, in Markdown
    std::string_view otherwise{};  ///< where it is not written; empty: as an unwritten scenario has
    std::string_view type{};       ///< as pages have it; empty: what forms, range and words say
    /// Word for the value in the help of `simulate` and `sweep`, which take some keys of [pipeline]
    /// as options ("--group-size G"); empty: the key is no option.
    std::string_view option_value{};
    std::string_view option_help{};  ///< what the help says; empty: meaning and default
    /// Whether a search of plans has to find the value; null: none ever does.
    bool (*is_open)(const Scenario& scenario) = nullptr;
    /// Leaves the value to a search of plans; null: that cannot be.
    void (*open)(Scenario& scenario) = nullptr;

    /// Whether the value may have the form.
    constexpr bool may_be(Form form) const {
        return (static_cast<unsigned>(forms) & static_cast<unsigned>(form)) != 0;
    }
    /// The key with other forms.
    constexpr ScenarioKey takes(Form all) const {
        ScenarioKey key = *this;
        key.forms = all;
        return key;
    }
    /// The key with what pages say about it.
    constexpr ScenarioKey says(std::string_view what, std::string_view unwritten = {}) const {
        ScenarioKey key = *this;
        key.meaning = what;
        key.otherwise = unwritten.empty() ? otherwise : unwritten;
        return key;
    }
    /// The key as an option of `simulate` and `sweep`, too.
    constexpr ScenarioKey as_option(std::string_view value, std::string_view help = {}) const {
        ScenarioKey key = *this;
        key.option_value = value;
        key.option_help = help;
        return key;
    }
    /// The key with a type that its range does not say.
    constexpr ScenarioKey typed(std::string_view what) const {
        ScenarioKey key = *this;
        key.type = what;
        return key;
    }

    /// Whether a search of plans has to find the value.
    bool is_open_in(const Scenario& scenario) const {
        return is_open != nullptr && is_open(scenario);
    }

    /// The key as one whose member, an OrAuto, a search of plans may have to find.
    template <auto member>
    constexpr ScenarioKey searched() const {
        ScenarioKey key = *this;
        key.is_open = [](const Scenario& scenario) {
            return (scenario.pipeline.*member).is_auto();
        };
        key.open = [](Scenario& scenario) { (scenario.pipeline.*member).open(); };
        key.forms = key.forms | Form::Auto;
        return key;
    }

    /// The key with another reader.
    constexpr ScenarioKey read_by(Read own) const {
        ScenarioKey key = *this;
        key.read = own;
        return key;
    }
    /// The key with a check, which runs as soon as the key is read.
    constexpr ScenarioKey checked_by(Check own) const {
        ScenarioKey key = *this;
        key.check = own;
        return key;
    }
    /// The key with another printer.
    constexpr ScenarioKey printed_by(Print own) const {
        ScenarioKey key = *this;
        key.print = own;
        return key;
    }
    /// The key, read after the key `other` instead of at its own place.
    constexpr ScenarioKey read_after(std::string_view other) const {
        ScenarioKey key = *this;
        key.read_behind = other;
        return key;
    }
    /// The key, printed after the key `other` instead of at its own place.
    constexpr ScenarioKey printed_after(std::string_view other) const {
        ScenarioKey key = *this;
        key.printed_behind = other;
        return key;
    }
};

/// The names of some keys, in the order of their table.
std::vector<std::string_view> names_of(std::span<const ScenarioKey> keys);

/// The key of that name, which is one of them.
const ScenarioKey& key_named(std::span<const ScenarioKey> keys, std::string_view name);

/// The value of a key as a scenario is printed with it; empty: the key is not printed.
std::string written_value(const ScenarioKey& key, const Scenario& scenario);

/// What a key is where it is not written, in Markdown: as its row says, or as a scenario has it
/// that writes nothing; empty: the key is printed by none.
std::string default_text(const ScenarioKey& key);

/// A text of Markdown without links and the marks of code.
std::string plain_text(std::string_view markdown);

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
    } else if constexpr (std::same_as<Class, Routing>) {
        return scenario.model.llama.routing;
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

/// Whether the type is an OrAuto.
template <class Value>
constexpr bool may_be_auto = requires(Value value) { value.is_auto(); };
/// Whether the type has a value only where one is written, or not "auto".
template <class Value>
constexpr bool may_be_missing = may_be_auto<Value> || requires(Value value) { value.has_value(); };

/// Reads a number, true or false, or the word of an enum; none where the key is not written. Throws
/// Error(BadInput).
template <class Value>
std::optional<Value> read_value(const ScenarioKey& key, const TomlTable& table) {
    if constexpr (std::same_as<Value, bool>) {
        return table.boolean(key.name);
    } else if constexpr (std::floating_point<Value>) {
        return table.number(key.name, key.range);
    } else {
        std::optional<Value> value;
        if constexpr (std::is_enum_v<Value>) {
            if (const auto word = table.choice(key.name, key.words)) {
                value = static_cast<Value>(*word);
            }
        } else if (const auto number = table.integer(key.name, key.range)) {
            value = static_cast<Value>(*number);
        }
        return value;
    }
}

/// Prints a number, true or false, or the word of an enum.
template <class Value>
void print_value(const ScenarioKey& key, ScenarioWriter& writer, const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
        writer.string(key.name, key.words[as_index(value)]);
    } else {
        writer.number(key.name, value);
    }
}

/// Reads a key, which may be "auto" if its member is an OrAuto.
template <auto member>
void read_member(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    using Value = ValueOf<member>;
    Value& value = field<member>(scenario);
    if constexpr (may_be_auto<Value>) {
        if (table.is_auto(key.name)) {
            value.open();
            return;
        }
    }
    if constexpr (may_be_missing<Value>) {
        const TomlTable& asked = may_be_auto<Value> ? table.or_auto() : table;
        if (const auto written = read_value<typename Value::value_type>(key, asked)) {
            value = *written;
        }
    } else {
        value = read_value<Value>(key, table).value_or(value);
    }
}

/// Prints a key; one that may be missing only where it is there.
template <auto member>
void print_member(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    using Value = ValueOf<member>;
    const Value& value = field<member>(scenario);
    if constexpr (may_be_auto<Value>) {
        if (value.is_auto()) {
            writer.string(key.name, "auto");
        } else {
            print_value(key, writer, *value);
        }
    } else if constexpr (may_be_missing<Value>) {
        if (value) {
            print_value(key, writer, *value);
        }
    } else {
        print_value(key, writer, value);
    }
}

/// What the type of a member may be.
template <class Value>
constexpr Form form_of() {
    if constexpr (may_be_auto<Value>) {
        return form_of<typename Value::value_type>() | Form::Auto;
    } else if constexpr (may_be_missing<Value>) {
        return form_of<typename Value::value_type>();
    } else {
        return std::same_as<Value, bool>         ? Form::Boolean
               : std::is_enum_v<Value>           ? Form::Text
               : std::is_floating_point_v<Value> ? Form::Number
                                                 : Form::Integer;
    }
}

/// A key with a member; a search of plans has to find it where it is "auto", but for those that
/// every plan finds (PipelineSettings).
template <auto member>
constexpr ScenarioKey key(std::string_view name) {
    const ScenarioKey key{.name = name,
                          .read = read_member<member>,
                          .print = print_member<member>,
                          .forms = form_of<ValueOf<member>>()};
    if constexpr (may_be_auto<ValueOf<member>> &&
                  std::same_as<ClassOf<member>, Scenario::PipelinePart>) {
        return key.searched<member>();
    } else {
        return key;
    }
}

/// What is read and printed by functions of its own; null for neither.
constexpr ScenarioKey own(std::string_view name, ScenarioKey::Read read, ScenarioKey::Print print) {
    return {.name = name, .read = read, .print = print};
}

/// A number in a range.
template <auto member>
constexpr ScenarioKey number(std::string_view name, Range range) {
    ScenarioKey number = key<member>(name);
    number.range = range;
    return number;
}

/// A whole number that has to be written.
template <auto member>
constexpr ScenarioKey required(std::string_view name, Range range) {
    return number<member>(name, range)
        .says("", "required")
        .read_by([](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            field<member>(scenario) = table.required_int(key.name, key.range);
        });
}

/// A probability of being dropped out of `table`; 0 where it is not written. Throws
/// Error(BadInput).
double read_probability(const TomlTable& table, std::string_view name);

/// A probability of being dropped.
template <auto member>
constexpr ScenarioKey probability(std::string_view name) {
    return number<member>(name, {0, 1})
        .typed("0 up to 1")
        .read_by([](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            field<member>(scenario) = read_probability(table, key.name);
        });
}

/// True or false.
template <auto member>
constexpr ScenarioKey boolean(std::string_view name) {
    return key<member>(name);
}

/// One of some words, which are in the order of the member's enum.
template <auto member>
constexpr ScenarioKey choice(std::string_view name, std::span<const std::string_view> words) {
    ScenarioKey choice = key<member>(name);
    choice.words = words;
    return choice;
}

}  // namespace keys
}  // namespace pipetwin
