// SPDX-License-Identifier: Apache-2.0
#include "cli/base/option_hints.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/foreign_words.h"
#include "cli/base/plain_options.h"
#include "cli/base/shell_word.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/suggest.h"
#include "core/base/typed_text.h"
#include "core/costs/devices/near_name.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_tables.h"

namespace pipetwin::cli {

namespace {

using std::string_view;

/// The table of a group of keys, "pipeline"; empty for keys that stand in no table of their own.
std::string table_of(const KeyGroup& group) {
    const bool is_table = group.where.starts_with('[') && !group.where.starts_with("[[");
    return is_table ? group.where.substr(1, group.where.find(']') - 1) : "";
}

/// The words that a key may be; empty: it is no list of words, or there is no such key.
std::vector<string_view> words_of_key(string_view key) {
    for (const KeyGroup& group : all_key_groups()) {
        for (const ScenarioKey& facts : group.keys) {
            if (key == fmt::format("{}.{}", table_of(group), facts.name)) {
                return {facts.words.begin(), facts.words.end()};
            }
        }
    }
    return {};
}

/// The option as it is spelt here: "--seq-length" for "--seq_length", "-seq-length" and
/// "--training.seq-length".
std::string plain_option(string_view word) {
    std::string plain = as_typed(word);
    plain.erase(0, std::min(plain.find_first_not_of('-'), plain.size()));
    if (const std::size_t dot = plain.rfind('.'); dot != std::string::npos) {
        plain.erase(0, dot + 1);  // the table of a torchtitan option
    }
    for (char& c : plain) {
        c = c == '_' ? '-' : ascii::lower(c);
    }
    for (const auto& [brief, whole] : {std::pair("fwd", "forward"), {"bwd", "backward"}}) {
        if (const std::size_t at = plain.find(brief); at != std::string::npos) {
            plain.replace(at, string_view(brief).size(), whole);
        }
    }
    return plain;
}

std::optional<double> number_of(string_view text) {
    double number = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = status == std::errc{} && rest == text.data() + text.size();
    return is_number ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> whole_number_of(string_view text) {
    const std::optional<double> number = number_of(text);
    const bool is_whole = number && *number >= 1 && *number < 1e15 &&
                          *number == static_cast<double>(static_cast<std::int64_t>(*number));
    return is_whole ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
}

/// The word that a key takes for the value: "optimizer" for "1" of pipeline.shard.
std::string own_value(const std::string& key, const std::string& value) {
    const std::vector<string_view> words = words_of_key(key);
    const bool is_word = std::ranges::count(words, string_view(value)) > 0;
    const string_view near = words.empty() || is_word ? string_view() : nearest_word(value, words);
    return near.empty() ? value : std::string(near);
}

/// Whether a key of words takes the value, or means one of its words by it.
bool is_word_of_key(const std::string& key, const std::string& value) {
    return std::ranges::count(words_of_key(key), string_view(own_value(key, value))) > 0;
}

/// Finds what to write in place of an unknown option.
class OptionHint {
  public:
    explicit OptionHint(const UnknownOption& unknown)
        : unknown_(unknown), plain_(plain_option(unknown.word)) {
        find_value();
        for (std::size_t i = 1; i < unknown.args.size(); ++i) {
            const std::string& word = unknown.args[i];
            std::error_code ignored;
            if (scenario_.empty() && word.ends_with(".toml") &&
                std::filesystem::is_regular_file(word, ignored)) {
                scenario_ = word;
            }
        }
    }

    std::string text() {
        if (const std::string key = written_key(); !key.empty() && !is_plain_plan()) {
            return value_.empty() ? fmt::format("write --set {}=VALUE", key)
                                  : tried_setting(key, value_, scenario_, overrides({}));
        }
        if (const std::string option = "--" + plain_; option != unknown_.word && has(option)) {
            return did_you_mean(option);
        }
        if (unknown_.word == "-s" && has("--set")) {
            return did_you_mean("--set");
        }
        std::string hint = hint_of(meaning_of(plain_));
        hint = hint.empty() ? unit_hint() : hint;
        hint =
            hint.empty() && !begins_known_option() ? key_hint(key_of_option(plain_), value_) : hint;
        if (!hint.empty()) {
            return hint;
        }
        const string_view near = nearest_option();
        return near.empty() ? fmt::format("'pipetwin {} --help' lists its options", command())
                            : fmt::format("did you mean '{}'?", near);
    }

  private:
    const std::string& command() const { return unknown_.command; }
    bool has(string_view option) const { return std::ranges::count(unknown_.known, option) > 0; }
    bool is_given(string_view option) const {
        return std::ranges::any_of(unknown_.args, [option](const std::string& word) {
            return word == option || word.starts_with(fmt::format("{}=", option));
        });
    }
    /// The key that the option is the whole name of, as "--pipeline.stages"; empty: it is none, or
    /// the command has no --set.
    std::string written_key() const {
        constexpr string_view dashes = "--";
        const bool is_whole = unknown_.word.starts_with(dashes) &&
                              unknown_.word.find('.') != std::string::npos && has("--set");
        return is_whole ? whole_key(string_view(unknown_.word).substr(dashes.size()))
                        : std::string();
    }
    /// Whether `plan` is asked about a model by its name.
    bool asks_about_model() const { return has("--cluster") && is_given("--cluster"); }
    /// Whether `plan` is given something else than a scenario.
    bool plans_model() const { return has("--cluster") && scenario_.empty(); }
    bool is_plain_plan() const { return has("--forward-ms") && scenario_.empty(); }

    void find_value() { value_ = value_of(unknown_.word); }
    std::string value_of(const std::string& option) const {
        const std::vector<std::string>& args = unknown_.args;
        for (std::size_t i = 0; i < args.size(); ++i) {
            if (args[i].starts_with(option + "=")) {
                return args[i].substr(option.size() + 1);
            }
            const bool has_next = args[i] == option && i + 1 < args.size();
            if (has_next && !args[i + 1].starts_with("--") && !begins_with_dash(args[i + 1]) &&
                !args[i + 1].ends_with(".toml")) {
                return args[i + 1];
            }
        }
        return "";
    }

    static std::string did_you_mean(string_view option) {
        return fmt::format("did you mean '{}'?", option);
    }
    static std::string did_you_mean(string_view option, string_view value) {
        return value.empty() ? did_you_mean(option)
                             : fmt::format("did you mean '{} {}'?", option, value);
    }

    /// The option where the command has it, else the key with the value, where it reads a scenario.
    std::string option_or_key(string_view option, const std::string& key) const {
        return has(option) && (is_plain_plan() || !is_cost_option(option)) ? did_you_mean(option)
                                                                           : key_hint(key, value_);
    }
    /// Whether `simulate` has the option for plans without a scenario only.
    bool is_cost_option(string_view option) const {
        return command() == "simulate" && std::ranges::count(plan_options, option) > 0;
    }

    std::string hint_of(Meaning meaning) const {
        switch (meaning) {
            case Meaning::Nothing:
                return "";
            case Meaning::Stages:
                return option_or_key("--stages", "pipeline.stages");
            case Meaning::Chunks:
                return option_or_key("--chunks", "pipeline.chunks");
            case Meaning::MicroBatches:
                return option_or_key("--micro-batches", "pipeline.micro_batches");
            case Meaning::Schedule:
                return option_or_key("--schedule", "pipeline.schedule");
            case Meaning::TensorParallel:
                return key_hint("pipeline.tensor_parallel", value_);
            case Meaning::DataParallel:
                return key_hint("pipeline.data_parallel", value_);
            case Meaning::Shard:
                return key_hint("pipeline.shard",
                                !value_.empty()                             ? value_
                                : plain_ == "fsdp"                          ? "weights"
                                : plain_.ends_with("distributed-optimizer") ? "optimizer"
                                                                            : "");
            case Meaning::Recompute:
                return option_or_key("--recompute", "pipeline.recompute");
            case Meaning::Precision:
                return precision_hint();
            case Meaning::MicroBatchSize:
                return micro_batch_size_hint();
            case Meaning::Batch:
                return batch_hint();
            case Meaning::Sequence:
                return has("--sequence") ? did_you_mean("--sequence")
                                         : key_hint("model.context", value_);
            case Meaning::Steps:
                return trains() ? key_hint("training.steps", value_) : "";
            case Meaning::Epochs:
                return trains() ? "a training counts steps, not epochs: --set training.steps=100"
                                : "";
            case Meaning::CheckpointEvery:
                return has("--checkpoint-every") ? did_you_mean("--checkpoint-every")
                                                 : key_hint("output.checkpoint_every", value_);
            case Meaning::LearningRate:
                return key_hint("training.learning_rate", value_);
            case Meaning::Devices:
                return devices_hint();
            case Meaning::Nodes:
                return has("--nodes") ? did_you_mean("--nodes")
                       : has("--ranks")
                           ? "all processes of 'launch' run here: did you mean '--ranks'?"
                           : nodes_hint();
            case Meaning::Device:
                return has("--device")      ? did_you_mean("--device")
                       : asks_about_model() ? "leave it out: the cluster says it"
                       : plans_model()      ? cluster_for(value_)
                       : is_word_of_key("cluster.backend", value_)
                           ? key_hint("cluster.backend", value_)
                           : key_hint("cluster.device", value_);
            case Meaning::Hardware:
                return has("--cluster")  ? did_you_mean("--cluster")
                       : has("--device") ? did_you_mean("--device")
                                         : key_hint("cluster.device", value_);
            case Meaning::Backend:
                return key_hint("cluster.backend", plain_);
            case Meaning::MemoryLimit:
                return key_hint("cluster.memory_limit", value_);
            case Meaning::Out:
                return has("--out") ? did_you_mean("--out") : "";
            case Meaning::Continue:
                return whole_number_of(value_) ? key_hint("output.checkpoint_every", value_)
                       : has("--resume")       ? fmt::format("write --resume --out {}",
                                                       value_.empty() ? "DIR" : shell_word(value_))
                                         : "";
            case Meaning::Force:
                return has("--force") ? did_you_mean("--force") : "";
            case Meaning::Verbose:
                return has("--verbose") ? did_you_mean("--verbose") : "";
            case Meaning::Quiet:
                return has("--quiet") ? did_you_mean("--quiet") : "";
            case Meaning::NoColor:
                return "did you mean '--color never'?";
            case Meaning::Price:
                return has("--price") ? did_you_mean("--price") : "";
            case Meaning::Bandwidth:
                return has("--bandwidth-gbps") && is_plain_plan()
                           ? did_you_mean("--bandwidth-gbps")
                           : key_hint("cluster.link_gbps", value_);
            case Meaning::ExpertParallel:
                return key_hint("pipeline.expert_parallel", value_);
            case Meaning::ExpertTensorParallel:
                return key_hint("pipeline.expert_tensor_parallel", value_);
            case Meaning::ContextParallel:
                return key_hint("pipeline.context_parallel", value_);
            case Meaning::Json:
                return has("--json") ? did_you_mean("--json") : "";
            case Meaning::File:
                return value_.empty() && scenario_.empty()
                           ? ""
                           : fmt::format(
                                 "leave the option out, and write its value alone: "
                                 "pipetwin {} {}",
                                 command(),
                                 shell_word(value_.empty() ? scenario_ : value_));
            case Meaning::NoRecompute:
                return key_hint("pipeline.recompute", "none");
        }
        return "";
    }

    std::string precision_hint() const {
        const bool is_type = plain_.starts_with("bf") || plain_.starts_with("fp");
        const std::string type = is_type ? plain_ : value_.empty() ? "bf16" : value_;
        return has("--precision")
                   ? is_type ? did_you_mean("--precision", type) : did_you_mean("--precision")
                   : key_hint("training.precision", type);
    }

    std::string micro_batch_size_hint() const {
        if (has("--micro-batch-size")) {
            return did_you_mean("--micro-batch-size");
        }
        if (asks_about_model()) {
            return "leave it out: plan chooses the size of a micro-batch itself";
        }
        if (is_plain_plan()) {
            return "leave it out: the times are those of one micro-batch, whatever its size";
        }
        if (!reads_scenario()) {
            return "";
        }
        const std::optional<std::int64_t> size = whole_number_of(value_);
        const std::optional<Scenario> scenario = read({});
        const std::int64_t of_all =
            scenario ? scenario->training.batch / scenario->pipeline.data_parallel.value_or(1) : 0;
        if (size && of_all > 0 && of_all % *size == 0) {
            return fmt::format(
                "it follows from the number of micro-batches: "
                "--set pipeline.micro_batches={}",
                of_all / *size);
        }
        return "it is training.batch / (pipeline.data_parallel x pipeline.micro_batches): set "
               "these, as in --set pipeline.micro_batches=4";
    }

    std::string batch_hint() const {
        const std::optional<std::int64_t> samples = whole_number_of(value_);
        if (has("--batch-tokens") && asks_about_model()) {
            constexpr std::int64_t default_tokens = 4096;
            const std::int64_t tokens =
                whole_number_of(value_of("--sequence")).value_or(default_tokens);
            return samples
                       ? fmt::format(
                             "did you mean '--batch-tokens {}{}'? {} samples of {} tokens",
                             *samples * tokens,
                             is_given("--sequence") ? "" : fmt::format(" --sequence {}", tokens),
                             *samples,
                             tokens)
                       : did_you_mean("--batch-tokens");
        }
        return is_plain_plan() ? "leave it out: a step has the micro-batches of --micro-batches"
                               : key_hint("training.batch", value_);
    }

    /// "--cluster 8x-h100-sxm" for "h100-sxm".
    static std::string cluster_for(const std::string& device) {
        const std::vector<std::string> known = cluster_names();
        const string_view near = near_hardware(device, known);
        return near.empty() ? cluster_hint() : did_you_mean("--cluster", near);
    }

    /// The devices of as many nodes as the scenario's are.
    std::string nodes_hint() const {
        const std::optional<std::int64_t> nodes = whole_number_of(value_);
        const std::optional<Scenario> scenario = read({});
        return nodes && scenario
                   ? key_hint("cluster.count", fmt::to_string(*nodes * scenario->cluster.per_node))
                   : key_hint("cluster.count", "");
    }

    std::string devices_hint() const {
        if (has("--ranks")) {
            return did_you_mean("--ranks");
        }
        const bool names_scenario = std::ranges::any_of(
            unknown_.args, [](const std::string& word) { return word.ends_with(".toml"); });
        if (plans_model() && !asks_about_model() && !value_.empty() && !number_of(value_)) {
            return cluster_for(value_);
        }
        if (has("--nodes") && (asks_about_model() || (plans_model() && !names_scenario))) {
            const std::string cluster = value_of("--cluster");
            int per_node = 0;
            std::from_chars(cluster.data(), cluster.data() + cluster.size(), per_node);
            const std::optional<std::int64_t> devices = whole_number_of(value_);
            return devices && per_node > 0 && *devices % per_node == 0
                       ? fmt::format(
                             "did you mean '--nodes {}'? So many nodes of {} have {} devices",
                             *devices / per_node,
                             cluster,
                             *devices)
                       : "did you mean '--nodes'? 8 nodes of --cluster 8x-h100-sxm have 64 GPUs";
        }
        return is_plain_plan() && has("--stages") ? did_you_mean("--stages")
                                                  : key_hint("cluster.count", value_);
    }

    /// The option of the same quantity in another unit, with the value in that.
    std::string unit_hint() const {
        constexpr std::array<std::pair<string_view, double>, 3> units{
            {{"-us", 1e-3}, {"-s", 1e3}, {"-ns", 1e-6}}};
        for (const auto& [unit, factor] : units) {
            const std::optional<double> value = number_of(value_);
            if (plain_.ends_with(unit) && value) {
                const std::string option =
                    fmt::format("--{}-ms", plain_.substr(0, plain_.size() - unit.size()));
                if (has(option)) {
                    return did_you_mean(option, fmt::format("{:g}", *value * factor));
                }
            }
        }
        return "";
    }

    bool names_schedule_file() const {
        return std::ranges::any_of(unknown_.args,
                                   [](const std::string& word) { return word.ends_with(".csv"); });
    }
    bool trains() const { return has("--resume"); }

    bool reads_scenario() const { return has("--set"); }

    /// The scenario with the words of --set and more; none where it cannot be read.
    std::optional<Scenario> read(const std::vector<Override>& more) const {
        try {
            return scenario_.empty() ? std::nullopt
                                     : std::optional(read_scenario(scenario_, overrides(more)));
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }

    std::vector<Override> overrides(const std::vector<Override>& more) const {
        std::vector<Override> all;
        for (std::size_t i = 0; i + 1 < unknown_.args.size(); ++i) {
            const std::string& next = unknown_.args[i + 1];
            const std::size_t equals = next.find('=');
            if (unknown_.args[i] == "--set" && equals != std::string::npos) {
                all.push_back({.key = next.substr(0, equals), .value = next.substr(equals + 1)});
            }
        }
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }

    /// "--set KEY=VALUE", with which the scenario is read where there is one; empty: the command
    /// reads no scenario, or there is no such key.
    std::string key_hint(const std::string& key, std::string value) const {
        if (key.empty() || !reads_scenario()) {
            return "";
        }
        if (is_plain_plan()) {
            const std::string option = "--" + plain_option(key);
            return has(option) ? did_you_mean(option)
                               : "leave it out, or simulate a scenario that says it";
        }
        if (asks_about_model()) {
            if (key == "training.precision") {
                return did_you_mean("--precision", own_value(key, value));
            }
            if (key == "training.batch") {
                return batch_hint();
            }
        }
        if (scenario_.empty() && names_schedule_file()) {
            return "leave it out: the schedule file says it";
        }
        constexpr string_view lead = "it is a key of the scenario:";
        if (value.empty()) {
            const std::vector<string_view> words = words_of_key(key);
            const bool is_on =
                read({{.key = key, .value = "true"}}).has_value() ||
                std::ranges::count(std::array<string_view, 2>{"pipeline.sequence_parallel",
                                                              "pipeline.scatter_boundaries"},
                                   string_view(key)) > 0;
            return fmt::format("{} --set {}={}",
                               lead,
                               key,
                               !words.empty() ? fmt::to_string(fmt::join(words, "|"))
                               : is_on        ? "true"
                                              : "VALUE");
        }
        const std::string setting = tried_setting(key, value, scenario_, overrides({}));
        return setting.starts_with("--set") ? fmt::format("{} {}", lead, setting) : setting;
    }

    /// Whether an option of the command begins with the word, as "--heatmap" with "--heat".
    bool begins_known_option() const {
        return std::ranges::any_of(unknown_.known, [this](string_view known) {
            return known.starts_with("--" + plain_) && known.size() > plain_.size() + 2;
        });
    }

    /// The nearest option, compared without its hyphens; empty if none is near.
    string_view nearest_option() const {
        std::vector<string_view> names;
        for (const string_view known : unknown_.known) {
            names.push_back(known.substr(std::min(known.find_first_not_of('-'), known.size())));
        }
        const string_view near = nearest_word(plain_, names);
        const auto at = std::ranges::find(names, near);
        return near.empty() || at == names.end()
                   ? string_view()
                   : unknown_.known[static_cast<std::size_t>(at - names.begin())];
    }

    const UnknownOption& unknown_;
    std::string plain_;     ///< "seq-length"
    std::string value_;     ///< empty: none is given
    std::string scenario_;  ///< a file that is there; empty: none
};

}  // namespace

std::string tried_setting(const std::string& key,
                          const std::string& value,
                          const std::filesystem::path& scenario,
                          std::vector<Override> overrides) {
    std::vector<Override> wanted{{.key = key, .value = own_value(key, value)}};
    std::error_code ignored;
    for (bool is_read = !std::filesystem::is_regular_file(scenario, ignored); !is_read;) {
        std::vector<Override> all = overrides;
        all.insert(all.end(), wanted.begin(), wanted.end());
        try {
            read_scenario(scenario, all);
            is_read = true;
        } catch (const Error& error) {
            const std::size_t comma = wanted.front().value.find(',');
            if (comma != std::string::npos && wanted.front().value.front() != '[') {
                return fmt::format("it takes one value, as in --set {}={}",
                                   key,
                                   wanted.front().value.substr(0, comma));
            }
            const std::string& word = error.advice().meant;
            if (wanted.size() == 1 && error.reason() == ErrorReason::TooFewDevices) {
                wanted.push_back(error.advice().settings.back());
            } else if (wanted.size() == 1 && !word.empty() && word != wanted.front().value) {
                wanted.front().value = word;
            } else {
                const std::vector<string_view> words = words_of_key(key);
                return words.empty() ? fmt::format("leave it out: {}", first_line(error.text()))
                                     : fmt::format("write one of {}, as in --set {}={}",
                                                   fmt::join(words, ", "),
                                                   key,
                                                   words.front());
            }
        } catch (const std::exception&) {
            is_read = true;  // the scenario itself is at fault: that is another error
        }
    }
    std::string setting;
    for (const Override& one : wanted) {
        setting += fmt::format("{}--set {}",
                               setting.empty() ? "" : " ",
                               shell_word(fmt::format("{}={}", one.key, one.value)));
    }
    return setting;
}

std::string key_of_option(const std::string& option) {
    return whole_key(option.substr(std::min(option.size(), option.find_first_not_of('-'))));
}

std::string whole_key(std::string_view text) {
    const std::size_t dot = text.find('.');
    const string_view wanted = dot == string_view::npos ? string_view() : text.substr(0, dot);
    std::string word(dot == string_view::npos ? text : text.substr(dot + 1));
    std::ranges::replace(word, '-', '_');
    for (const KeyGroup& group : all_key_groups()) {
        const std::string table = table_of(group);
        if (table.empty() || (!wanted.empty() && wanted != table)) {
            continue;
        }
        std::vector<string_view> names;
        std::ranges::transform(group.keys, std::back_inserter(names), &ScenarioKey::name);
        if (const string_view same = same_word(word, names); !same.empty()) {
            return fmt::format("{}.{}", table, same);
        }
    }
    return "";
}

std::string hint_for_option(const UnknownOption& unknown) {
    return OptionHint(unknown).text();
}

std::string hint_for_command(const std::string& word, const std::vector<string_view>& known) {
    const std::string plain = plain_option(word);
    if (plain == "pipetwin" || word.ends_with("/pipetwin")) {
        return "leave it out: the program's name is there already";
    }
    if (const string_view command = command_for(plain); !command.empty()) {
        return fmt::format("did you mean '{}'?", command);
    }
    if (word.ends_with(".toml")) {
        return fmt::format("name what to do with it first, as in: pipetwin simulate {}",
                           shell_word(word));
    }
    constexpr std::size_t fewest_letters = 3;
    const auto begins = [&plain](string_view command) { return command.starts_with(plain); };
    if (plain.size() >= fewest_letters && std::ranges::count_if(known, begins) == 1) {
        return fmt::format("did you mean '{}'?", *std::ranges::find_if(known, begins));
    }
    return suggestion(word, known).text();
}

}  // namespace pipetwin::cli
