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
#include "core/text/file_damage.h"
#include "core/text/input_file.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_reading(const std::string& place) {
    const int code = errno;
    throw Error(ErrorKind::Io,
                place,
                fmt::format("cannot read: {}", std::generic_category().message(code)));
}

}  // namespace

ByteSource::ByteSource(std::string_view place, Read read)
    : place_(place), read_(std::move(read)), block_(std::size_t{1} << 16) {
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
    at_ = 0;
    size_ = 0;
    size_ = read_(block_);
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
                        place,
                        fmt::format("the compressed file is damaged or cut short: {}", text),
                        "copy or export it again");
        }
        return static_cast<std::size_t>(size);
    };
}

}  // namespace pipetwin
