// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The manifest of a checkpoint, `checkpoint.json`: the training that it belongs to, and the bytes
/// that it consists of.
namespace pipetwin {

/// One tensor of a checkpoint and the hash of its bytes.
struct CheckpointTensor {
    std::string name{};
    std::string hash{};  ///< XXH3 128 of its bytes, 32 hex digits

    bool operator==(const CheckpointTensor&) const = default;
};

/// One file of a checkpoint and the tensors in it.
struct CheckpointFile {
    std::string name{};      ///< of a safetensors file in the manifest's folder
    std::int64_t bytes = 0;  ///< of the whole file
    std::vector<CheckpointTensor> tensors{};

    bool operator==(const CheckpointFile&) const = default;
};

/// Everything that `checkpoint.json` says: the state of the training, and its files.
struct CheckpointManifest {
    int steps_done = 0;  ///< training goes on with the step of this number
    std::string optimizer{};
    std::string precision{};
    std::uint64_t seed = 0;
    int batch = 0;       ///< samples of a step
    std::string data{};  ///< what was read, in the words of the data's source
    std::string tool_version{};
    std::vector<CheckpointFile> files{};

    bool operator==(const CheckpointManifest&) const = default;
};

/// Reads the text of a `checkpoint.json`. Throws Error(BadInput) with `place`, the JSON pointer,
/// what was found and what was expected.
CheckpointManifest parse_checkpoint(std::string_view text, std::string_view place);

/// The text of a `checkpoint.json`: parse_checkpoint(print_checkpoint(x)) = x.
std::string print_checkpoint(const CheckpointManifest& manifest);

}  // namespace pipetwin
