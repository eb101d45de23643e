// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/checkpoint_json.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/content_hash.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using nlohmann::ordered_json;
using std::string_view;

/// A million tensors with their names.
constexpr JsonLimits limits{.max_bytes = std::size_t{256} << 20, .max_depth = 8};

constexpr std::size_t hash_digits = 32;

/// Hash of a JSON value; independent of the order of the keys.
std::string hash_of(const nlohmann::json& value) {
    return content_hash(value.dump());
}

int small(const JsonObject& object, string_view key) {
    const std::int64_t value = object.whole(key);
    if (value > std::numeric_limits<int>::max()) {
        object.refuse(key, fmt::format("at most {}", std::numeric_limits<int>::max()));
    }
    return static_cast<int>(value);
}

/// All 64 bits, which a JSON number would not hold.
std::uint64_t read_seed(const JsonObject& object) {
    const std::string text = object.text("seed");
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc() || end != text.data() + text.size()) {
        object.refuse("seed", "the digits of a number below 2^64");
    }
    return seed;
}

CheckpointFile read_file_entry(const JsonObject& object) {
    object.expect_keys(std::array<string_view, 3>{"name", "bytes", "tensors"});
    CheckpointFile file{.name = object.text("name"), .bytes = object.whole("bytes")};
    for (const JsonObject& entry : object.objects("tensors")) {
        entry.expect_keys(std::array<string_view, 2>{"name", "xxh3_128"});
        CheckpointTensor tensor{.name = entry.text("name"), .hash = entry.text("xxh3_128")};
        if (tensor.hash.size() != hash_digits ||
            tensor.hash.find_first_not_of("0123456789abcdef") != std::string::npos) {
            entry.refuse("xxh3_128", "32 hex digits");
        }
        file.tensors.push_back(std::move(tensor));
    }
    return file;
}

}  // namespace

CheckpointManifest parse_checkpoint(string_view text, string_view place) {
    const nlohmann::json root = parse_json(text, place, limits);
    const JsonObject outer(root, place, "");
    outer.expect_keys(std::array<string_view, 3>{"schema_version", "xxh3_128", "checkpoint"});
    if (outer.whole("schema_version") != 1) {
        outer.refuse("schema_version", "1");
    }
    const JsonObject object = outer.object("checkpoint");
    if (outer.text("xxh3_128") != hash_of(root["checkpoint"])) {
        outer.refuse("xxh3_128", "the hash of the content of 'checkpoint': the file is damaged");
    }
    object.expect_keys(std::array<string_view, 8>{
        "tool_version", "steps_done", "optimizer", "precision", "seed", "batch", "data", "files"});
    CheckpointManifest manifest{.steps_done = small(object, "steps_done"),
                                .optimizer = object.text("optimizer"),
                                .precision = object.text("precision"),
                                .seed = read_seed(object),
                                .batch = small(object, "batch"),
                                .data = object.text("data"),
                                .tool_version = object.text("tool_version")};
    for (const JsonObject& file : object.objects("files")) {
        manifest.files.push_back(read_file_entry(file));
    }
    return manifest;
}

std::string print_checkpoint(const CheckpointManifest& manifest) {
    ordered_json root{{"tool_version", manifest.tool_version},
                      {"steps_done", manifest.steps_done},
                      {"optimizer", manifest.optimizer},
                      {"precision", manifest.precision},
                      {"seed", std::to_string(manifest.seed)},
                      {"batch", manifest.batch},
                      {"data", manifest.data},
                      {"files", ordered_json::array()}};
    for (const CheckpointFile& file : manifest.files) {
        ordered_json tensors = ordered_json::array();
        for (const CheckpointTensor& tensor : file.tensors) {
            tensors.push_back({{"name", tensor.name}, {"xxh3_128", tensor.hash}});
        }
        root["files"].push_back(
            {{"name", file.name}, {"bytes", file.bytes}, {"tensors", std::move(tensors)}});
    }
    const ordered_json outer{
        {"schema_version", 1}, {"xxh3_128", hash_of(nlohmann::json(root))}, {"checkpoint", root}};
    return outer.dump(1) + "\n";
}

}  // namespace pipetwin
