// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/program_logs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/log_lines.h"
#include "core/interop/launch/python_repr.h"
#include "core/interop/launch/table_settings.h"

namespace pipetwin {

namespace {

using LogJson = nlohmann::ordered_json;

constexpr std::string_view nanotron_mark = "Config(general=GeneralArgs(";
constexpr std::string_view bridge_mark = "------- Task Configuration -------";
constexpr std::string_view summary_mark =
    "Configuration Summary (Non-Default Values vs Megatron Core)";
constexpr std::size_t most_printed = std::size_t{1} << 20;  ///< bytes of one configuration

[[noreturn]] void refuse_cut(std::string_view place, int line) {
    throw Error(ErrorKind::BadInput,
                fmt::format("{}:{}", place, line),
                "the configuration that is printed here has no end",
                "does the log end in the middle? import the file of the configuration, with this "
                "as --log");
}

/// "[default0]:" of torchrun or "0: " of srun at the beginning of a line; empty: neither is there.
std::string_view process_in_front(std::string_view line) {
    const std::size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
    if (digits > 0 && line.substr(digits).starts_with(": ")) {
        return line.substr(0, digits + 2);
    }
    const std::size_t end = line.find("]:");
    const bool is_rank = line.starts_with('[') && end != std::string_view::npos && end > 1 &&
                         ascii::is_digit(line[end - 1]) &&
                         std::ranges::all_of(line.substr(1, end - 1), [](char c) {
                             return ascii::is_digit(c) || ascii::is_letter(c);
                         });
    return is_rank ? line.substr(0, end + 2) : std::string_view();
}

/// The lines of one process from a mark on, without what stands in front of them. `tag` is what all
/// of its lines have there, at any place; lines of other processes, which have another text with
/// `other`, are left out.
PrintedText lines_behind(std::string_view text, std::string_view mark, std::string_view other) {
    PrintedText found;
    std::string process;
    std::string tag;
    for_each_log_line(text, [&](std::string_view line, int number) {
        if (found.line == 0) {
            const std::size_t at = line.find(mark);
            if (at == std::string_view::npos) {
                return;
            }
            found.line = number;
            process = process_in_front(line);
            const std::size_t open = line.substr(0, at).rfind('[');
            const bool has_tag = !other.empty() && open != std::string_view::npos &&
                                 line.substr(open, at - open).find(other) != std::string_view::npos;
            tag = has_tag ? line.substr(open, at - open) : std::string_view();
            line.remove_prefix(at);
        } else if (const std::size_t at = tag.empty() ? std::string_view::npos : line.find(tag);
                   at != std::string_view::npos) {
            line.remove_prefix(at + tag.size());
        } else if (!tag.empty() && line.find(other) != std::string_view::npos) {
            return;
        } else if (process_in_front(line) == process) {
            line.remove_prefix(process.size());
        } else {
            return;
        }
        if (found.text.size() < most_printed) {
            found.text += line;
            found.text += '\n';
        }
    });
    return found;
}

/// A later configuration of a log is that of the same run, or none of its steps are.
[[noreturn]] void refuse_another(std::string_view place, int line, int first) {
    throw Error(ErrorKind::BadInput,
                fmt::format("{}:{}", place, line),
                fmt::format("another configuration than in line {}", first),
                "cut the log, so that it has one run");
}

/// Whether two objects have the same values of these keys (apart by blanks), or both none.
bool agree(const LogJson& one, const LogJson& other, std::string_view keys) {
    const auto value_of_key = [](const LogJson& object, std::string_view key) {
        const auto found = object.find(std::string(key));
        return found == object.end() ? LogJson(nullptr) : *found;
    };
    return std::ranges::all_of(words_in(keys), [&](std::string_view key) {
        return value_of_key(one, key) == value_of_key(other, key);
    });
}

/// Calls `take` with the number of the line and the rest of the text from there on, for each line
/// with a mark behind the first.
template <class Take>
void for_each_further(std::string_view text, std::string_view mark, const Take& take) {
    std::size_t at = text.find(mark);
    int line = 1 + static_cast<int>(std::ranges::count(text.substr(0, at), '\n'));
    while (at != std::string_view::npos) {
        const std::size_t next = text.find(mark, at + mark.size());
        if (next == std::string_view::npos) {
            return;
        }
        line += static_cast<int>(std::ranges::count(text.substr(at, next - at), '\n'));
        take(line, text.substr(text.rfind('\n', next) + 1));
        at = next;
    }
}

std::optional<std::int64_t> grouped_whole(std::string_view text) {
    std::string digits(trimmed_line(text));
    std::erase(digits, ',');
    std::int64_t number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [rest, status] = std::from_chars(digits.data(), end, number);
    return status == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

/// Puts the words of classes in the place of those of nanotron's files.
void name_as_in_file(LogJson& config) {
    if (!config.contains("parallelism") || !config["parallelism"].is_object()) {
        return;
    }
    LogJson& parallelism = config["parallelism"];
    constexpr std::array<std::pair<std::string_view, std::string_view>, 2> engines{
        {{"OneForwardOneBackwardPipelineEngine", "1f1b"},
         {"AllForwardAllBackwardPipelineEngine", "afab"}}};
    for (const auto& [name, word] : engines) {
        if (parallelism.contains("pp_engine") && parallelism["pp_engine"] == name) {
            parallelism["pp_engine"] = word;
        }
    }
}

/// A text in which each byte that is no UTF-8 is U+FFFD.
std::string in_utf8(std::string_view text) {
    return LogJson::parse(
               LogJson(std::string(text)).dump(-1, ' ', false, LogJson::error_handler_t::replace))
        .get<std::string>();
}

/// The value of a line "key=value," as TrainingArguments print it: texts have no quotes.
LogJson value_of_argument(std::string_view value) {
    constexpr std::string_view values_of_python = "[{(<'\"";
    const bool is_word = value == "True" || value == "False" || value == "None";
    if (value.empty()) {
        return nullptr;
    }
    if (is_word || values_of_python.find(value.front()) != std::string_view::npos) {
        try {
            return LogJson::parse(json_of_python(value, ""));
        } catch (const Error&) {
            return std::string(value);  // such as "<HUB_TOKEN>"
        }
    }
    return LogJson::accept(value) ? LogJson::parse(value) : LogJson(std::string(value));
}

/// Arguments that all processes of a run have in common.
constexpr std::string_view trainer_run_keys =
    "per_device_train_batch_size gradient_accumulation_steps bf16 fp16 fsdp deepspeed "
    "gradient_checkpointing optim torch_compile max_length";

/// Whether a line ends with the name of a class of arguments and its parenthesis.
std::string_view arguments_mark(std::string_view line) {
    constexpr std::array<std::string_view, 5> classes{
        "TrainingArguments(", "SFTConfig(", "RewardConfig(", "DPOConfig(", "ORPOConfig("};
    const std::string_view trimmed = trimmed_line(line);
    for (const std::string_view mark : classes) {
        const bool is_assigned =  // in a program, and printed by none
            trimmed.ends_with(mark) &&
            trimmed_line(trimmed.substr(0, trimmed.size() - mark.size())).ends_with('=');
        if (trimmed.ends_with(mark) && !is_assigned) {
            return mark;
        }
    }
    return {};
}

}  // namespace

bool has_nanotron_log(std::string_view text) {
    return text.find(nanotron_mark) != std::string_view::npos;
}

LaunchFile parse_nanotron_log(std::string_view text, std::string_view place) {
    const PrintedText printed = lines_behind(text, nanotron_mark, "|PP=");
    const std::string at = fmt::format("{}:{}", place, printed.line);
    LogJson config = LogJson::parse(json_of_python(printed.text, at));
    name_as_in_file(config);
    for_each_further(text, nanotron_mark, [&](int line, std::string_view rest) {
        LogJson other = LogJson::parse(json_of_python(
            lines_behind(rest, nanotron_mark, "|PP=").text, fmt::format("{}:{}", place, line)));
        name_as_in_file(other);
        if (!agree(config, other, "parallelism model tokens optimizer")) {
            refuse_another(place, line, printed.line);
        }
    });
    LaunchFile file = parse_json_settings(config.dump(), at);
    file.is_printed = true;
    return file;
}

bool has_trainer_log(std::string_view text) {
    bool has_mark = false;
    bool has_key = false;
    for_each_log_line(text, [&](std::string_view line, int) {
        has_mark = has_mark || !arguments_mark(line).empty();
        has_key = has_key ||
                  (has_mark && line.find("per_device_train_batch_size=") != std::string_view::npos);
    });
    return has_key;
}

LaunchFile parse_trainer_log(std::string_view text, std::string_view place) {
    LogJson arguments = LogJson::object();  // of the first, and of the one that is open
    LogJson open = LogJson::object();
    std::string process;
    int begin = 0;
    int open_line = 0;
    bool has_end = false;
    std::optional<std::int64_t> samples;
    for_each_log_line(text, [&](std::string_view line, int number) {
        constexpr std::string_view total =
            "Total train batch size (w. parallel, distributed & accumulation) =";
        if (const std::size_t at = line.find(total); at != std::string_view::npos && !samples) {
            samples = grouped_whole(line.substr(at + total.size()));
        }
        if (open_line == 0) {
            if (!arguments_mark(line).empty()) {
                open_line = number;
                begin = begin > 0 ? begin : number;
                open = LogJson::object();
                process = process_in_front(line);
            }
            return;
        }
        if (process_in_front(line) != process) {
            return;
        }
        const std::string written = in_utf8(line.substr(process.size()));
        const std::string_view own = trimmed_line(written);
        const std::size_t equals = own.find('=');
        const bool is_key = equals != std::string_view::npos && own.ends_with(',') &&
                            own.substr(0, equals).find_first_of(" \t[]|") == std::string_view::npos;
        if (is_key) {
            const std::string_view value = own.substr(equals + 1, own.size() - equals - 2);
            open[std::string(own.substr(0, equals))] = value_of_argument(value);
        } else if (own == ")") {
            if (has_end && !agree(arguments, open, trainer_run_keys)) {
                refuse_another(place, open_line, begin);
            }
            arguments = has_end ? arguments : open;
            has_end = true;
            open_line = 0;
        }
    });
    if (!has_end) {
        refuse_cut(place, begin);
    }
    LaunchFile file = parse_json_settings(arguments.dump(), fmt::format("{}:{}", place, begin));
    std::erase_if(file.settings, [](const Setting& setting) {
        return setting.values.empty() || setting.values.front().text.empty();
    });
    const auto number_of = [&arguments](const char* key, std::int64_t otherwise) {
        return arguments.contains(key) && arguments[key].is_number_integer()
                   ? arguments[key].get<std::int64_t>()
                   : otherwise;
    };
    const std::int64_t of_device =
        number_of("per_device_train_batch_size", 8) * number_of("gradient_accumulation_steps", 1);
    if (samples && of_device > 0 && *samples % of_device == 0 && *samples / of_device < 1 << 24) {
        file.all_processes = static_cast<int>(*samples / of_device);
    }
    file.is_printed = true;
    return file;
}

std::optional<PrintedText> logged_model_config(std::string_view text) {
    std::optional<PrintedText> found;
    PrintedText open;
    for_each_log_line(text, [&](std::string_view line, int number) {
        if (open.line == 0) {
            const std::size_t at = line.find("Model config ");
            if (at != std::string_view::npos && trimmed_line(line).ends_with('{')) {
                open = {.text = "{\n", .line = number};
            }
            return;
        }
        open.text += line.substr(process_in_front(line).size());
        open.text += '\n';
        if (trimmed_line(line) == "}" && LogJson::accept(open.text)) {
            if (open.text.find("\"model_type\"") != std::string::npos) {
                found = std::move(open);
            }
            open = {};
        } else if (open.text.size() > most_printed) {
            open = {};
        }
    });
    return found;
}

namespace {

/// Arguments that runs of one log have in common.
constexpr std::string_view swift_run_keys =
    "model max_length seq_length micro_batch_size global_batch_size tensor_model_parallel_size "
    "pipeline_model_parallel_size context_parallel_size expert_model_parallel_size "
    "sequence_parallel recompute_granularity recompute_num_layers tuner_type";

constexpr std::array<std::string_view, 2> swift_marks{"args: MegatronSftArguments(",
                                                      "args: MegatronPretrainArguments("};

}  // namespace

bool has_swift_log(std::string_view text) {
    return std::ranges::any_of(swift_marks, [text](std::string_view mark) {
        return text.find(mark) != std::string_view::npos;
    });
}

PrintedText swift_log_arguments(std::string_view text, std::string_view place) {
    const auto* const mark = std::ranges::find_if(swift_marks, [text](std::string_view candidate) {
        return text.find(candidate) != std::string_view::npos;
    });
    const PrintedText printed = lines_behind(text, *mark, "");
    const auto json_of = [&](const PrintedText& arguments, int line) {
        return json_of_python(
            std::string_view(arguments.text).substr(std::string_view("args: ").size()),
            fmt::format("{}:{}", place, line));
    };
    const std::string json = json_of(printed, printed.line);
    for_each_further(text, *mark, [&](int line, std::string_view rest) {
        const std::string other = json_of(lines_behind(rest, *mark, ""), line);
        if (!agree(LogJson::parse(json), LogJson::parse(other), swift_run_keys)) {
            refuse_another(place, line, printed.line);
        }
    });
    return {.text = json, .line = printed.line};
}

bool has_bridge_log(std::string_view text) {
    return text.find(bridge_mark) != std::string_view::npos || has_bridge_summary(text);
}

bool has_bridge_summary(std::string_view text) {
    return text.find(bridge_mark) == std::string_view::npos &&
           text.find(summary_mark) != std::string_view::npos;
}

namespace {

/// A line of the summary as YAML has it: "model:" for "[model] Non-default values (vs ...):", and
/// "  bf16: true" for "  bf16: True  (Mcore default: False)"; empty: it is neither.
std::string yaml_of_summary(std::string_view line, std::string_view place) {
    if (line.starts_with('[') && line.ends_with(':') && line.find(']') != std::string_view::npos) {
        return fmt::format("{}:\n", line.substr(1, line.find(']') - 1));
    }
    const std::size_t colon = line.find(": ");
    const std::string_view name = line.substr(0, std::min(colon, line.size()));
    const bool is_value = name.starts_with("  ") && name.size() > 2 &&
                          std::ranges::all_of(name.substr(2), [](char c) {
                              return ascii::is_letter(c) || ascii::is_digit(c) || c == '_';
                          });
    if (!is_value || colon == std::string_view::npos) {
        return {};
    }
    const std::string_view value = line.substr(colon + 2);
    std::string json = json_of_python(value, place);
    for (const auto& [type, word] : {std::pair("torch.bfloat16", "bf16"),
                                     std::pair("torch.float16", "fp16"),
                                     std::pair("torch.float32", "fp32")}) {
        json = value.starts_with(type) ? std::string(word) : json;
    }
    return fmt::format("{}: {}\n", name, json);
}

/// The configuration that a log prints behind a line with `mark`, up to the `rules`-th line that
/// begins with `rule`: `head`, and what `read` makes of each line between, without the prefix that
/// the line with the mark has, and of its number. Printed more than once, it is the first one; one
/// that differs, and a log that ends before its rule, is refused with its line.
template <class Read>
PrintedText ruled_text(std::string_view text,
                       std::string_view place,
                       std::string_view mark,
                       std::string_view rule,
                       int rules,
                       const std::string& head,
                       const Read& read) {
    PrintedText found;
    PrintedText open;
    std::string front;
    int left = 0;  // rules to come
    for_each_log_line(text, [&](std::string_view line, int number) {
        const std::size_t at = line.find(mark);
        if (at != std::string_view::npos) {
            front = line.substr(0, at);
            open = {.text = head, .line = number};
            left = rules;
            return;
        }
        if (open.line == 0 || !line.starts_with(front)) {
            return;
        }
        const std::string_view own = line.substr(front.size());
        if (!own.starts_with(rule)) {
            if (open.text.size() < most_printed) {
                open.text += read(own, number);
            }
            return;
        }
        if (--left > 0) {
            return;
        }
        if (found.line > 0 && found.text != open.text) {
            refuse_another(place, open.line, found.line);
        }
        found = found.line > 0 ? found : open;
        open = {};
    });
    if (found.line == 0) {
        refuse_cut(place, open.line);
    }
    return found;
}

}  // namespace

PrintedText bridge_log_yaml(std::string_view text, std::string_view place) {
    if (has_bridge_summary(text)) {
        // One rule is below its title, one behind its last line.
        return ruled_text(text,
                          place,
                          summary_mark,
                          "=====",
                          2,
                          "_target_: megatron.bridge.training.config.ConfigContainer\n",
                          [place](std::string_view line, int number) {
                              return yaml_of_summary(line, fmt::format("{}:{}", place, number));
                          });
    }
    return ruled_text(text, place, bridge_mark, "---", 1, "", [](std::string_view line, int) {
        return std::string(line) + '\n';
    });
}

namespace {

/// Arguments that follow from others (megatron/neox_arguments/arguments.py, calculate_derived).
constexpr std::string_view derived_of_neox =
    "batch_size clip_grad config_files deepspeed deepspeed_config dynamic_loss_scale gas "
    "is_pipe_parallel local_rank lr optimizer_type params_dtype rank save_iters zero_stage "
    "zero_allgather_bucket_size zero_contiguous_gradients zero_reduce_bucket_size "
    "zero_reduce_scatter";

/// What two blocks of one run have in common.
constexpr std::string_view of_the_run =
    "attention_config gradient_accumulation_steps hidden_size intermediate_size "
    "model_parallel_size num_attention_heads num_kv_heads num_layers pipe_parallel_size precision "
    "seq_length train_batch_size train_micro_batch_size_per_gpu world_size zero_optimization";

/// "num_layers" and "4" of "  num_layers ......... 4..........updated".
struct NeoxArgument {
    std::string_view name;
    std::string_view value;
    bool is_default = false;
};

std::optional<NeoxArgument> neox_argument_in(std::string_view line) {
    line = trimmed_line(line);
    const bool is_default = line.ends_with("default");
    if (!is_default && !line.ends_with("updated")) {
        return std::nullopt;
    }
    line.remove_suffix(std::string_view("default").size());
    const std::size_t dots = line.find(" .");
    const std::size_t behind =
        dots == std::string_view::npos ? dots : line.find_first_not_of('.', dots + 1);
    if (behind == std::string_view::npos || line[behind] != ' ') {
        return std::nullopt;
    }
    std::string_view name = line.substr(0, dots);
    name.remove_prefix(name.rfind(' ') == std::string_view::npos ? 0 : name.rfind(' ') + 1);
    std::string_view value = line.substr(behind + 1);
    value = value.substr(0, value.find_last_not_of('.') + 1);
    return NeoxArgument{.name = name, .value = trimmed_line(value), .is_default = is_default};
}

bool begins_neox_block(std::string_view line) {
    return line.find("--- arguments ---") != std::string_view::npos;
}

bool ends_neox_block(std::string_view line) {
    return line.find("--- end of arguments ---") != std::string_view::npos;
}

/// The value as JSON; a text where it is none of Python's.
nlohmann::json neox_value_of(std::string_view text) {
    try {
        return nlohmann::json::parse(json_of_python(text, "argument"));
    } catch (const Error&) {
        return std::string(text);
    }
}

}  // namespace

bool has_neox_log(std::string_view text) {
    bool is_open = false;
    bool has_stages = false;
    for_each_log_line(text, [&](std::string_view line, int /*number*/) {
        is_open = (is_open || begins_neox_block(line)) && !ends_neox_block(line);
        if (is_open && !has_stages && line.find("pipe_parallel_size .") != std::string_view::npos) {
            const std::optional<NeoxArgument> argument = neox_argument_in(line);
            has_stages = argument && argument->name == "pipe_parallel_size";
        }
    });
    return has_stages;
}

LaunchFile parse_neox_log(std::string_view text, std::string_view place) {
    nlohmann::json first;  // null: no whole block was read
    nlohmann::json open;   // null: none is open
    int first_line = 0;
    int open_line = 0;
    for_each_log_line(text, [&](std::string_view line, int number) {
        if (open.is_null()) {
            if (begins_neox_block(line)) {
                open = nlohmann::json::object();
                open_line = number;
            }
            return;
        }
        if (ends_neox_block(line)) {
            if (first.is_null()) {
                first = std::exchange(open, nullptr);
                first_line = open_line;
                return;
            }
            for (const std::string_view key : words_in(of_the_run)) {
                const std::string name(key);
                if (open.value(name, nlohmann::json()) != first.value(name, nlohmann::json())) {
                    throw Error(ErrorKind::BadInput,
                                fmt::format("{}:{}", place, open_line),
                                fmt::format("the arguments here have another {} than those of "
                                            "line {}",
                                            name,
                                            first_line),
                                "cut the log, so that it is of one run");
                }
            }
            open = nullptr;
            return;
        }
        const std::optional<NeoxArgument> argument = neox_argument_in(line);
        if (argument && !argument->is_default && !has_word(derived_of_neox, argument->name) &&
            argument->value != "None") {
            open[std::string(argument->name)] = neox_value_of(argument->value);
        }
    });
    if (first.is_null()) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}", place, open_line),
                    "the arguments of GPT-NeoX begin here, and have no end",
                    "expected a line '---------------- end of arguments ----------------': is the "
                    "log cut?");
    }
    LaunchFile file = parse_json_settings(first.dump(), fmt::format("{}:{}", place, first_line));
    for (Setting& setting : file.settings) {
        for (char& c : setting.name) {
            c = c == '_' ? '-' : c;
        }
    }
    file.is_printed = true;
    return file;
}

}  // namespace pipetwin
