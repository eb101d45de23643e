// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/artifacts/checkpoint_json.h"
#include "core/interop/safetensors.h"
#include "exec/base/durable_file.h"

/// Checkpoints as their files tell, without the training that they belong to.
namespace pipetwin::exec {

inline constexpr std::string_view checkpoint_manifest = "checkpoint.json";
inline constexpr std::string_view checkpoint_prefix = "step-";  ///< of the name of its folder

/// A checkpoint on the disk, opened. Throws Error(BadInput) where its manifest and the headers of
/// its files do not agree, Error(Io) where one is missing.
class StoredCheckpoint {
  public:
    explicit StoredCheckpoint(const std::filesystem::path& folder);

    const CheckpointManifest& manifest() const { return manifest_; }
    std::size_t tensor_count() const { return places_.size(); }

    /// Null where it has no tensor of that name.
    const SafetensorsEntry* find(const std::string& name) const;

    /// Reads the bytes of a tensor that `find` knows. Throws Error(BadInput) if they have changed
    /// since they were written.
    void read(const std::string& name, std::vector<std::byte>& bytes) const;

  private:
    struct Place {
        const FileBeneath* file;
        std::filesystem::path path;
        std::int64_t data_begin;
        SafetensorsEntry entry;
        std::string hash;
    };

    void add_file(const std::filesystem::path& folder, const CheckpointFile& listed);

    CheckpointManifest manifest_;
    std::vector<std::unique_ptr<FileBeneath>> files_;
    std::map<std::string, Place> places_;
};

/// Folders of the checkpoints beneath a folder, that of the latest step first.
std::vector<std::filesystem::path> checkpoints_newest_first(const std::filesystem::path& folder);

/// After how many steps those checkpoints beneath a folder were written that are whole, ascending,
/// as far as manifests and the headers of files tell. Throws nothing for what is damaged.
std::vector<int> whole_checkpoints(const std::filesystem::path& folder);

}  // namespace pipetwin::exec
