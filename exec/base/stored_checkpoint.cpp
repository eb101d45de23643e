// SPDX-License-Identifier: Apache-2.0
#include "exec/base/stored_checkpoint.h"

#include <algorithm>
#include <array>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/content_hash.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/json_text.h"

namespace pipetwin::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_manifest_bytes = std::size_t{256} << 20U;

/// Reads the header; the first eight bytes of the file are its length.
SafetensorsHeader header_of(const FileBeneath& file, const fs::path& path) {
    std::array<std::byte, 8> length{};
    file.read(0, length);
    std::uint64_t bytes = 0;
    for (std::size_t i = length.size(); i-- > 0;) {
        bytes = bytes << 8U | std::to_integer<std::uint64_t>(length.at(i));
    }
    const auto size = static_cast<std::uint64_t>(file.size());
    std::string begin(std::min(bytes, size - length.size()) + length.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(begin)));
    return parse_safetensors_header(begin, static_cast<std::int64_t>(size), path.string());
}

}  // namespace

StoredCheckpoint::StoredCheckpoint(const fs::path& folder)
    : manifest_(parse_checkpoint(read_file(folder / checkpoint_manifest, most_manifest_bytes),
                                 (folder / checkpoint_manifest).string())) {
    for (const CheckpointFile& file : manifest_.files) {
        add_file(folder, file);
    }
}

const SafetensorsEntry* StoredCheckpoint::find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &found->second.entry;
}

void StoredCheckpoint::read(const std::string& name, std::vector<std::byte>& bytes) const {
    const Place& place = places_.at(name);
    bytes.resize(as_index(place.entry.end - place.entry.begin));
    place.file->read(as_index(place.data_begin + place.entry.begin), bytes);
    ContentHash hash;
    hash.add(bytes);
    if (hash.digits() != place.hash) {
        throw Error(ErrorKind::BadInput,
                    place.path.string(),
                    fmt::format("the bytes of tensor '{}' are not those that were written", name));
    }
}

void StoredCheckpoint::add_file(const fs::path& folder, const CheckpointFile& listed) {
    const FileBeneath& file =
        *files_.emplace_back(std::make_unique<FileBeneath>(folder, listed.name));
    const fs::path path = folder / listed.name;
    if (file.size() != static_cast<std::size_t>(listed.bytes)) {
        throw Error(
            ErrorKind::BadInput,
            path.string(),
            fmt::format("it has {}, expected {}", counted(file.size(), "byte"), listed.bytes));
    }
    SafetensorsHeader header = header_of(file, path);
    const auto same_name = [](const SafetensorsEntry& entry, const CheckpointTensor& tensor) {
        return entry.name == tensor.name;
    };
    if (!std::ranges::equal(header.tensors, listed.tensors, same_name)) {
        throw Error(
            ErrorKind::BadInput, path.string(), "its tensors are not those of its manifest");
    }
    for (std::size_t i = 0; i < header.tensors.size(); ++i) {
        SafetensorsEntry& entry = header.tensors[i];
        const std::string name = entry.name;
        const Place place{.file = &file,
                          .path = path,
                          .data_begin = header.data_begin,
                          .entry = std::move(entry),
                          .hash = listed.tensors[i].hash};
        if (!places_.emplace(name, place).second) {
            throw Error(ErrorKind::BadInput,
                        path.string(),
                        fmt::format("tensor '{}' is in two files", name));
        }
    }
}

std::vector<fs::path> checkpoints_newest_first(const fs::path& folder) {
    std::vector<fs::path> all;
    std::error_code status;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, status)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(checkpoint_prefix) && entry.is_directory()) {
            all.push_back(entry.path());
        }
    }
    // Names of one length are in the order of their numbers; longer ones are later.
    std::ranges::sort(all, [](const fs::path& a, const fs::path& b) {
        const std::string left = a.filename().string();
        const std::string right = b.filename().string();
        return std::pair(left.size(), left) > std::pair(right.size(), right);
    });
    return all;
}

std::vector<int> whole_checkpoints(const fs::path& folder) {
    std::vector<int> steps;
    for (const fs::path& one : checkpoints_newest_first(folder)) {
        try {
            steps.push_back(StoredCheckpoint(one).manifest().steps_done);
        } catch (const Error&) {
            continue;  // a damaged one
        }
    }
    std::ranges::reverse(steps);
    return steps;
}

}  // namespace pipetwin::exec
