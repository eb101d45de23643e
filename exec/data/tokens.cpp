// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/scenario/scenario.h"
#include "exec/data/files.h"
#include "exec/data/shuffle.h"
#include "exec/data/sources.h"
#include "exec/data/token_limit.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t header_bytes = 1024;  ///< of llm.c: 256 numbers of 32 bits

/// The kinds of files that begin with a header of llm.c: magic, version, count of tokens.
struct Headed {
    std::int32_t magic;
    std::int32_t version;
    std::size_t token_bytes;
};
constexpr std::array headed{
    Headed{.magic = 20240520, .version = 1, .token_bytes = 2},  // GPT-2's tokens
    Headed{.magic = 20240801, .version = 7, .token_bytes = 4}   // Llama 3's
};

std::int32_t number_at(std::span<const std::byte> bytes, std::size_t index) {
    std::int32_t number = 0;
    std::memcpy(&number, bytes.data() + index * sizeof(number), sizeof(number));
    return number;
}

/// A file of tokens, which are read when they are needed.
class TokenFile {
  public:
    /// `most`: the largest id that the model reads.
    TokenFile(const fs::path& path, const DataRange& range, std::size_t most)
        : file_(path), most_(most) {
        const auto refuse = [&path](std::string text) {
            throw Error(ErrorKind::BadInput, path.string(), std::move(text));
        };
        std::size_t bytes = file_.size();  // of tokens
        if (file_.size() >= header_bytes) {
            std::array<std::byte, header_bytes> header{};
            file_.read(0, header);
            const auto* const kind =
                std::ranges::find(headed, number_at(header, 0), &Headed::magic);
            if (kind != headed.end()) {
                token_bytes_ = kind->token_bytes;
                begin_ = header_bytes;
                bytes -= header_bytes;
                if (number_at(header, 1) != kind->version) {
                    refuse(fmt::format("version {} of a token file, expected {}",
                                       number_at(header, 1),
                                       kind->version));
                }
                if (const std::int64_t count = number_at(header, 2);
                    count < 0 || static_cast<std::size_t>(count) != bytes / token_bytes_) {
                    refuse(fmt::format("{} by its header, but {} of them",
                                       counted(count, "token"),
                                       counted(bytes, "byte")));
                }
            }
        }
        if (bytes % token_bytes_ != 0) {
            refuse(fmt::format(
                "{}, expected tokens of {} bytes each", counted(bytes, "byte"), token_bytes_));
        }
        const std::size_t all = bytes / token_bytes_;
        begin_ += range.begin_in(all) * token_bytes_;
        count_ = range.end_in(all) - range.begin_in(all);
    }

    std::size_t count() const { return count_; }

    /// Reads `count` tokens from `index` on; `buffer` is room that is used again. Throws
    /// Error(BadInput) for a token that the model does not know, and as DataFile::read.
    void read(std::size_t index,
              std::size_t count,
              std::vector<std::byte>& buffer,
              std::vector<std::int32_t>& tokens) const {
        read_checked(index, count, buffer);
        tokens.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            tokens[i] = static_cast<std::int32_t>(number_in(buffer, i));
        }
    }

    /// Bytes of tokens that `check` has to look at. None where every number is a token.
    std::size_t unchecked_bytes() const {
        constexpr std::size_t all_of_two_bytes = std::numeric_limits<std::uint16_t>::max();
        return token_bytes_ == 2 && most_ >= all_of_two_bytes ? 0 : count_ * token_bytes_;
    }

    /// Reads all tokens and checks them (DataSource::check).
    void check(const std::function<bool()>& goes_on, std::vector<std::byte>& buffer) const {
        constexpr std::size_t at_once = std::size_t{1} << 17U;  // tokens: they stay in the cache
        for (std::size_t index = 0; index < count_ && goes_on(); index += at_once) {
            read_checked(index, std::min(at_once, count_ - index), buffer);
        }
    }

    void add_content(ContentHash& hash) const { add_file(hash, file_); }

  private:
    void read_checked(std::size_t index, std::size_t count, std::vector<std::byte>& buffer) const {
        buffer.resize(count * token_bytes_);
        const std::size_t begin = begin_ + index * token_bytes_;
        file_.read(begin, buffer);
        const std::size_t wrong = first_above(buffer, token_bytes_, most_);
        if (wrong < count) {
            throw Error(ErrorKind::BadInput,
                        place_in(file_.path(), begin + wrong * token_bytes_),
                        fmt::format("token {}, but the model knows those from 0 to {}",
                                    number_in(buffer, wrong),
                                    most_),
                        "use the tokenizer that model.vocabulary is of, or correct the file");
        }
    }

    /// Token `index` of those in the buffer: little-endian, as the machines that we run on.
    std::uint32_t number_in(const std::vector<std::byte>& buffer, std::size_t index) const {
        std::uint32_t token = 0;
        std::memcpy(&token, buffer.data() + index * token_bytes_, token_bytes_);
        return token;
    }

    DataFile file_;
    std::size_t most_;
    std::size_t token_bytes_ = 2;
    std::size_t begin_ = 0;  ///< byte of the first token that is read
    std::size_t count_ = 0;  ///< tokens that are read
};

/// Every file is cut into windows of `context` tokens and one more, which is the last one's target.
/// An epoch reads each window once, in an order of its own; what is left over of a file is cut off
/// at its begin and end, elsewhere in each epoch.
class Tokens final : public DataSource {
  public:
    /// `known`: how many ids the model knows.
    Tokens(const DataRange& range, int context, int known, int batch, std::uint64_t seed)
        : context_(as_index(context)), random_(seed) {
        for (const fs::path& file : data_files(range.path)) {
            TokenFile& tokens = files_.emplace_back(file, range, as_index(known - 1));
            token_count_ += tokens.count();
            window_count_ += windows_in(tokens);
            ends_.push_back(window_count_);
        }
        if (window_count_ < static_cast<std::uint64_t>(batch)) {
            throw Error(ErrorKind::BadInput,
                        range.path.string(),
                        fmt::format("{} of {} and one more, expected at least the batch of {}",
                                    counted(window_count_, "sample"),
                                    counted(context, "token"),
                                    batch),
                        "name more data, or set a smaller training.batch or model.context");
        }
    }

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = static_cast<int>(context_),
                    .width = 0,
                    .target_positions = static_cast<int>(context_),
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        const auto length = static_cast<std::uint64_t>(samples);
        std::vector<std::byte> buffer;
        std::vector<std::int32_t> tokens;
        for (std::uint64_t sample = 0; sample < length; ++sample) {
            read(static_cast<std::uint64_t>(step) * length + sample, buffer, tokens);
            batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end() - 1);
            batch.targets.insert(batch.targets.end(), tokens.begin() + 1, tokens.end());
        }
        return batch;
    }

    void add_content(ContentHash& hash) const override {
        for (const TokenFile& file : files_) {
            file.add_content(hash);
        }
    }

    std::size_t unchecked_bytes() const override {
        std::size_t bytes = 0;
        for (const TokenFile& file : files_) {
            bytes += file.unchecked_bytes();
        }
        return bytes;
    }

    void check(const std::function<bool()>& goes_on) const override {
        std::vector<std::byte> buffer;
        for (const TokenFile& file : files_) {
            if (file.unchecked_bytes() > 0) {
                file.check(goes_on, buffer);
            }
        }
    }

    std::string description() const override {
        return fmt::format("tokens, {} in {}", token_count_, counted(std::ssize(files_), "file"));
    }

  private:
    std::uint64_t windows_in(const TokenFile& file) const {
        return file.count() == 0 ? 0 : (file.count() - 1) / context_;
    }

    /// Reads the sample of this number since the first step, with the target of its last token.
    void read(std::uint64_t number,
              std::vector<std::byte>& buffer,
              std::vector<std::int32_t>& tokens) const {
        const RandomStream epoch = random_.of(number / window_count_);
        const std::uint64_t window = Shuffle(epoch.of(0), window_count_).at(number % window_count_);
        const auto end = std::ranges::upper_bound(ends_, window);
        const auto index = static_cast<std::size_t>(end - ends_.begin());
        const TokenFile& file = files_[index];
        const std::uint64_t before = index == 0 ? 0 : ends_[index - 1];
        const std::uint64_t left_over = file.count() - 1 - windows_in(file) * context_;
        const std::uint64_t cut = epoch.of(1).below(index, left_over + 1);
        file.read(cut + (window - before) * context_, context_ + 1, buffer, tokens);
    }

    std::size_t context_;
    RandomStream random_;
    std::vector<TokenFile> files_;
    std::vector<std::uint64_t> ends_;  ///< [file]: windows in it and in those before it
    std::uint64_t token_count_ = 0;
    std::uint64_t window_count_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> open_tokens(const ScenarioParts& scenario,
                                        const Model& model,
                                        DataUse use) {
    const int positions = token_positions(model, "tokens");
    return std::make_unique<Tokens>(data_range(scenario, use),
                                    positions,
                                    std::min(vocabulary_of(model), classes_of(model)),
                                    scenario.training.batch,
                                    scenario.training.seed);
}

}  // namespace pipetwin::exec
