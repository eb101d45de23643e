// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/safetensors.h"
#include "core/text/input_file.h"

/// The files that a model's weights are published in, as Hugging Face's libraries write them.
namespace pipetwin {

/// Names of the files in a folder of weights.
namespace hf_file {
constexpr std::string_view config = "config.json";
constexpr std::string_view weights = "model.safetensors";
constexpr std::string_view index = "model.safetensors.index.json";
}  // namespace hf_file

/// Opens a file that an index names. Links may lead to a file beneath the index's folder, and, as
/// in a cache of Hugging Face's hub, from hub/models--NAME/snapshots/REVISION/ to a file beneath
/// hub/models--NAME/blobs/. Throws Error(BadInput) with `hint` for a link to anywhere else, and
/// Error(Io).
InputFile open_named_by_index(const std::filesystem::path& index,
                              const std::filesystem::path& file,
                              std::string_view hint);

/// [file] Tensors that an index says are in it: "weight_map" the other way round. Throws
/// Error(BadInput), with `hint` for a name that leads out of the index's folder, and Error(Io).
std::map<std::string, std::vector<std::string>> read_hf_index(const std::filesystem::path& index,
                                                              std::string_view hint);

/// The error for a tensor that an index promises of a file, which has not got it.
[[noreturn]] void refuse_index_entry(const std::filesystem::path& index,
                                     std::string_view tensor,
                                     std::string_view file);

/// A folder of weights, its files opened: `model.safetensors`, or where that is missing, the files
/// that `model.safetensors.index.json` names.
class HfFolder {
  public:
    /// One tensor, and the file that has it.
    struct Tensor {
        SafetensorsEntry entry;
        std::size_t file = 0;
    };

    /// Reads the headers. Throws Error(BadInput) for a folder without weights, a file that is no
    /// whole safetensors file, an index that names files outside the folder or files that are not
    /// there (all of them are named), a tensor that stands in two files, or in none of those that
    /// the index names; and Error(Io).
    explicit HfFolder(std::filesystem::path folder);

    const std::filesystem::path& path() const { return path_; }
    /// All tensors by their names in the files.
    const std::map<std::string, Tensor>& tensors() const { return tensors_; }
    /// The name of the file that has a tensor.
    const std::string& file_of(const Tensor& tensor) const { return names_[tensor.file]; }
    /// Fills `bytes` with those of the tensor from number `begin` on. Throws Error(BadInput) if the
    /// file has become shorter, and Error(Io).
    void read(const Tensor& tensor, std::int64_t begin, std::span<std::byte> bytes) const;
    /// The text of config.json; none where there is no such file.
    std::optional<std::string> config() const;

  private:
    void add_shards();
    void add(const std::string& name, InputFile file);

    std::filesystem::path path_;
    std::vector<std::string> names_;
    std::vector<std::unique_ptr<InputFile>> files_;
    std::vector<std::int64_t> data_begins_;
    std::map<std::string, Tensor> tensors_;
};

}  // namespace pipetwin
