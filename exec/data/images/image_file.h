// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

/// Files that hold one image each: PPM and PGM (P6 and P5, 8 bits), PNG, JPEG.
namespace pipetwin::exec {

/// Rows, columns and channels of an image: 1 channel is grey, 3 are red, green and blue.
struct ImageSize {
    int height = 0;
    int width = 0;
    int channels = 0;

    /// Numbers that an image has.
    std::size_t numbers() const {
        return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
               static_cast<std::size_t>(channels);
    }
    /// Pixels that an image has.
    std::size_t pixels() const {
        return static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
    }

    bool operator==(const ImageSize&) const = default;
};

/// "32 x 32 x 3": rows, columns and channels, for errors.
std::string to_string(const ImageSize& size);

/// How an image is packed.
enum class ImageFormat { Pnm, Png, Jpeg };

/// What stands before the pixels of an image.
struct ImageHeader {
    ImageFormat format = ImageFormat::Pnm;
    ImageSize size;              ///< without the channel of what can be seen through
    int bits = 8;                ///< of each number
    bool has_palette = false;    ///< the numbers are places in a list of colours
    std::size_t begin = 0;       ///< Pnm: the byte at which the pixels begin
    std::size_t file_bytes = 0;  ///< of the whole file
};

/// Reads what stands before the pixels, and nothing else. Throws Error(BadInput) for a file that
/// is no image of these formats; Error(Io).
ImageHeader read_image_header(const std::filesystem::path& file);

/// Throws Error(BadInput), naming the file, if an image with this header cannot be read as one of
/// `size`: rows and columns have to agree. Of channels, a grey image may stand for one in colours.
void expect_size(const std::filesystem::path& file,
                 const ImageHeader& header,
                 const ImageSize& size);

/// Reads an image into `pixels`, row by row, the channels of a pixel beside each other. Palettes
/// become colours, 16 bits 8, grey three equal channels where `size` has three; what can be seen
/// through is not. Throws Error(BadInput), naming the file, for a damaged one or one of another
/// size; Error(Unavailable), naming the package, where the program was built without the library
/// of its format; Error(Io).
void read_image(const std::filesystem::path& file,
                const ImageSize& size,
                std::span<unsigned char> pixels);

/// Reads the values of a mask as they are stored, one for each pixel: grey of up to 8 bits, or the
/// places in the palette. `size` has one channel. Throws as `read_image`, and for a mask in colours
/// or in JPEG, which changes values.
void read_mask(const std::filesystem::path& file,
               const ImageSize& size,
               std::span<unsigned char> values);

/// Throws Error(BadInput), naming the file, where `header` is none that a mask of `size` has.
void expect_mask(const std::filesystem::path& file,
                 const ImageHeader& header,
                 const ImageSize& size);

}  // namespace pipetwin::exec
