// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "exec/data/images/image_file.h"

/// The decoders of each format. For exec/data/images alone; others include
/// exec/data/images/image_file.h.
namespace pipetwin::exec {

/// What the numbers of an image mean.
enum class ImageMeaning {
    Colours,
    Values  ///< as they are stored: of a mask
};

/// A whole file in memory, and what its header says.
struct EncodedImage {
    const std::filesystem::path& file;
    std::span<const unsigned char> bytes;
    ImageHeader header;
};

/// Throws Error(BadInput) that names the file of the image.
[[noreturn]] void refuse_image(const std::filesystem::path& file,
                               std::string text,
                               std::string hint = {});

/// Reads the pixels of a PPM or PGM. `channels` of the result: those of the file, or three for one.
void decode_pnm(const EncodedImage& image, int channels, std::span<unsigned char> pixels);

/// Reads the pixels of a PNG.
void decode_png(const EncodedImage& image,
                ImageMeaning meaning,
                int channels,
                std::span<unsigned char> pixels);

/// Reads the pixels of a JPEG.
void decode_jpeg(const EncodedImage& image, int channels, std::span<unsigned char> pixels);

/// Makes three equal channels of each grey value: `pixels` has three times as many numbers.
void widen_grey(std::span<const unsigned char> grey, std::span<unsigned char> pixels);

}  // namespace pipetwin::exec
