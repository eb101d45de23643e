// SPDX-License-Identifier: Apache-2.0
#ifdef PIPETWIN_PNG
#include <png.h>
#endif

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/data/images/image_decoders.h"

namespace pipetwin::exec {

#ifdef PIPETWIN_PNG

namespace {

/// Where libpng reads, and what it complains of.
struct PngInput {
    const unsigned char* next;
    std::size_t left;
    std::array<char, 200> complaint;
};

void read_png_bytes(png_structp png, png_bytep to, std::size_t count) {
    auto* const input = static_cast<PngInput*>(png_get_io_ptr(png));
    if (count > input->left) {
        png_error(png, "the file ends too early");
    }
    std::memcpy(to, input->next, count);
    input->next += count;
    input->left -= count;
}

[[noreturn]] void leave_png(png_structp png, png_const_charp complaint) {
    auto* const input = static_cast<PngInput*>(png_get_error_ptr(png));
    const std::size_t length = std::min(std::strlen(complaint), input->complaint.size() - 1);
    std::memcpy(input->complaint.data(), complaint, length);
    png_longjmp(png, 1);
}

void ignore_png_warning(png_structp /*png*/, png_const_charp /*warning*/) {}

/// What a PNG is decoded into; all of it is made before libpng may jump.
struct PngTarget {
    png_bytepp rows;
    std::size_t row_bytes;
    bool as_values;  ///< of a mask
    bool in_colours;
};

/// Decodes a PNG; false if libpng complained. It jumps over this function's frame alone, in which
/// nothing has a destructor.
bool decode_png_rows(png_structp png, png_infop info, PngInput& input, const PngTarget& target) {
    if (setjmp(png_jmpbuf(png)) != 0) {  // NOLINT(cert-err52-cpp,modernize-avoid-setjmp-longjmp)
        return false;
    }
    constexpr std::size_t most_of_a_chunk = std::size_t{1} << 20U;
    png_set_chunk_malloc_max(png, most_of_a_chunk);
    png_set_chunk_cache_max(png, 64);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_set_read_fn(png, &input, read_png_bytes);
    png_read_info(png, info);
    if (target.as_values) {
        png_set_packing(png);
    } else {
        png_set_expand(png);
        png_set_scale_16(png);
        png_set_strip_alpha(png);
    }
    if (target.in_colours) {
        png_set_gray_to_rgb(png);
    }
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != target.row_bytes) {
        png_error(png, "its rows have another length than its header says");
    }
    png_read_image(png, target.rows);
    png_read_end(png, nullptr);
    return true;
}

}  // namespace

void decode_png(const EncodedImage& image,
                ImageMeaning meaning,
                int channels,
                std::span<unsigned char> pixels) {
    const ImageSize size = {image.header.size.height, image.header.size.width, channels};
    const std::size_t row_bytes = as_index(size.width) * as_index(channels);
    std::vector<png_bytep> rows;
    for (int row = 0; row < size.height; ++row) {
        rows.push_back(pixels.subspan(as_index(row) * row_bytes, row_bytes).data());
    }
    PngInput input{.next = image.bytes.data(), .left = image.bytes.size(), .complaint = {}};
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, leave_png, ignore_png_warning);
    png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
    const bool is_whole =
        info != nullptr && decode_png_rows(png,
                                           info,
                                           input,
                                           {.rows = rows.data(),
                                            .row_bytes = row_bytes,
                                            .as_values = meaning == ImageMeaning::Values,
                                            .in_colours = channels == 3});
    png_destroy_read_struct(&png, &info, nullptr);
    if (!is_whole) {
        refuse_image(image.file,
                     fmt::format("a damaged PNG: {}, expected a whole image",
                                 input.complaint.front() == 0 ? "it cannot be read"
                                                              : input.complaint.data()),
                     "copy or write the file again");
    }
}

#else

void decode_png(const EncodedImage& image,
                ImageMeaning /*meaning*/,
                int /*channels*/,
                std::span<unsigned char> /*pixels*/) {
    throw Error(ErrorKind::Unavailable,
                image.file.string(),
                "a PNG, and this build has no libpng to read it with",
                "build with libpng-dev installed, or convert the images to PPM");
}

#endif

}  // namespace pipetwin::exec
