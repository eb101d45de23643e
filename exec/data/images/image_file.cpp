// SPDX-License-Identifier: Apache-2.0
#include "exec/data/images/image_file.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/input_file.h"
#include "exec/data/images/image_decoders.h"

namespace pipetwin::exec {

namespace fs = std::filesystem;

namespace {

/// A file with more bytes than this is refused before it is read.
constexpr std::size_t most_file_bytes = std::size_t{256} << 20U;
/// Rows or columns that no image exceeds.
constexpr std::uint32_t longest_side = 65535;

/// Fills `bytes` from a place of a file on; returns how many there were.
using ReadAt = std::function<std::size_t(std::size_t place, std::span<unsigned char> bytes)>;

std::uint32_t big_endian_number(std::span<const unsigned char> bytes) {
    std::uint32_t number = 0;
    for (const unsigned char byte : bytes) {
        number = number << 8U | byte;
    }
    return number;
}

/// Fills `bytes`, which have to be there.
void read_header_bytes(const fs::path& file,
                       const ReadAt& read_at,
                       std::size_t place,
                       std::span<unsigned char> bytes) {
    if (read_at(place, bytes) < bytes.size()) {
        refuse_image(file, "ends before its header is complete, expected a whole image");
    }
}

int side_of(const fs::path& file, std::uint32_t pixels) {
    if (pixels == 0 || pixels > longest_side) {
        refuse_image(file,
                     fmt::format("a side of {} pixels, expected 1 to {}", pixels, longest_side));
    }
    return static_cast<int>(pixels);
}

// --- PPM and PGM ---

/// The numbers of a PNM's header, with white space and comments between them.
class PnmHeader {
  public:
    PnmHeader(const fs::path& file, std::span<const unsigned char> bytes)
        : file_(file), bytes_(bytes) {}

    std::uint32_t number() {
        skip_space();
        std::uint32_t value = 0;
        const std::size_t begin = place_;
        for (; place_ < bytes_.size() && is_digit(bytes_[place_]); ++place_) {
            value = value * 10 + (bytes_[place_] - '0');
            if (value > longest_side) {
                refuse_image(file_,
                             fmt::format("its header has a number above {}, expected a PPM or PGM "
                                         "of such rows, columns and values at most",
                                         longest_side));
            }
        }
        if (place_ == begin || place_ == bytes_.size()) {
            refuse_image(file_,
                         fmt::format("no number at byte {}, expected columns, rows and the largest "
                                     "value behind P5 or P6",
                                     begin));
        }
        return value;
    }

    /// The byte behind the one white space that ends the header.
    std::size_t end() const {
        if (!is_space(bytes_[place_])) {
            refuse_image(file_, fmt::format("no white space at byte {}, expected one", place_));
        }
        return place_ + 1;
    }

  private:
    static bool is_digit(unsigned char byte) { return byte >= '0' && byte <= '9'; }
    static bool is_space(unsigned char byte) {
        return byte == ' ' || (byte >= '\t' && byte <= '\r');
    }

    void skip_space() {
        bool in_comment = false;
        for (; place_ < bytes_.size(); ++place_) {
            const unsigned char byte = bytes_[place_];
            in_comment = in_comment ? byte != '\n' && byte != '\r' : byte == '#';
            if (!in_comment && !is_space(byte)) {
                return;
            }
        }
    }

    const fs::path& file_;
    std::span<const unsigned char> bytes_;
    std::size_t place_ = 2;  ///< behind "P5" or "P6"
};

ImageHeader pnm_header(const fs::path& file, const ReadAt& read_at, int channels) {
    std::array<unsigned char, 4096> start{};  // with all comments
    PnmHeader text(file, std::span(start).first(read_at(0, start)));
    ImageHeader header{.format = ImageFormat::Pnm, .size = {.channels = channels}};
    header.size.width = side_of(file, text.number());
    header.size.height = side_of(file, text.number());
    if (const std::uint32_t most = text.number(); most != 255) {
        refuse_image(file,
                     fmt::format("values up to {}, expected 255: a byte for each", most),
                     "convert it, as by: pnmdepth 255");
    }
    header.begin = text.end();
    return header;
}

// --- PNG ---

constexpr std::array<unsigned char, 8> png_start{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

ImageHeader png_header(const fs::path& file, const ReadAt& read_at) {
    std::array<unsigned char, 26> start{};
    read_header_bytes(file, read_at, 0, start);
    const std::span<const unsigned char> bytes(start);
    constexpr std::array<unsigned char, 8> first_chunk{0, 0, 0, 13, 'I', 'H', 'D', 'R'};
    if (!std::ranges::equal(bytes.subspan(8, 8), first_chunk)) {
        refuse_image(file, "a PNG that does not begin with its header, expected IHDR");
    }
    ImageHeader header{.format = ImageFormat::Png, .size = {}, .bits = bytes[24]};
    header.size.width = side_of(file, big_endian_number(bytes.subspan(16, 4)));
    header.size.height = side_of(file, big_endian_number(bytes.subspan(20, 4)));
    constexpr unsigned colours = 2;
    constexpr unsigned palette = 1;
    header.size.channels = (bytes[25] & colours) != 0 ? 3 : 1;
    header.has_palette = (bytes[25] & palette) != 0;
    return header;
}

// --- JPEG ---

constexpr std::array<unsigned char, 2> jpeg_start{0xff, 0xd8};

/// Whether a marker begins a frame, which has the image's size.
bool begins_frame(unsigned char marker) {
    constexpr std::array<unsigned char, 3> others{0xc4, 0xc8, 0xcc};
    return marker >= 0xc0 && marker <= 0xcf && std::ranges::find(others, marker) == others.end();
}

ImageHeader jpeg_frame(const fs::path& file, std::span<const unsigned char> frame) {
    const int bits = frame[0];
    const int channels = frame[5];
    if (bits != 8 || (channels != 1 && channels != 3)) {
        refuse_image(file,
                     fmt::format("a JPEG of {} with {}, expected 8 bits, and 1 or 3 channels",
                                 counted(channels, "channel"),
                                 counted(bits, "bit")),
                     "convert it to grey or to red, green and blue");
    }
    return {.format = ImageFormat::Jpeg,
            .size = {.height = side_of(file, big_endian_number(frame.subspan(1, 2))),
                     .width = side_of(file, big_endian_number(frame.subspan(3, 2))),
                     .channels = channels}};
}

ImageHeader jpeg_header(const fs::path& file, const ReadAt& read_at) {
    constexpr int most_segments = 4096;  // each is looked for in the file
    constexpr unsigned char scan = 0xda;
    std::size_t place = jpeg_start.size();
    for (int segment = 0; segment < most_segments; ++segment) {
        std::array<unsigned char, 4> start{};
        read_header_bytes(file, read_at, place, start);
        if (start[0] != 0xff || start[1] == scan) {
            break;
        }
        if (start[1] == 0xff) {  // what fills the space before a marker
            ++place;
            continue;
        }
        if (begins_frame(start[1])) {
            std::array<unsigned char, 6> frame{};
            read_header_bytes(file, read_at, place + start.size(), frame);
            return jpeg_frame(file, frame);
        }
        place += 2 + big_endian_number(std::span<const unsigned char>(start).subspan(2, 2));
    }
    refuse_image(file,
                 fmt::format("a JPEG without its size up to byte {}, expected a frame", place));
}

// --- All of them ---

ImageHeader header_of(const fs::path& file, const ReadAt& read_at) {
    std::array<unsigned char, png_start.size()> start{};
    const std::span<const unsigned char> bytes = std::span(start).first(read_at(0, start));
    const auto begins_with = [bytes](const auto& mark) {
        return bytes.size() >= mark.size() && std::ranges::equal(bytes.first(mark.size()), mark);
    };
    if (begins_with(png_start)) {
        return png_header(file, read_at);
    }
    if (begins_with(jpeg_start)) {
        return jpeg_header(file, read_at);
    }
    if (begins_with(std::array<unsigned char, 2>{'P', '5'})) {
        return pnm_header(file, read_at, 1);
    }
    if (begins_with(std::array<unsigned char, 2>{'P', '6'})) {
        return pnm_header(file, read_at, 3);
    }
    refuse_image(file,
                 "no image by its first bytes, expected PPM (P6), PGM (P5), PNG or JPEG",
                 "convert it, or take it out of the folder");
}

/// The header of a file that is open.
ImageHeader header_of(const fs::path& path, InputFile& file) {
    ImageHeader header = header_of(path, [&](std::size_t place, std::span<unsigned char> bytes) {
        file.go_to(place);
        const std::string found = file.read_up_to(bytes.size());
        std::ranges::copy(found, bytes.begin());
        return found.size();
    });
    header.file_bytes = file.size();
    if (header.file_bytes > most_file_bytes) {
        refuse_image(path,
                     fmt::format("{}, expected at most {} of one image",
                                 counted(header.file_bytes, "byte"),
                                 most_file_bytes));
    }
    return header;
}

/// Reads a whole file and calls `decode` with it.
template <class Decode>
void decode_file(const fs::path& path, const Decode& decode) {
    InputFile file(path);
    const ImageHeader header = header_of(path, file);
    file.go_to(0);
    const std::string content = file.read_up_to(header.file_bytes);
    const auto* const begin = reinterpret_cast<const unsigned char*>(content.data());
    decode(EncodedImage{.file = path, .bytes = {begin, content.size()}, .header = header});
}

}  // namespace

std::string to_string(const ImageSize& size) {
    return fmt::format("{} x {} x {}", size.height, size.width, size.channels);
}

void refuse_image(const fs::path& file, std::string text, std::string hint) {
    throw Error(ErrorKind::BadInput, file.string(), std::move(text), std::move(hint));
}

void widen_grey(std::span<const unsigned char> grey, std::span<unsigned char> pixels) {
    for (std::size_t i = 0; i < grey.size(); ++i) {
        std::ranges::fill(pixels.subspan(3 * i, 3), grey[i]);
    }
}

ImageHeader read_image_header(const fs::path& file) {
    InputFile opened(file);
    return header_of(file, opened);
}

void expect_size(const fs::path& file, const ImageHeader& header, const ImageSize& size) {
    const bool same_sides = header.size.height == size.height && header.size.width == size.width;
    if (!same_sides || header.size.channels > size.channels) {
        refuse_image(file,
                     fmt::format("an image of {} (rows, columns, channels), expected {}, which the "
                                 "model reads",
                                 to_string(header.size),
                                 to_string(size)),
                     "bring all images to one size first; grey ones may stand among those in "
                     "colours");
    }
}

void expect_mask(const fs::path& file, const ImageHeader& header, const ImageSize& size) {
    if (header.format == ImageFormat::Jpeg) {
        refuse_image(file,
                     "a mask in JPEG, which changes values, expected PGM or PNG",
                     "write the masks as PNG");
    }
    if (header.size.height != size.height || header.size.width != size.width) {
        refuse_image(file,
                     fmt::format("a mask of {} x {} pixels, expected {} x {} as its image has",
                                 header.size.height,
                                 header.size.width,
                                 size.height,
                                 size.width),
                     "bring images and masks to one size first");
    }
    if ((header.size.channels == 3 && !header.has_palette) || header.bits > 8) {
        refuse_image(file,
                     header.bits > 8 ? "a mask of 16 bits, expected 8 bits or less"
                                     : "a mask in colours, expected grey or a palette",
                     "write the class of each pixel as a grey value or a place in a palette");
    }
}

void read_image(const fs::path& file, const ImageSize& size, std::span<unsigned char> pixels) {
    decode_file(file, [&](const EncodedImage& image) {
        expect_size(file, image.header, size);
        switch (image.header.format) {
            case ImageFormat::Pnm:
                return decode_pnm(image, size.channels, pixels);
            case ImageFormat::Png:
                return decode_png(image, ImageMeaning::Colours, size.channels, pixels);
            case ImageFormat::Jpeg:
                return decode_jpeg(image, size.channels, pixels);
        }
    });
}

void read_mask(const fs::path& file, const ImageSize& size, std::span<unsigned char> values) {
    decode_file(file, [&](const EncodedImage& image) {
        expect_mask(file, image.header, size);
        if (image.header.format == ImageFormat::Pnm) {
            decode_pnm(image, 1, values);
        } else {
            decode_png(image, ImageMeaning::Values, 1, values);
        }
    });
}

}  // namespace pipetwin::exec
