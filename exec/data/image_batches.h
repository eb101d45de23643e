// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/base/content_hash.h"
#include "core/scenario/scenario.h"
#include "exec/data/batch.h"
#include "exec/data/images/image_file.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// Images of one size with their targets, as they are stored. Reading is safe from several threads.
class ImageSet {
  public:
    virtual ~ImageSet() = default;
    /// How many images there are; at least one.
    virtual std::size_t count() const = 0;
    /// Reads image `index`, row by row, the channels of a pixel beside each other, and its targets:
    /// one, or one for each pixel. Throws Error(BadInput), naming the file; Error(Io).
    virtual void read(std::size_t index,
                      std::span<unsigned char> pixels,
                      std::span<std::int32_t> targets) const = 0;
    /// "cifar10, 50000 images": for the log.
    virtual std::string description() const = 0;
    /// Adds what the samples are made of to a hash (DataSource::add_content).
    virtual void add_content(ContentHash& hash) const = 0;
    /// Bytes of files of which `read` may find something wrong.
    virtual std::size_t unchecked_bytes() const { return 0; }
};

/// What becomes of the images of a set before a model reads them.
struct ImageBatches {
    ImageSize size;  ///< of each image
    bool target_per_pixel = false;
    bool flat = false;  ///< the model reads an image as one position of many numbers
    /// Each sample is drawn from all images, whatever was drawn before it; else each image comes
    /// once an epoch, in an order that seed and epoch give.
    bool with_replacement = false;
    DataUse use = DataUse::Training;
    std::uint64_t seed = 0;
    Scenario::ImageChanges changes;  ///< as a scenario asks for them
};

/// Mini-batches of the images of a set. What is drawn for a sample follows from (seed, step, place
/// in the mini-batch) alone; of validation, nothing is cropped or mirrored. Throws Error(BadInput)
/// for a mean or deviation that is not one for each channel.
std::unique_ptr<DataSource> image_batches(std::unique_ptr<const ImageSet> images,
                                          const ImageBatches& settings);

/// The size of the images that a model reads. Throws Error(BadInput) if it reads something else
/// than data of this `kind` gives.
ImageSize image_size_of(const Model& model, std::string_view kind);

/// Throws Error(BadInput) if the model's loss has not one target for each sample, or for each pixel
/// of the image, as data of this `kind` gives.
void expect_targets(const Model& model, bool per_pixel, std::string_view kind);

}  // namespace pipetwin::exec
