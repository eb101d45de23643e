// SPDX-License-Identifier: Apache-2.0
#include "exec/data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/input_file.h"
#include "exec/data/files.h"

namespace pipetwin::exec {

namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t images_magic = 0x00000803;
constexpr std::uint32_t labels_magic = 0x00000801;
constexpr std::uint64_t largest_file = std::uint64_t{4} << 30U;

/// Reads a plain or gzipped file from its beginning to its end.
class IdxReader {
  public:
    explicit IdxReader(fs::path path) : path_(std::move(path)) {
        InputFile input(path_);
        file_.reset(::gzdopen(input.descriptor(), "rb"));
        if (!file_) {
            throw Error(ErrorKind::Io,
                        path_.string(),
                        fmt::format("cannot be opened: {}", std::strerror(errno)));
        }
        input.release();  // which gzclose closes now
    }

    std::uint32_t number() {
        std::array<unsigned char, 4> bytes{};
        read(bytes, "a header");
        std::uint32_t value = 0;
        for (const unsigned char byte : bytes) {
            value = value << 8U | byte;
        }
        return value;
    }

    void expect(std::uint32_t wanted, const char* what) {
        const std::uint32_t found = number();
        if (found != wanted) {
            refuse_file(
                path_,
                fmt::format(
                    "begins with 0x{:08x}, expected 0x{:08x}: IDX, {}", found, wanted, what));
        }
    }

    std::vector<unsigned char> bytes(std::uint64_t count) {
        if (count > largest_file) {
            refuse_file(path_,
                        fmt::format("promises {} bytes, expected at most {}", count, largest_file));
        }
        std::vector<unsigned char> data(count);
        read(data, "what the header promises");
        unsigned char more = 0;
        if (read_some(std::span(&more, 1)) != 0) {
            refuse_file(path_,
                        fmt::format("goes on after the {} bytes that its header promises", count));
        }
        return data;
    }

  private:
    struct Close {
        void operator()(gzFile file) const { ::gzclose(file); }
    };

    std::size_t read_some(std::span<unsigned char> to) {
        const int got = ::gzread(file_.get(), to.data(), static_cast<unsigned>(to.size()));
        int code = Z_OK;
        const char* const text = ::gzerror(file_.get(), &code);
        if (got < 0 || code != Z_OK) {  // Z_BUF_ERROR: the compressed stream ends too early
            refuse_file(path_, fmt::format("is damaged: {}", text));
        }
        return as_index(got);
    }

    void read(std::span<unsigned char> to, const char* what) {
        constexpr std::size_t at_once = std::size_t{1} << 24U;
        const std::size_t wanted = to.size();
        while (!to.empty()) {
            const std::size_t got = read_some(to.first(std::min(at_once, to.size())));
            if (got == 0) {
                refuse_file(path_,
                            fmt::format("ends {} bytes before {} is complete, expected {} bytes",
                                        to.size(),
                                        what,
                                        wanted));
            }
            to = to.subspan(got);
        }
    }

    fs::path path_;
    std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

}  // namespace

fs::path find_idx_file(const fs::path& folder, const std::string& name, const std::string& hint) {
    for (const char* const suffix : {"", ".gz"}) {
        fs::path path = folder / (name + suffix);
        std::error_code error;
        if (fs::is_regular_file(path, error)) {
            return path;
        }
    }
    if (std::error_code error; !fs::is_directory(folder, error)) {
        refuse_file(folder, "there is no such folder", hint);
    }
    refuse_file(folder,
                fmt::format("neither {0} nor {0}.gz is in this folder, expected one of them", name),
                hint);
}

IdxImages read_idx_images(const fs::path& file,
                          const std::function<void(const IdxShape&)>& expect_shape) {
    IdxReader reader(file);
    reader.expect(images_magic, "unsigned bytes in 3 dimensions");
    IdxImages images;
    images.count = reader.number();
    images.shape.rows = reader.number();
    images.shape.columns = reader.number();
    expect_shape(images.shape);
    const std::uint64_t pixels = images.shape.rows * images.shape.columns;
    if (images.count == 0 || images.count > largest_file || pixels > largest_file) {
        refuse_file(
            file,
            fmt::format(
                "{} images, expected at least 1 and at most {}", images.count, largest_file));
    }
    images.pixels = reader.bytes(images.count * pixels);
    return images;
}

std::vector<unsigned char> read_idx_labels(const fs::path& file,
                                           std::uint64_t images,
                                           int classes) {
    IdxReader reader(file);
    reader.expect(labels_magic, "unsigned bytes in 1 dimension");
    const std::uint64_t count = reader.number();
    if (count != images) {
        refuse_file(
            file,
            fmt::format("{}, expected {}: one for each image", counted(count, "label"), images));
    }
    std::vector<unsigned char> labels = reader.bytes(count);
    for (std::size_t i = 0; i < labels.size(); ++i) {
        if (labels[i] >= classes) {
            constexpr std::size_t header_bytes = 8;
            refuse_file(
                place_in(file, header_bytes + i),
                fmt::format("label {} of image {}, expected 0 to {}", labels[i], i, classes - 1),
                "let the model end with as many outputs as there are labels, or correct the file");
        }
    }
    return labels;
}

}  // namespace pipetwin::exec
