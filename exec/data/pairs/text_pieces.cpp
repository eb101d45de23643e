// SPDX-License-Identifier: Apache-2.0
#include "exec/data/pairs/text_pieces.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#ifdef PIPETWIN_SENTENCEPIECE
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#endif

#include "core/base/content_hash.h"
#include "core/base/error.h"
#include "core/base/number_text.h"

namespace pipetwin::exec {
namespace {

constexpr int byte_count = 256;

}  // namespace

#ifdef PIPETWIN_SENTENCEPIECE

struct TextPieces::Model {
    std::string content;
    sentencepiece::SentencePieceProcessor processor{};

    static std::shared_ptr<const Model> load(std::string content, const std::string& place) {
        auto model = std::make_shared<Model>();
        model->content = std::move(content);
        if (!model->processor.LoadFromSerializedProto(model->content).ok()) {
            throw Error(ErrorKind::BadInput,
                        place,
                        "no SentencePiece model",
                        "spm_train --input=TEXTS --model_prefix=NAME --vocab_size=4000 writes one "
                        "to NAME.model");
        }
        return model;
    }

    int count() const { return processor.GetPieceSize(); }
    std::vector<int> ids(std::string_view text) const { return processor.EncodeAsIds(text); }
    std::string text(const std::vector<int>& ids) const { return processor.DecodeIds(ids); }
};

namespace {

/// Hands texts to the trainer.
class TrainingTexts final : public sentencepiece::SentenceIterator {
  public:
    explicit TrainingTexts(const std::vector<std::string_view>& texts) : texts_(texts) { take(); }

    bool done() const override { return next_ >= texts_.size(); }
    void Next() override {
        ++next_;
        take();
    }
    const std::string& value() const override { return value_; }
    sentencepiece::util::Status status() const override { return {}; }

  private:
    void take() {
        if (!done()) {
            value_ = texts_[next_];
        }
    }

    const std::vector<std::string_view>& texts_;
    std::size_t next_ = 0;
    std::string value_;
};

/// What the library says of a failure, without the place in its source: "Internal:
/// ../src/trainer_interface.cc(661) [(a) == (b)] Vocabulary size too high ...".
std::string text_of(const sentencepiece::util::Status& status) {
    const std::string text = status.ToString();
    const std::size_t end = text.rfind("] ");
    return end == std::string::npos ? text : text.substr(end + 2);
}

/// The content of the file of a model that is trained on the texts.
std::string trained_model(const std::vector<std::string_view>& texts, int count) {
    TrainingTexts sentences(texts);
    std::string content;
    const sentencepiece::util::Status status =
        sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                    {"vocab_size", std::to_string(count)},
                                                    {"byte_fallback", "true"},
                                                    {"normalization_rule_name", "identity"},
                                                    {"remove_extra_whitespaces", "false"},
                                                    {"character_coverage", "0.9998"},
                                                    {"bos_id", "-1"},
                                                    {"eos_id", "-1"},
                                                    {"num_threads", "1"},
                                                    {"minloglevel", "3"}},
                                                   &sentences,
                                                   &content);
    if (!status.ok()) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.pieces"},
                    fmt::format("{} pieces of {}: {}",
                                count,
                                counted(texts.size(), "training text"),
                                text_of(status)),
                    "try 1000 for a few hundred texts, 4000 for many thousands; or leave the key "
                    "out, and the model reads bytes");
    }
    return content;
}

}  // namespace

#else

struct TextPieces::Model {
    std::string content;

    static std::shared_ptr<const Model> load(const std::string& /*content*/,
                                             const std::string& place) {
        throw Error(ErrorKind::Unavailable,
                    place,
                    "this program was built without SentencePiece",
                    "leave the key data.pieces out, and the model reads bytes; or build with "
                    "libsentencepiece-dev installed");
    }

    int count() const { return 0; }
    std::vector<int> ids(std::string_view /*text*/) const { return {}; }
    std::string text(const std::vector<int>& /*ids*/) const { return {}; }
};

namespace {

std::string trained_model(const std::vector<std::string_view>& /*texts*/, int /*count*/) {
    return {};
}

}  // namespace

#endif

bool TextPieces::knows_models() {
#ifdef PIPETWIN_SENTENCEPIECE
    return true;
#else
    return false;
#endif
}

TextPieces TextPieces::of_model(std::string model, const std::string& place) {
    TextPieces pieces;
    pieces.model_ = Model::load(std::move(model), place);
    return pieces;
}

TextPieces TextPieces::trained_on(const std::vector<std::string_view>& texts, int count) {
    ContentHash hash;
    for (const std::string_view text : texts) {
        const std::uint64_t size = text.size();
        hash.add(std::as_bytes(std::span(&size, 1)));
        hash.add(std::as_bytes(std::span(text)));
    }
    const std::string key = fmt::format("{} {}", count, hash.digits());
    static std::mutex mutex;
    static std::pair<std::string, TextPieces> last;
    const std::lock_guard lock(mutex);
    if (last.first != key) {
        last = {key, of_model(trained_model(texts, count), "data.pieces")};
    }
    return last.second;
}

int TextPieces::count() const {
    return are_bytes() ? byte_count : model_->count();
}

std::vector<std::int32_t> TextPieces::ids(std::string_view text) const {
    if (!are_bytes()) {
        return model_->ids(text);
    }
    std::vector<std::int32_t> bytes;
    for (const char byte : text) {
        bytes.push_back(static_cast<unsigned char>(byte));
    }
    return bytes;
}

std::string TextPieces::text(std::span<const std::int32_t> ids) const {
    std::vector<int> pieces(ids.begin(), ids.end());
    std::erase_if(pieces, [this](int id) { return id < 0 || id >= count(); });
    return are_bytes() ? std::string(pieces.begin(), pieces.end()) : model_->text(pieces);
}

const std::string& TextPieces::model() const {
    static const std::string none;
    return are_bytes() ? none : model_->content;
}

}  // namespace pipetwin::exec
