// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "exec/data/images/image_decoders.h"

// "P5" (grey) or "P6" (red, green, blue), columns, rows and the largest value as text, one white
// space, then a byte for each number.
namespace pipetwin::exec {

void decode_pnm(const EncodedImage& image, int channels, std::span<unsigned char> pixels) {
    const std::size_t expected = image.header.begin + image.header.size.numbers();
    if (image.bytes.size() != expected) {
        refuse_image(image.file,
                     fmt::format("{} bytes, expected {} of {}",
                                 image.bytes.size(),
                                 expected,
                                 to_string(image.header.size)),
                     "copy or write the file again");
    }
    const std::span<const unsigned char> numbers = image.bytes.subspan(image.header.begin);
    if (image.header.size.channels < channels) {
        widen_grey(numbers, pixels);
    } else {
        std::ranges::copy(numbers, pixels.begin());
    }
}

}  // namespace pipetwin::exec
