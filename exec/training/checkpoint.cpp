// SPDX-License-Identifier: Apache-2.0
#include "exec/training/checkpoint.h"

#include <algorithm>
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
#include "exec/base/stored_checkpoint.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kept_checkpoints = 2;

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
void expect_same_tensors(const StoredCheckpoint& stored,
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
    const std::string name = fmt::format("{}{:08}", checkpoint_prefix, about.steps_done);
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
        DurableFile manifest(unfinished / checkpoint_manifest);
        manifest.write(print_checkpoint(about));
        manifest.finish();
        flush_folder(unfinished);
        fs::remove_all(finished);  // damaged, or of the same step: the one before it is still there
        fs::rename(unfinished, finished);
        flush_folder(folder_);
        const std::vector<fs::path> all = checkpoints_newest_first(folder_);
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
    for (const fs::path& folder : checkpoints_newest_first(folder_)) {
        std::vector<std::byte> bytes;
        std::optional<StoredCheckpoint> stored;
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
    for (const fs::path& folder : checkpoints_newest_first(folder_)) {
        std::optional<StoredCheckpoint> stored;
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

void Checkpoints::expect_a_whole_one(const std::vector<std::string>& damaged) const {
    if (!damaged.empty()) {
        throw Error(ErrorKind::BadInput,
                    folder_.string(),
                    fmt::format("no checkpoint here is whole: {}", fmt::join(damaged, "; ")),
                    "train without --resume, into another folder");
    }
}

}  // namespace pipetwin::exec
