#pragma once

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
    std::uint64_t kept_bytes = std::uint64_t{512} << 20U;  ///< memory for all that is kept of it
};

/// Counts the memory for what is kept of a trace, and refuses more than the limit.
class KeptMemory {
  public:
    explicit KeptMemory(const TraceLimits& limits) : most_(limits.kept_bytes) {}

    /// Counts `bytes` more. Throws Error(BadInput) with `place()`, the place in the trace.
    template <class Place>
    void add(std::uint64_t bytes, const Place& place) {
        kept_ += bytes;
        if (kept_ > most_) {
            refuse(place());
        }
    }

  private:
    [[noreturn]] void refuse(std::string place) const;

    std::uint64_t most_;
    std::uint64_t kept_ = 0;
};

/// The bytes of a text or file, a block at a time.
class ByteSource {
  public:
    /// Fills the block and returns how many bytes of it; 0 at the end.
    using Read = std::function<std::size_t(std::span<char>)>;

    /// Reads the first block. `place` is the file's name and outlives the source. A byte-order mark
    /// in front is passed over. Reading throws Error(BadInput) beyond the limits of bytes.
    ByteSource(std::string_view place, Read read, const TraceLimits& limits = {});

    bool at_end() const { return size_ == 0; }
    const char& current() const { return block_[at_]; }
    void next() {
        if (++at_ == size_) {
            refill();
        }
    }

    /// Says that a name, number or bracket has ended here, for the limit of one token.
    void token_ended() { token_end_ = bytes_before_ + at_; }

    /// Place of the byte that was read last: "file:line:column".
    std::string position() const;

  private:
    void refill();
    void expect_within_limits() const;
    void expect_no_zeros() const;

    std::string_view place_;
    Read read_;
    TraceLimits limits_;
    std::vector<char> block_;
    std::size_t size_ = 0;
    std::size_t at_ = 0;
    std::uint64_t bytes_before_ = 0;   ///< in blocks that are gone
    std::uint64_t token_end_ = 0;      ///< of the last token
    std::int64_t lines_before_ = 0;    ///< in blocks that are gone
    std::int64_t columns_before_ = 0;  ///< of a line that began in one of them
};

/// Iterator over the characters of a source, for the JSON parser.
class ByteIterator : public InputIterator<ByteIterator> {
  public:
    ByteIterator() = default;
    explicit ByteIterator(ByteSource* source) : source_(source) {}

    const char& current() const { return source_->current(); }
    void next() { source_->next(); }
    /// Only ever compared with the end.
    bool operator==(const ByteIterator& other) const {
        const auto is_end = [](const ByteSource* source) {
            return source == nullptr || source->at_end();
        };
        return is_end(source_) == is_end(other.source_);
    }

  private:
    ByteSource* source_ = nullptr;
};

/// The blocks of a text, which outlives the result.
ByteSource::Read blocks_of_text(std::string_view text);

/// The blocks of a file, plain or gzip. Throws Error(Io) with the file where it cannot be read; the
/// result throws that, too, and Error(BadInput) with the byte for a compressed file that is damaged
/// or cut short.
ByteSource::Read blocks_of_file(const std::filesystem::path& file);

}  // namespace pipetwin
