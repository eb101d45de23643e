// SPDX-License-Identifier: Apache-2.0
#include "exec/training/checkpoint.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/content_hash.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/safetensors.h"
#include "core/text/json_text.h"
#include "exec/base/durable_file.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view manifest_name = "checkpoint.json";
constexpr std::string_view prefix = "step-";
constexpr std::size_t kept_checkpoints = 2;
constexpr std::size_t most_manifest_bytes = std::size_t{256} << 20U;

std::string_view safetensors_type(DType type) {
    switch (type) {
        case DType::F32:
            return "F32";
        case DType::F64:
            return "F64";
        case DType::BF16:
            return "BF16";
        case DType::I32:
            return "I32";
        case DType::U8:
            return "U8";
    }
    throw InternalError("a type of elements");
}

/// A tensor of a parameter under the name that it has in a file.
struct NamedTensor {
    std::string name;
    const Parameter* parameter;
    Tensor* tensor;
};

void add(std::vector<NamedTensor>& list,
         std::string_view suffix,
         Parameter& parameter,
         Tensor& tensor) {
    if (!tensor.empty()) {
        list.push_back({.name = fmt::format("{}{}", parameter.name, suffix),
                        .parameter = &parameter,
                        .tensor = &tensor});
    }
}

std::vector<NamedTensor> weights_of(const std::vector<Parameter*>& parameters) {
    std::vector<NamedTensor> list;
    for (Parameter* const parameter : parameters) {
        add(list, "", *parameter, parameter->value);
    }
    return list;
}

std::vector<NamedTensor> optimizer_state_of(const std::vector<Parameter*>& parameters) {
    std::vector<NamedTensor> list;
    for (Parameter* const parameter : parameters) {
        add(list, ".master", *parameter, parameter->master);
        add(list, ".first", *parameter, parameter->first);
        add(list, ".second", *parameter, parameter->second);
        add(list, ".average", *parameter, parameter->average);
    }
    return list;
}

SafetensorsEntry entry_of(const NamedTensor& named) {
    const PaddedMatrix matrix = named.parameter->matrix();
    return {.name = named.name,
            .dtype = std::string(safetensors_type(named.tensor->dtype())),
            .shape = {matrix.rows, matrix.columns}};
}

CheckpointFile write_tensors(const fs::path& folder,
                             const std::string& name,
                             const std::vector<NamedTensor>& tensors,
                             const TrainedParameters& parameters) {
    SafetensorsHeader header;
    header.metadata = {{"format", "pipetwin"}};
    std::ranges::transform(tensors, std::back_inserter(header.tensors), entry_of);
    place_tensors(header);
    const std::string begin = print_safetensors_header(header);
    CheckpointFile written{.name = name, .bytes = static_cast<std::int64_t>(begin.size())};
    DurableFile file(folder / name);
    file.write(begin);
    std::vector<std::byte> bytes;
    for (const NamedTensor& named : tensors) {
        parameters.read_numbers(*named.parameter, *named.tensor, bytes);
        file.write(bytes);
        ContentHash hash;
        hash.add(bytes);
        written.bytes += std::ssize(bytes);
        written.tensors.push_back({.name = named.name, .hash = hash.digits()});
    }
    file.finish();
    return written;
}

/// A checkpoint on the disk, opened.
class Stored {
  public:
    explicit Stored(const fs::path& folder)
        : manifest_(parse_checkpoint(read_file(folder / manifest_name, most_manifest_bytes),
                                     (folder / manifest_name).string())) {
        for (const CheckpointFile& file : manifest_.files) {
            add_file(folder, file);
        }
    }

    const CheckpointManifest& manifest() const { return manifest_; }
    std::size_t tensor_count() const { return places_.size(); }

    /// Null where it has no tensor of that name.
    const SafetensorsEntry* find(const std::string& name) const {
        const auto found = places_.find(name);
        return found == places_.end() ? nullptr : &found->second.entry;
    }

    /// Reads the bytes of a tensor that `find` knows. Throws Error(BadInput) if they have changed
    /// since they were written.
    void read(const std::string& name, std::vector<std::byte>& bytes) const {
        const Place& place = places_.at(name);
        bytes.resize(as_index(place.entry.end - place.entry.begin));
        place.file->read(as_index(place.data_begin + place.entry.begin), bytes);
        ContentHash hash;
        hash.add(bytes);
        if (hash.digits() != place.hash) {
            throw Error(
                ErrorKind::BadInput,
                place.path.string(),
                fmt::format("the bytes of tensor '{}' are not those that were written", name));
        }
    }

  private:
    struct Place {
        const FileBeneath* file;
        fs::path path;
        std::int64_t data_begin;
        SafetensorsEntry entry;
        std::string hash;
    };

    void add_file(const fs::path& folder, const CheckpointFile& listed) {
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

    /// Reads the header; the first eight bytes of the file are its length.
    static SafetensorsHeader header_of(const FileBeneath& file, const fs::path& path) {
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

    CheckpointManifest manifest_;
    std::vector<std::unique_ptr<FileBeneath>> files_;
    std::map<std::string, Place> places_;
};

std::vector<NamedTensor> all_tensors(const TrainedParameters& parameters) {
    std::vector<NamedTensor> all;
    for (const std::vector<Parameter*>& piece : parameters.pieces) {
        std::ranges::move(weights_of(piece), std::back_inserter(all));
        std::ranges::move(optimizer_state_of(piece), std::back_inserter(all));
    }
    return all;
}

std::string text_of(const SafetensorsEntry& entry) {
    return fmt::format("({}) {}", fmt::join(entry.shape, ", "), entry.dtype);
}

/// Throws Error(BadInput) if a checkpoint is not one of this model, whatever its bytes are.
void expect_same_tensors(const Stored& stored,
                         const std::vector<NamedTensor>& wanted,
                         const fs::path& folder) {
    const auto refuse = [&](const std::string& text) {
        throw Error(
            ErrorKind::BadInput,
            folder.string(),
            text + ": it is a checkpoint of another model, optimizer or precision",
            "continue with the scenario that it was written with, or train into another folder "
            "with --out DIR, without --resume");
    };
    for (const NamedTensor& named : wanted) {
        const SafetensorsEntry* const found = stored.find(named.name);
        if (found == nullptr) {
            refuse(fmt::format("no tensor '{}'", named.name));
        }
        const SafetensorsEntry expected = entry_of(named);
        if (found->shape != expected.shape || found->dtype != expected.dtype) {
            refuse(fmt::format(
                "tensor '{}' is {}, expected {}", named.name, text_of(*found), text_of(expected)));
        }
    }
    if (stored.tensor_count() != wanted.size()) {
        refuse(fmt::format(
            "{}, expected {}", counted(stored.tensor_count(), "tensor"), wanted.size()));
    }
}

}  // namespace

void Checkpoints::save(CheckpointManifest about, const TrainedParameters& parameters) const {
    const std::string name = fmt::format("{}{:08}", prefix, about.steps_done);
    const fs::path unfinished = folder_ / ("." + name);
    const fs::path finished = folder_ / name;
    try {
        fs::create_directories(folder_);
        flush_folder(fs::absolute(folder_).parent_path());
        fs::remove_all(unfinished);  // of a run that was killed here
        fs::create_directory(unfinished);
        for (std::size_t piece = 0; piece < parameters.pieces.size(); ++piece) {
            const auto write = [&](std::string_view what, const std::vector<NamedTensor>& tensors) {
                if (!tensors.empty()) {
                    about.files.push_back(
                        write_tensors(unfinished,
                                      fmt::format("{:03}.{}.safetensors", piece, what),
                                      tensors,
                                      parameters));
                }
            };
            write("weights", weights_of(parameters.pieces[piece]));
            write("optimizer", optimizer_state_of(parameters.pieces[piece]));
        }
        DurableFile manifest(unfinished / manifest_name);
        manifest.write(print_checkpoint(about));
        manifest.finish();
        flush_folder(unfinished);
        fs::remove_all(finished);  // damaged, or of the same step: the one before it is still there
        fs::rename(unfinished, finished);
        flush_folder(folder_);
        const std::vector<fs::path> all = newest_first();
        for (std::size_t i = kept_checkpoints; i < all.size(); ++i) {
            fs::remove_all(all[i]);
        }
    } catch (const fs::filesystem_error& error) {
        std::error_code ignored;
        fs::remove_all(unfinished, ignored);
        throw Error(ErrorKind::Io, error.path1().string(), error.code().message());
    } catch (...) {
        std::error_code ignored;
        fs::remove_all(unfinished, ignored);
        throw;
    }
}

std::optional<Checkpoints::Loaded> Checkpoints::load(const TrainedParameters& parameters) const {
    const std::vector<NamedTensor> wanted = all_tensors(parameters);
    std::vector<std::string> damaged;
    for (const fs::path& folder : newest_first()) {
        std::vector<std::byte> bytes;
        std::optional<Stored> stored;
        try {
            stored.emplace(folder);
            for (const CheckpointFile& file : stored->manifest().files) {
                for (const CheckpointTensor& tensor : file.tensors) {
                    stored->read(tensor.name, bytes);
                }
            }
        } catch (const Error& error) {
            damaged.push_back(fmt::format("{}: {}", error.place(), error.text()));
            continue;
        }
        expect_same_tensors(*stored, wanted, folder);
        for (const NamedTensor& named : wanted) {
            stored->read(named.name, bytes);
            parameters.write_numbers(bytes, *named.parameter, *named.tensor);
        }
        return Loaded{.about = stored->manifest(), .folder = folder, .damaged = std::move(damaged)};
    }
    expect_a_whole_one(damaged);
    return {};
}

std::optional<Checkpoints::Loaded> Checkpoints::find(const TrainedParameters& parameters) const {
    const std::vector<NamedTensor> wanted = all_tensors(parameters);
    std::vector<std::string> damaged;
    for (const fs::path& folder : newest_first()) {
        std::optional<Stored> stored;
        try {
            stored.emplace(folder);
        } catch (const Error& error) {
            damaged.push_back(fmt::format("{}: {}", error.place(), error.text()));
            continue;
        }
        expect_same_tensors(*stored, wanted, folder);
        return Loaded{.about = stored->manifest(), .folder = folder, .damaged = std::move(damaged)};
    }
    expect_a_whole_one(damaged);
    return {};
}

std::vector<int> Checkpoints::whole() const {
    std::vector<int> steps;
    for (const fs::path& folder : newest_first()) {
        try {
            steps.push_back(Stored(folder).manifest().steps_done);
        } catch (const Error&) {
            continue;  // a damaged one
        }
    }
    std::ranges::reverse(steps);
    return steps;
}

void Checkpoints::expect_a_whole_one(const std::vector<std::string>& damaged) const {
    if (!damaged.empty()) {
        throw Error(ErrorKind::BadInput,
                    folder_.string(),
                    fmt::format("no checkpoint here is whole: {}", fmt::join(damaged, "; ")),
                    "train without --resume, into another folder");
    }
}

std::vector<fs::path> Checkpoints::newest_first() const {
    std::vector<fs::path> all;
    std::error_code status;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, status)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(prefix) && entry.is_directory()) {
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

}  // namespace pipetwin::exec
