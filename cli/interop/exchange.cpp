// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/exchange.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/base/output_file.h"
#include "cli/base/shell_word.h"
#include "cli/text/text_output.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"

namespace pipetwin::cli {

namespace {

/// The format of a word of other programs, the first of these that is known.
constexpr auto other_words = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"pytorch", "torch-csv"},
    {"csv", "torch-csv"},
    {"pipelining", "torch-csv"},
    {"schedule", "torch-csv"},
    {"picture", "svg"},
    {"image", "svg"},
    {"perfetto", "chrome-trace"},
    {"trace", "chrome-trace"},
    {"tracing", "chrome-trace"},
    {"trace", "torch-trace"},
    {"kineto", "torch-trace"},
    {"profiler", "torch-trace"},
    {"megatron-lm", "megatron"},
    {"megatron-lm", "megatron-flags"},
    {"mcore", "megatron"},
    {"mcore", "megatron-flags"},
    {"huggingface", "hf"},
    {"hugging-face", "hf"},
    {"transformers", "hf"},
    {"safetensors", "hf"},
    {"config.json", "hf"},
    {"titan", "torchtitan"},
    {"ds", "deepspeed"},
    {"zero", "deepspeed"},
    {"nsight", "nsys"},
    {"nsight-systems", "nsys"},
    {"sqlite", "nsys"},
    {"opentelemetry", "otlp"},
    {"otel", "otlp"},
});

/// The name that was meant: a word of other programs, one that begins alike ("megatron" for
/// "megatron-layout"), or the nearest.
std::string_view meant(std::string_view word, std::span<const std::string_view> known) {
    for (const auto& [theirs, ours] : other_words) {
        const bool is_same = std::ranges::equal(word, theirs, {}, ascii::lower, ascii::lower);
        if (is_same && std::ranges::count(known, ours) > 0) {
            return ours;
        }
    }
    const auto begins_alike = [word](std::string_view name) {
        return !word.empty() && (name.starts_with(word) || word.starts_with(name));
    };
    const auto found = std::ranges::find_if(known, begins_alike);
    return found != known.end() ? *found : nearest_word(word, known);
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::size_t format_index(std::string_view command,
                         std::string_view word,
                         std::string_view source,
                         std::span<const std::string_view> known) {
    const auto found = std::ranges::find(known, word);
    if (found != known.end()) {
        return static_cast<std::size_t>(found - known.begin());
    }
    const bool is_turned = std::ranges::find(known, source) != known.end();
    const std::string_view near = meant(word, known);
    throw Error(ErrorKind::Usage,
                "",
                fmt::format("'{}' is not a format that can be {}ed; known: {}",
                            word,
                            command,
                            fmt::join(known, ", ")),
                is_turned ? fmt::format("the format stands first: pipetwin {} {} {} --out FILE",
                                        command,
                                        source,
                                        shell_word(word))
                : near.empty() ? "name one of these"
                               : fmt::format("did you mean '{}'?", near));
}

void write_result(const std::string& json, const CommonOptions& options, Console& console) {
    if (options.out.empty()) {
        return;
    }
    require_free(options.out, options.force);
    write_output(options.out, json, console);
    console.note(fmt::format("result: {}", options.out.string()));
}

void report(const Exchanged& what, const CommonOptions& options, Console& console) {
    report(what, options, console, {}, Json::object());
}

void report(const Exchanged& what,
            const CommonOptions& options,
            Console& console,
            const std::string& more_text,
            const Json& more_keys) {
    if (options.json) {
        Json json = json_head();
        json["format"] = what.format;
        json["source"] = what.source;
        json["file"] = what.out.string();
        json["ranks"] = what.ranks > 0 ? Json(what.ranks) : Json(nullptr);
        json["stages"] = what.stages > 0 ? Json(what.stages) : Json(nullptr);
        json["devices"] = what.devices > 0 ? Json(what.devices) : Json(nullptr);
        json["micro_batches"] = or_null(what.micro_batches);
        json["costs"] = or_null(what.costs);
        json["layers"] = or_null(what.layers);
        json["parameters"] = or_null(what.parameters);
        json["left_out"] = what.left_out;
        json.update(more_keys);
        console.result(json_text(json));
        return;
    }
    std::vector<std::string> parts;
    if (what.ranks > 0) {
        parts = {counted(what.ranks, "rank"), counted(what.stages, "stage")};
    }
    if (what.devices > what.ranks) {
        parts.push_back("on " + counted(what.devices, "device"));
    }
    if (what.micro_batches) {
        parts.push_back(counted(*what.micro_batches, "micro-batch"));
    }
    if (what.layers) {
        parts.push_back(counted(*what.layers, "layer"));
    }
    if (what.parameters) {
        parts.push_back(with_separators(*what.parameters) + " parameters");
    }
    std::string text = fmt::format("{}: {}\n", what.out.string(), fmt::join(parts, ", "));
    if (!what.left_out.empty()) {
        text += fmt::format("another run than that of {}, without {}\n",
                            what.source,
                            fmt::join(what.left_out, "; "));
    }
    console.result(text + more_text);
}

}  // namespace pipetwin::cli
