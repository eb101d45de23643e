// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/input_iterator.h"

namespace pipetwin {

/// What a trace may ask for once it is unpacked, however small its file is.
struct TraceLimits {
    std::uint64_t bytes = std::uint64_t{4} << 30U;         ///< of text
    std::uint64_t token_bytes = std::uint64_t{16} << 20U;  ///< of one name, number or blank space
    std::uint64_t kept_bytes = std::uint64_t{256} << 20U;  ///< memory for all that is kept of it
    /// Bytes of text for each byte of a packed file, once the text is longer than
    /// `text_beyond_doubt`. Traces have 10 to 30, 1,000 are the most that gzip can.
    std::uint64_t text_per_packed_byte = 64;
    std::uint64_t text_beyond_doubt = std::uint64_t{64} << 20U;
};

/// Counts the memory for what is kept of a trace, and refuses more than the limit.
class KeptMemory {
  public:
    explicit KeptMemory(const TraceLimits& limits) : most_(limits.kept_bytes) {}

    /// Counts an event, a name or a thread more, of `bytes` at least. Throws Error(BadInput) with
    /// `place()`, the place in the trace.
    template <class Place>
    void add(std::uint64_t bytes, const Place& place) {
        kept_ += std::max(bytes, least_bytes);
        ++events_;
        if (kept_ > most_) {
            refuse(place());
        }
    }

  private:
    /// What is made of an event later (tables, orders) takes so much, too.
    static constexpr std::uint64_t least_bytes = 64;

    [[noreturn]] void refuse(std::string place) const;

    std::uint64_t most_;
    std::uint64_t kept_ = 0;
    std::uint64_t events_ = 0;
};

/// The bytes of a text or file, a block at a time.
class ByteSource {
  public:
    struct Blocks {
        /// Fills the block and returns how many bytes of it; 0 at the end.
        std::function<std::size_t(std::span<char>)> read;
        /// At the end: whether a packed file ends before what was packed; empty: it does not.
        std::function<bool()> is_cut{};
    };

    /// Reads the first block. `place` is the file's name and outlives the source. A byte-order mark
    /// in front is passed over. Reading throws Error(BadInput) beyond the limits of bytes.
    ByteSource(std::string_view place, Blocks blocks, const TraceLimits& limits = {});

    bool at_end() const { return size_ == 0; }
    /// At the end: whether a packed file was cut short, so that more text may have followed.
    bool is_cut() const { return blocks_.is_cut && blocks_.is_cut(); }
    const char& current() const { return block_[at_]; }
    void next() {
        if (++at_ == size_) {
            refill();
        }
    }

    /// Says that a name or number has ended here, for the limit of one token. Brackets are none:
    /// the JSON parser keeps all of them that follow each other.
    void token_ended() { token_end_ = bytes_before_ + at_; }

    /// Place of the byte that was read last: "file:line:column".
    std::string position() const;

  private:
    void refill();
    void count_to(std::size_t end) const;
    void expect_within_limits() const;
    void expect_no_zeros() const;

    std::string_view place_;
    Blocks blocks_;
    TraceLimits limits_;
    std::vector<char> block_;
    std::size_t size_ = 0;
    std::size_t at_ = 0;
    std::uint64_t bytes_before_ = 0;  ///< in blocks that are gone
    std::uint64_t token_end_ = 0;     ///< of the last token
    /// The place of byte `counted_` of the block; what lies behind is counted when it is asked for.
    mutable std::size_t counted_ = 0;
    mutable std::int64_t lines_ = 0;
    mutable std::int64_t columns_ = 0;
};

/// Iterator over the characters of a source, for the JSON parser.
template <class Source>
class ByteIterator : public InputIterator<ByteIterator<Source>> {
  public:
    ByteIterator() = default;
    explicit ByteIterator(Source* source) : source_(source) {}

    const char& current() const { return source_->current(); }
    void next() { source_->next(); }
    /// Only ever compared with the end.
    bool operator==(const ByteIterator& other) const {
        const auto is_end = [](const Source* source) {
            return source == nullptr || source->at_end();
        };
        return is_end(source_) == is_end(other.source_);
    }

  private:
    Source* source_ = nullptr;
};

/// The blocks of a text, which outlives the result.
ByteSource::Blocks blocks_of_text(std::string_view text);

/// The blocks of a file, plain or gzip of one or more members. Throws Error(Io) with the file where
/// it cannot be read; the result throws that, too, and Error(BadInput) with the byte for a packed
/// file that is damaged, has other bytes behind its end, or grows by more than the limits say. A
/// packed file that is cut short gives the text of what is there, and says that it is cut.
ByteSource::Blocks blocks_of_file(const std::filesystem::path& file,
                                  const TraceLimits& limits = {});

}  // namespace pipetwin
