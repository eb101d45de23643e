// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/known_format.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "cli/base/input.h"
#include "cli/interop/import/base_files.h"
#include "core/artifacts/file_kinds.h"
#include "core/base/error.h"
#include "core/interop/launch/logged_config.h"
#include "core/interop/launch/printed_arguments.h"
#include "core/interop/launch/program_logs.h"
#include "core/interop/launch/swift_arguments.h"
#include "core/interop/launch/training_run.h"
#include "core/interop/program_flags.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_known_file = std::size_t{1} << 29;

struct KindFormat {
    FileKind kind;
    std::string_view format;
};

constexpr std::array kind_formats{
    KindFormat{FileKind::Schedule, "torch-csv"},
    KindFormat{FileKind::Megatron, "megatron"},
    KindFormat{FileKind::Torchtitan, "torchtitan"},
    KindFormat{FileKind::DeepSpeed, "deepspeed"},
    KindFormat{FileKind::CostTable, "csv"},
    KindFormat{FileKind::HfConfig, "hf"},
    KindFormat{FileKind::Graph, "pipedream"},
    KindFormat{FileKind::TorchTrace, "torch-trace"},
    KindFormat{FileKind::Nsys, "nsys"},
    KindFormat{FileKind::Otlp, "otlp"},
    KindFormat{FileKind::OurTrace, "chrome-trace"},
};

[[noreturn]] void refuse_kind(const std::filesystem::path& file, FileKind kind) {
    throw Error(ErrorKind::BadInput,
                file.string(),
                kind == FileKind::Unknown
                    ? std::string("none of the formats that 'import' reads is recognised in it")
                    : fmt::format("{}, which 'import' does not read", words(kind)),
                kind == FileKind::Unknown
                    ? "name its format in place of auto: pipetwin import FORMAT FILE --out FILE"
                    : "'pipetwin help' lists the commands that take such a file");
}

/// A layout of Megatron's: letters, ends of stages, groups and their numbers.
bool is_layout(std::string_view text) {
    return text.find('E') != std::string_view::npos && text.find('L') != std::string_view::npos &&
           text.find_first_not_of("EtmL|()*,0123456789 \r\n") == std::string_view::npos;
}

/// A file that goes before MaxText's base.yml.
bool is_maxtext_yaml(std::string_view text) {
    const auto has = [text](std::string_view key) {
        return text.starts_with(key) ||
               text.find('\n' + std::string(key)) != std::string_view::npos;
    };
    return has("per_device_batch_size:") || has("ici_fsdp_parallelism:") ||
           (has("base_config:") && has("model_name:"));
}

/// Arguments of the Trainer, or accelerate's of a run with FSDP.
bool is_trainer(std::string_view text) {
    const auto has = [text](std::string_view key) {
        return text.starts_with(fmt::format("{}:", key)) ||
               text.find(fmt::format("\n{}:", key)) != std::string_view::npos ||
               text.find(fmt::format("\"{}\":", key)) != std::string_view::npos;
    };
    return has("per_device_train_batch_size") || (has("distributed_type") && has("num_processes"));
}

/// axolotl's YAML, which has the Trainer's arguments beside its own.
bool is_axolotl(std::string_view text) {
    const auto has = [text](std::string_view key) {
        return text.starts_with(fmt::format("{}:", key)) ||
               text.find(fmt::format("\n{}:", key)) != std::string_view::npos;
    };
    return has("base_model") && has("datasets") && (has("sequence_len") || has("micro_batch_size"));
}

/// What torchtitan saves of a run: tables of all its settings.
bool is_titan_json(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    const auto has = [text](std::string_view key) {
        return text.find(key) != std::string_view::npos;
    };
    return begin != std::string_view::npos && text[begin] == '{' &&
           (has("\"parallelism\"") || has("\"experimental\"")) &&
           has("\"activation_checkpoint\"") && has("\"training\"");
}

/// The format of a text with a mark that no other has; none: it has none.
std::optional<KnownFormat> format_by_mark(std::string_view text) {
    if (has_neox_log(text)) {
        return KnownFormat{.format = "neox", .words = "a log of GPT-NeoX"};
    }
    if (has_printed_arguments(text)) {
        return KnownFormat{.format = "megatron",
                           .words = "a log with the arguments that Megatron prints"};
    }
    if (has_bridge_log(text)) {
        return KnownFormat{.format = "megatron", .words = "a log of Megatron-Bridge"};
    }
    if (has_swift_log(text)) {
        return KnownFormat{.format = "swift", .words = "a log of ms-swift"};
    }
    if (has_nanotron_log(text)) {
        return KnownFormat{.format = "nanotron", .words = "a log of nanotron"};
    }
    if (is_swift_arguments(text)) {
        return KnownFormat{.format = "swift", .words = "the arguments that ms-swift saved"};
    }
    if (has_logged_config(text, titan_config_marks)) {
        return KnownFormat{.format = "torchtitan", .words = "a log of torchtitan"};
    }
    if (has_logged_config(text, deepspeed_config_marks)) {
        return KnownFormat{.format = "deepspeed", .words = "a log of DeepSpeed"};
    }
    if (has_trainer_log(text)) {
        return KnownFormat{.format = "trainer", .words = "a log of Hugging Face's Trainer"};
    }
    if (has_maxtext_log(text)) {
        return KnownFormat{.format = "maxtext", .words = "a log of MaxText"};
    }
    if (is_primus_of(text, "maxtext")) {
        return KnownFormat{.format = "maxtext", .words = "Primus's YAML for MaxText"};
    }
    if (is_maxtext_yaml(text)) {
        return KnownFormat{.format = "maxtext", .words = "a configuration of MaxText"};
    }
    if (is_primus_of(text, "torchtitan")) {
        return KnownFormat{.format = "torchtitan", .words = "Primus's YAML for torchtitan"};
    }
    if (is_titan_json(text)) {
        return KnownFormat{.format = "torchtitan",
                           .words = "a configuration that torchtitan saved"};
    }
    if (is_axolotl(text)) {
        return KnownFormat{.format = "trainer", .words = "a configuration of axolotl"};
    }
    if (is_trainer(text)) {
        return KnownFormat{.format = "trainer", .words = "arguments of Hugging Face's Trainer"};
    }
    if (is_nanotron(text)) {
        return KnownFormat{.format = "nanotron", .words = "a configuration of nanotron"};
    }
    if (is_neox(text)) {
        return KnownFormat{.format = "neox", .words = "a configuration of GPT-NeoX"};
    }
    if (is_nemo2(text)) {
        return KnownFormat{.format = "nemo", .words = "a configuration of NeMo 2"};
    }
    if (is_nemo(text)) {
        return KnownFormat{.format = "nemo", .words = "a configuration of NeMo"};
    }
    if (is_layout(text)) {
        return KnownFormat{.format = "megatron", .words = "Megatron's pipeline layout"};
    }
    return std::nullopt;
}

/// The format of files of a kind; none: `import` does not read them.
std::optional<KnownFormat> format_of_kind(FileKind kind) {
    const auto* const found = std::ranges::find(kind_formats, kind, &KindFormat::kind);
    return found == kind_formats.end()
               ? std::nullopt
               : std::optional(KnownFormat{.format = std::string(found->format),
                                           .words = std::string(words(kind))});
}

}  // namespace

std::optional<KnownFormat> format_of_text(std::string_view text) {
    const std::optional<KnownFormat> marked = format_by_mark(text);
    return marked ? marked : format_of_kind(kind_of_content(text));
}

KnownFormat known_format(const std::filesystem::path& file) {
    if (file == "-") {
        throw Error(ErrorKind::Usage,
                    "auto",
                    "standard input is read once, so its format cannot be looked for",
                    "name the format, or a file");
    }
    std::error_code ignored;
    if (std::filesystem::exists(file / "config.json", ignored)) {
        return {.format = "hf", .words = "a folder with a config.json of Hugging Face"};
    }
    FileKind kind = kind_of_file(file);
    if (kind == FileKind::Unknown || kind == FileKind::Megatron || kind == FileKind::DeepSpeed) {
        const std::string text = read_input(file, largest_known_file);
        if (const std::optional<KnownFormat> marked = format_by_mark(text)) {
            return *marked;
        }
        kind = kind == FileKind::Unknown ? kind_of_content(text) : kind;
    }
    const std::optional<KnownFormat> known = format_of_kind(kind);
    if (!known) {
        refuse_kind(file, kind);
    }
    return *known;
}

}  // namespace pipetwin::cli
