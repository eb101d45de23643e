// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/neox_log.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/log_lines.h"
#include "core/interop/launch/python_repr.h"
#include "core/interop/launch/table_settings.h"

namespace pipetwin {

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
