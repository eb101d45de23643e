// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

/// The IDX format of MNIST: a big-endian header (0, 0, type, number of dimensions, then each
/// dimension as 32 bits), then the elements, the last dimension fastest. Plain or gzipped.
namespace pipetwin::exec {

/// Shape of each image of a file.
struct IdxShape {
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
};

/// Unsigned bytes in three dimensions.
struct IdxImages {
    std::uint64_t count = 0;
    IdxShape shape;
    std::vector<unsigned char> pixels;  ///< [image][row][column]
};

/// Finds the file of this name in `folder`, plain or with .gz. Throws Error(BadInput), with `hint`,
/// if there is none.
std::filesystem::path find_idx_file(const std::filesystem::path& folder,
                                    const std::string& name,
                                    const std::string& hint);

/// Reads images, whose shape is shown to `expect_shape` before any pixel is read. Throws
/// Error(BadInput) for another type, no images, more than 4 GiB or a damaged file; Error(Io).
IdxImages read_idx_images(const std::filesystem::path& file,
                          const std::function<void(const IdxShape&)>& expect_shape);

/// Reads a label for each of `images`. Throws Error(BadInput) for another type or number,
/// for a label that is not below `classes`, and for a damaged file; Error(Io).
std::vector<unsigned char> read_idx_labels(const std::filesystem::path& file,
                                           std::uint64_t images,
                                           int classes);

}  // namespace pipetwin::exec
