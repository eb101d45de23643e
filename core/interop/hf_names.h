// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/scenario.h"

/// How the parameters that a training has are called, shaped and joined in files of Hugging Face's
/// models.
namespace pipetwin {

/// A tensor of the files that is a parameter of ours, or some of its columns.
struct HfSlice {
    /// Which tensors may have another number of rows: a vocabulary may be padded, and a table of
    /// positions may be longer than what is trained.
    enum class Rows { Fixed, Vocabulary, Positions };

    std::string tensor{};               ///< as published: "transformer.h.0.attn.c_attn.weight"
    std::vector<std::int64_t> shape{};  ///< in the files
    bool transposed = false;            ///< the files have (outputs, inputs)
    std::int64_t first_column = 0;      ///< of ours
    Rows rows = Rows::Fixed;            ///< of the files' tensor

    /// Columns of ours that it is.
    std::int64_t columns() const { return transposed ? shape.front() : shape.back(); }
};

/// One of our parameters.
struct HfParameter {
    std::string name{};  ///< ours: "block0.attention.attention.qkv.weight"
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<HfSlice> slices{};  ///< in the order of its columns
};

/// All parameters of a model.
struct HfNames {
    std::string_view family{};  ///< the word of "model_type": "gpt2"
    std::string_view prefix{};  ///< of most names, which files may leave out: "transformer."
    std::vector<HfParameter> parameters{};  ///< in model order
    std::string_view table{};               ///< the embedding's tensor
    std::string_view head{};                ///< that of a head that is not tied; files of tied ones
                                            ///< may have a copy of the table under this name
};

/// The names of a model's parameters. Throws Error(BadInput) for a model that no family of Hugging
/// Face's is: of another kind than "gpt", "llama" and "moe", or of a "moe" that is not Mixtral's.
HfNames hf_names(const ScenarioParts::ModelPart& model);

/// Whether a tensor of the files is no weight: a mask of attention, frequencies of positions.
bool is_hf_buffer(std::string_view name);

}  // namespace pipetwin
