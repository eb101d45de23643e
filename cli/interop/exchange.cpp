#include "cli/interop/exchange.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/base/output_file.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"

namespace pipetwin::cli {

namespace {

/// The name that was meant: one that begins alike ("megatron" for "megatron-layout"), or the
/// nearest.
std::string_view meant(std::string_view word, std::span<const std::string_view> known) {
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
                         std::span<const std::string_view> known) {
    const auto found = std::ranges::find(known, word);
    if (found != known.end()) {
        return static_cast<std::size_t>(found - known.begin());
    }
    const std::string those =
        fmt::format("this version can {} {}", command, fmt::join(known, ", "));
    const std::string_view near = meant(word, known);
    throw Error(ErrorKind::Usage,
                "",
                fmt::format("'{}' is not a format that can be {}ed", word, command),
                near.empty() ? those : fmt::format("did you mean '{}'? {}", near, those));
}

void require_free(const std::filesystem::path& out, bool force, std::string_view option) {
    std::error_code ignored;
    if (std::filesystem::is_directory(out, ignored)) {
        throw Error(ErrorKind::Io,
                    out.string(),
                    "there is a folder of this name, expected the name of a file",
                    fmt::format("name a file with {} FILE", option));
    }
    if (!force && std::filesystem::exists(out, ignored)) {
        throw Error(
            ErrorKind::Io,
            out.string(),
            "the file is there already",
            fmt::format("name another file with {} FILE, or overwrite it with --force", option));
    }
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
    console.result(text);
}

}  // namespace pipetwin::cli
