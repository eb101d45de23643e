// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/packed_source.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/text/file_damage.h"
#include "core/text/input_file.h"

namespace pipetwin {

namespace {

std::string shown(std::uint64_t bytes) {
    return format_bytes(Bytes{static_cast<std::int64_t>(bytes)});
}

constexpr const char* fewer_steps = "record fewer steps: a handful of them is enough for medians";

/// A file whose blocks are unpacked where it begins as gzip does (RFC 1952), and handed on as they
/// are where it does not.
class PackedFile {
  public:
    PackedFile(const std::filesystem::path& file, const TraceLimits& limits)
        : input_(file), place_(file.string()), limits_(limits), packed_(std::size_t{1} << 16) {
        fill();
        is_packed_ = begins_member();
        constexpr int of_gzip = 16;
        if (is_packed_ && inflateInit2(&stream_, MAX_WBITS + of_gzip) != Z_OK) {
            throw std::bad_alloc();
        }
    }
    PackedFile(const PackedFile&) = delete;
    PackedFile& operator=(const PackedFile&) = delete;
    ~PackedFile() {
        if (is_packed_) {
            inflateEnd(&stream_);
        }
    }

    /// Fills the block and returns how many bytes of it; 0 at the end.
    std::size_t read(std::span<char> block) { return is_packed_ ? unpack(block) : pass_on(block); }

    /// Whether the end of a member is missing, once all was read.
    bool is_cut() const { return in_member_; }

  private:
    /// Reads on where nothing is left, and before the second byte of a member's mark.
    void fill() {
        if (size_ - at_ >= 2) {
            return;
        }
        std::copy(packed_.begin() + offset(at_), packed_.begin() + offset(size_), packed_.begin());
        before_ += at_;
        size_ -= at_;
        at_ = 0;
        while (size_ < 2) {
            const std::size_t count = input_.read(std::span(packed_).subspan(size_));
            size_ += count;
            if (count == 0) {
                return;
            }
        }
    }

    static std::ptrdiff_t offset(std::size_t place) { return static_cast<std::ptrdiff_t>(place); }

    bool begins_member() const {
        return std::string_view(packed_.data() + at_, size_ - at_).starts_with("\x1f\x8b");
    }

    std::size_t pass_on(std::span<char> block) {
        fill();
        const std::size_t count = std::min(block.size(), size_ - at_);
        std::copy_n(packed_.begin() + offset(at_), count, block.begin());
        at_ += count;
        return count;
    }

    std::size_t unpack(std::span<char> block) {
        std::size_t done = 0;
        while (done < block.size()) {
            fill();
            if (!in_member_) {
                if (at_ == size_) {
                    break;
                }
                expect_member();
            }
            if (at_ == size_) {
                break;
            }
            done += inflate_some(block.subspan(done));
        }
        unpacked_ += done;
        expect_growth();
        return done;
    }

    void expect_member() {
        if (!begins_member()) {
            refuse("other bytes stand here, behind the end of what gzip packed",
                   "copy or export it again, without what was put behind it");
        }
        inflateReset(&stream_);
        in_member_ = true;
    }

    std::size_t inflate_some(std::span<char> block) {
        stream_.next_in = reinterpret_cast<Bytef*>(packed_.data() + at_);
        stream_.avail_in = static_cast<uInt>(size_ - at_);
        stream_.next_out = reinterpret_cast<Bytef*>(block.data());
        stream_.avail_out = static_cast<uInt>(block.size());
        const int code = inflate(&stream_, Z_NO_FLUSH);
        at_ = size_ - stream_.avail_in;
        if (code == Z_MEM_ERROR) {
            throw std::bad_alloc();
        }
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
            refuse(fmt::format("the compressed file is damaged or cut short: {}",
                               stream_.msg == nullptr ? "no block of gzip" : stream_.msg),
                   "copy or export it again");
        }
        in_member_ = code != Z_STREAM_END;
        return block.size() - stream_.avail_out;
    }

    void expect_growth() const {
        const std::uint64_t read = before_ + at_;
        if (unpacked_ > limits_.text_beyond_doubt &&
            unpacked_ / limits_.text_per_packed_byte > read) {
            refuse(fmt::format("it unpacks to more than {} times its size, {} so far",
                               limits_.text_per_packed_byte,
                               shown(unpacked_)),
                   "no profiler writes what packs so well; if it is right, unpack it first: "
                   "gzip -dc FILE > NEW_FILE");
        }
    }

    [[noreturn]] void refuse(std::string what, std::string hint) const {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: byte {}", place_, before_ + at_),
                    std::move(what),
                    std::move(hint));
    }

    InputFile input_;
    std::string place_;
    TraceLimits limits_;
    std::vector<char> packed_;  ///< bytes as they stand in the file
    std::size_t at_ = 0;        ///< the next of them
    std::size_t size_ = 0;      ///< how many of them are there
    std::uint64_t before_ = 0;  ///< bytes of the file before them
    std::uint64_t unpacked_ = 0;
    bool is_packed_ = false;
    bool in_member_ = false;
    z_stream stream_{};
};

}  // namespace

void KeptMemory::refuse(std::string place) const {
    throw Error(
        ErrorKind::BadInput,
        std::move(place),
        fmt::format("what a profile needs of the trace takes more than {} up to here: {} events, "
                    "names and threads",
                    shown(most_),
                    events_),
        fewer_steps);
}

ByteSource::ByteSource(std::string_view place, Blocks blocks, const TraceLimits& limits)
    : place_(place), blocks_(std::move(blocks)), limits_(limits), block_(std::size_t{1} << 16) {
    refill();
    if (std::string_view(block_.data(), size_).starts_with(byte_order_mark)) {
        for (std::size_t i = 0; i < byte_order_mark.size(); ++i) {
            next();
        }
    }
}

std::string ByteSource::position() const {
    count_to(at_);
    return fmt::format("{}:{}:{}", place_, 1 + lines_, std::max(columns_, std::int64_t{1}));
}

/// Many places may be asked for: each byte is looked at once.
void ByteSource::count_to(std::size_t end) const {
    for (; counted_ < end; ++counted_) {
        const bool ends_line = block_[counted_] == '\n';
        columns_ = ends_line ? 0 : columns_ + 1;
        lines_ += ends_line ? 1 : 0;
    }
}

void ByteSource::refill() {
    count_to(size_);
    counted_ = 0;
    bytes_before_ += size_;
    at_ = 0;
    size_ = 0;
    expect_within_limits();
    size_ = blocks_.read(block_);
    expect_no_zeros();
}

/// The JSON parser takes a byte of value 0 for the end, and would not see what stands behind it.
void ByteSource::expect_no_zeros() const {
    const std::size_t zero = std::string_view(block_.data(), size_).find('\0');
    if (zero != std::string_view::npos) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: byte {} of the unpacked text", place_, bytes_before_ + zero),
                    "a byte of value 0, as no text has, expected JSON",
                    "the file is damaged: copy or export it again");
    }
}

void ByteSource::expect_within_limits() const {
    if (bytes_before_ > limits_.bytes) {
        throw Error(ErrorKind::BadInput,
                    std::string(place_),
                    fmt::format("more than {} of text once it is unpacked", shown(limits_.bytes)),
                    fewer_steps);
    }
    if (bytes_before_ - token_end_ > limits_.token_bytes) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: byte {} of the unpacked text", place_, token_end_),
                    fmt::format("a name, a number or blank space of more than {} begins here",
                                shown(limits_.token_bytes)),
                    "no profiler writes that: export the trace again");
    }
}

ByteSource::Blocks blocks_of_text(std::string_view text) {
    return {.read = [text](std::span<char> block) mutable {
        const std::size_t size = text.copy(block.data(), block.size());
        text.remove_prefix(size);
        return size;
    }};
}

ByteSource::Blocks blocks_of_file(const std::filesystem::path& file, const TraceLimits& limits) {
    const auto open = std::make_shared<PackedFile>(file, limits);
    return {.read = [open](std::span<char> block) { return open->read(block); },
            .is_cut = [open] { return open->is_cut(); }};
}

}  // namespace pipetwin
