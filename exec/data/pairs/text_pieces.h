// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipetwin::exec {

/// Cuts texts into the pieces that a translation model reads: single bytes, or the pieces of a
/// SentencePiece model (Kudo and Richardson, EMNLP 2018), which are words and parts of words.
class TextPieces {
  public:
    /// Whether this program was built with SentencePiece; else there are only bytes.
    static bool knows_models();

    /// Bytes: the id of a piece is the value of the byte.
    TextPieces() = default;

    /// The pieces of a model file. `model`: the content of the file, as `spm_train` writes one;
    /// `place`: its path, for messages. Throws Error(BadInput) for any other content, and
    /// Error(Unavailable) if this program was built without SentencePiece.
    static TextPieces of_model(std::string model, const std::string& place);

    /// Trains a model of `count` pieces on texts in UTF-8: byte-pair encoding, in which a character
    /// that the texts lack is cut into bytes. Texts stay as they are: nothing is normalized. The
    /// result follows from the texts and `count` alone; the last one is kept, so that asking again
    /// costs nothing. Throws Error(BadInput) at "data.pieces" if the texts have too few or too many
    /// different characters and words for `count`, and Error(Unavailable) as `of_model`.
    static TextPieces trained_on(const std::vector<std::string_view>& texts, int count);

    bool are_bytes() const { return model_ == nullptr; }

    /// "byte" or "piece".
    std::string_view noun() const { return are_bytes() ? "byte" : "piece"; }

    /// Number of different pieces; ids are less.
    int count() const;

    std::vector<std::int32_t> ids(std::string_view text) const;

    /// The text of pieces. Ids that are no piece are left out. Bytes that a model generates may be
    /// no UTF-8.
    std::string text(std::span<const std::int32_t> ids) const;

    /// The content of the model's file; empty for bytes.
    const std::string& model() const;

  private:
    struct Model;
    std::shared_ptr<const Model> model_;
};

}  // namespace pipetwin::exec
