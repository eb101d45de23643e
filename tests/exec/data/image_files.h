// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files that tests write themselves.

#include <cstddef>
#include <string>
#include <vector>

namespace pipetwin::tests {

/// Rows, columns and channels with a byte for each, row by row.
struct RawImage {
    int height = 0;
    int width = 0;
    int channels = 1;
    std::vector<unsigned char> bytes;

    std::size_t numbers() const {
        return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
               static_cast<std::size_t>(channels);
    }
};

/// An image whose numbers count up from `first`, modulo 256.
inline RawImage counting_image(int height, int width, int channels, int first = 0) {
    RawImage image{.height = height, .width = width, .channels = channels, .bytes = {}};
    for (std::size_t i = 0; i < image.numbers(); ++i) {
        image.bytes.push_back(static_cast<unsigned char>(static_cast<std::size_t>(first) + i));
    }
    return image;
}

/// An image of one value.
inline RawImage even_image(int height, int width, int channels, int value) {
    RawImage image{.height = height, .width = width, .channels = channels, .bytes = {}};
    image.bytes.assign(image.numbers(), static_cast<unsigned char>(value));
    return image;
}

/// PGM for one channel, PPM for three.
inline std::string pnm(const RawImage& image) {
    std::string file = (image.channels == 1 ? "P5\n" : "P6\n") + std::to_string(image.width) + " " +
                       std::to_string(image.height) + "\n255\n";
    file.append(image.bytes.begin(), image.bytes.end());
    return file;
}

}  // namespace pipetwin::tests
