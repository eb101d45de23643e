// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/scenario/scenario.h"
#include "core/text/input_file.h"
#include "exec/base/random.h"
#include "exec/data/files.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr int byte_values = 256;

/// Throws Error(BadInput), naming file and byte, for a byte that is none of the classes.
void refuse_beyond(int classes, const fs::path& file, const std::string& bytes) {
    if (classes >= byte_values) {
        return;
    }
    const auto found = std::ranges::find_if(
        bytes, [classes](char byte) { return static_cast<unsigned char>(byte) >= classes; });
    if (found != bytes.end()) {
        throw Error(ErrorKind::BadInput,
                    place_in(file, as_index(found - bytes.begin())),
                    fmt::format("a byte of value {}, but the model tells {} values apart",
                                static_cast<unsigned char>(*found),
                                classes),
                    "let the model end with 256 outputs");
    }
}

class Text final : public DataSource {
  public:
    /// `classes`: how many byte values the model tells apart.
    Text(const DataRange& range, int context, int classes, std::uint64_t seed)
        : context_(context), random_(seed) {
        const std::vector<fs::path> files = data_files(range.path);
        file_count_ = files.size();
        for (const fs::path& file : files) {
            const std::string bytes = InputFile(file).read_up_to(std::string().max_size());
            refuse_beyond(classes, file, bytes);
            bytes_ += bytes;
        }
        const std::size_t begin = range.begin_in(bytes_.size());
        bytes_ = bytes_.substr(begin, range.end_in(bytes_.size()) - begin);
        if (bytes_.size() <= as_index(context)) {
            throw Error(ErrorKind::BadInput,
                        range.path.string(),
                        fmt::format("{}, expected more than the context of {}",
                                    counted(bytes_.size(), "byte"),
                                    context),
                        "name a longer text, or set a smaller model.context");
        }
    }

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = context_,
                    .width = 0,
                    .target_positions = context_,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        const RandomStream places = random_.of(static_cast<std::uint64_t>(step));
        const std::size_t length = as_index(context_);
        for (int s = 0; s < samples; ++s) {
            const std::size_t place =
                places.below(static_cast<std::uint64_t>(s), bytes_.size() - length);
            const auto token = [&](std::size_t i) {
                return static_cast<std::int32_t>(static_cast<unsigned char>(bytes_[place + i]));
            };
            for (std::size_t i = 0; i < length; ++i) {
                batch.tokens.push_back(token(i));
                batch.targets.push_back(token(i + 1));
            }
        }
        return batch;
    }

    void add_content(ContentHash& hash) const override {
        hash.add(std::as_bytes(std::span(bytes_)));
    }

    std::string description() const override {
        return fmt::format(
            "text, {} in {}", counted(bytes_.size(), "byte"), counted(file_count_, "file"));
    }

  private:
    int context_;
    RandomStream random_;
    std::size_t file_count_ = 0;
    std::string bytes_;
};

}  // namespace

std::unique_ptr<DataSource> open_text(const ScenarioParts& scenario,
                                      const Model& model,
                                      DataUse use) {
    const int positions = token_positions(model, "text");
    const int vocabulary = vocabulary_of(model);
    if (vocabulary < byte_values) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.vocabulary"},
                    fmt::format("{}, expected at least {}: every byte of a text is a token",
                                vocabulary,
                                byte_values),
                    "set vocabulary = 256");
    }
    return std::make_unique<Text>(
        data_range(scenario, use), positions, classes_of(model), scenario.training.seed);
}

}  // namespace pipetwin::exec
