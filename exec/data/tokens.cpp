#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "exec/data/files.h"
#include "exec/data/shuffle.h"
#include "exec/data/sources.h"

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
    TokenFile(const fs::path& path, const DataRange& range) : file_(path) {
        const std::span<const std::byte> bytes = file_.bytes();
        const auto refuse = [&path](std::string text) {
            throw Error(ErrorKind::BadInput, path.string(), std::move(text));
        };
        tokens_ = bytes;
        if (bytes.size() >= header_bytes) {
            const auto* const kind = std::ranges::find(headed, number_at(bytes, 0), &Headed::magic);
            if (kind != headed.end()) {
                token_bytes_ = kind->token_bytes;
                tokens_ = bytes.subspan(header_bytes);
                if (number_at(bytes, 1) != kind->version) {
                    refuse(fmt::format("version {} of a token file, expected {}",
                                       number_at(bytes, 1),
                                       kind->version));
                }
                if (const std::int64_t count = number_at(bytes, 2);
                    count < 0 || static_cast<std::size_t>(count) != this->count()) {
                    refuse(fmt::format("{} by its header, but {} of them",
                                       counted(count, "token"),
                                       counted(tokens_.size(), "byte")));
                }
            }
        }
        if (tokens_.size() % token_bytes_ != 0) {
            refuse(fmt::format("{}, expected tokens of {} bytes each",
                               counted(tokens_.size(), "byte"),
                               token_bytes_));
        }
        const std::size_t begin = range.begin_in(count());
        tokens_ =
            tokens_.subspan(begin * token_bytes_, (range.end_in(count()) - begin) * token_bytes_);
    }

    std::size_t count() const { return tokens_.size() / token_bytes_; }

    /// One that no int holds is the largest that one does, and not in any vocabulary.
    std::int32_t at(std::size_t index) const {
        std::uint32_t token = 0;  // both are little-endian, as the machines that we run on
        std::memcpy(&token, tokens_.data() + index * token_bytes_, token_bytes_);
        constexpr std::uint32_t most = std::numeric_limits<std::int32_t>::max();
        return static_cast<std::int32_t>(std::min(token, most));
    }

    /// All bytes of the file, its header included.
    std::span<const std::byte> bytes() const { return file_.bytes(); }

  private:
    MappedFile file_;
    std::size_t token_bytes_ = 2;
    std::span<const std::byte> tokens_;
};

/// Every file is cut into windows of `context` tokens and one more, which is the last one's target.
/// An epoch reads each window once, in an order of its own; what is left over of a file is cut off
/// at its begin and end, elsewhere in each epoch.
class Tokens final : public DataSource {
  public:
    Tokens(const DataRange& range, int context, int batch, std::uint64_t seed)
        : context_(as_index(context)), random_(seed) {
        for (const fs::path& file : data_files(range.path)) {
            TokenFile& tokens = files_.emplace_back(file, range);
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
        for (std::uint64_t sample = 0; sample < length; ++sample) {
            add(static_cast<std::uint64_t>(step) * length + sample, batch);
        }
        return batch;
    }

    void add_content(ContentHash& hash) const override {
        for (const TokenFile& file : files_) {
            hash.add(file.bytes());
        }
    }

    std::string description() const override {
        return fmt::format("tokens, {} in {}", token_count_, counted(std::ssize(files_), "file"));
    }

  private:
    std::uint64_t windows_in(const TokenFile& file) const {
        return file.count() == 0 ? 0 : (file.count() - 1) / context_;
    }

    /// The sample of this number since the first step.
    void add(std::uint64_t number, Batch& batch) const {
        const RandomStream epoch = random_.of(number / window_count_);
        const std::uint64_t window = Shuffle(epoch.of(0), window_count_).at(number % window_count_);
        const auto end = std::ranges::upper_bound(ends_, window);
        const auto index = static_cast<std::size_t>(end - ends_.begin());
        const TokenFile& file = files_[index];
        const std::uint64_t before = index == 0 ? 0 : ends_[index - 1];
        const std::uint64_t left_over = file.count() - 1 - windows_in(file) * context_;
        const std::uint64_t cut = epoch.of(1).below(index, left_over + 1);
        const std::size_t begin = cut + (window - before) * context_;
        for (std::size_t i = 0; i < context_; ++i) {
            batch.tokens.push_back(file.at(begin + i));
            batch.targets.push_back(file.at(begin + i + 1));
        }
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
    return std::make_unique<Tokens>(
        data_range(scenario, use), positions, scenario.training.batch, scenario.training.seed);
}

}  // namespace pipetwin::exec
