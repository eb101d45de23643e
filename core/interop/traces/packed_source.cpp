#include "core/interop/traces/packed_source.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/io_hint.h"
#include "core/base/units.h"
#include "core/text/file_damage.h"
#include "core/text/input_file.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_reading(const std::string& place) {
    const int code = errno;
    throw Error(ErrorKind::Io,
                place,
                fmt::format("cannot read: {}", std::generic_category().message(code)),
                io_hint(code));
}

/// What zlib says of damage, without the name of the file that it begins with.
std::string_view reason_of_damage(int code, std::string_view text) {
    if (code == Z_BUF_ERROR) {
        return "it ends before its last block";
    }
    const std::size_t colon = text.rfind(": ");
    return colon == std::string_view::npos ? text : text.substr(colon + 2);
}

}  // namespace

void KeptMemory::refuse(std::string place) const {
    throw Error(ErrorKind::BadInput,
                std::move(place),
                fmt::format("what a profile needs of the trace takes more than {} up to here",
                            format_bytes(Bytes{static_cast<std::int64_t>(most_)})),
                "record fewer steps: a handful of them is enough for medians");
}

ByteSource::ByteSource(std::string_view place, Read read, const TraceLimits& limits)
    : place_(place), read_(std::move(read)), limits_(limits), block_(std::size_t{1} << 16) {
    refill();
    if (std::string_view(block_.data(), size_).starts_with(byte_order_mark)) {
        for (std::size_t i = 0; i < byte_order_mark.size(); ++i) {
            next();
        }
    }
}

std::string ByteSource::position() const {
    const auto end = block_.begin() + static_cast<std::ptrdiff_t>(at_);
    const auto lines = std::count(block_.begin(), end, '\n');
    const auto line_begin = std::find(std::reverse_iterator(end), block_.rend(), '\n').base();
    const std::int64_t column = end - line_begin + (lines == 0 ? columns_before_ : 0);
    return fmt::format(
        "{}:{}:{}", place_, 1 + lines_before_ + lines, std::max(column, std::int64_t{1}));
}

void ByteSource::refill() {
    for (std::size_t i = 0; i < size_; ++i) {
        columns_before_ = block_[i] == '\n' ? 0 : columns_before_ + 1;
        lines_before_ += block_[i] == '\n' ? 1 : 0;
    }
    bytes_before_ += size_;
    at_ = 0;
    size_ = 0;
    expect_within_limits();
    size_ = read_(block_);
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
    const auto shown = [](std::uint64_t bytes) {
        return format_bytes(Bytes{static_cast<std::int64_t>(bytes)});
    };
    if (bytes_before_ > limits_.bytes) {
        throw Error(ErrorKind::BadInput,
                    std::string(place_),
                    fmt::format("more than {} of text once it is unpacked", shown(limits_.bytes)),
                    "record fewer steps: a handful of them is enough for medians");
    }
    if (bytes_before_ - token_end_ > limits_.token_bytes) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: byte {} of the unpacked text", place_, token_end_),
                    fmt::format("a name, a number or blank space of more than {} begins here",
                                shown(limits_.token_bytes)),
                    "no profiler writes that: export the trace again");
    }
}

ByteSource::Read blocks_of_text(std::string_view text) {
    return [text](std::span<char> block) mutable {
        const std::size_t size = text.copy(block.data(), block.size());
        text.remove_prefix(size);
        return size;
    };
}

ByteSource::Read blocks_of_file(const std::filesystem::path& file) {
    const std::string place = file.string();
    InputFile input(file);
    const std::shared_ptr<gzFile_s> open(::gzdopen(input.descriptor(), "rb"), [](gzFile_s* opened) {
        if (opened != nullptr) {
            ::gzclose(opened);
        }
    });
    if (open == nullptr) {
        refuse_reading(place);
    }
    input.release();  // which gzclose closes now
    return [open, place](std::span<char> block) {
        const int size = ::gzread(open.get(), block.data(), static_cast<unsigned>(block.size()));
        int code = Z_OK;
        const char* const text = ::gzerror(open.get(), &code);
        if (code == Z_ERRNO) {
            refuse_reading(place);
        }
        if (size < 0 || code != Z_OK) {  // Z_BUF_ERROR: the compressed stream ends too early
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}: byte {}", place, ::gzoffset(open.get())),
                        fmt::format("the compressed file is damaged or cut short: {}",
                                    reason_of_damage(code, text)),
                        "copy or export it again");
        }
        return static_cast<std::size_t>(size);
    };
}

}  // namespace pipetwin
