// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "exec/data/files.h"
#include "exec/data/image_batches.h"
#include "exec/data/images/image_file.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

/// An image and its mask, which are called alike but for the ending.
struct MaskedImage {
    std::string image;
    std::string mask;
};

std::string stem_of(const std::string& name) {
    return fs::path(name).stem().string();
}

/// The files of a folder in byte order of their names without the ending. Throws where two of them
/// differ in nothing else.
std::vector<std::string> names_by_stem(const fs::path& folder) {
    std::vector<std::string> names = image_names_in(folder);
    std::ranges::sort(names, {}, stem_of);
    const auto twin = std::ranges::adjacent_find(names, {}, stem_of);
    if (twin != names.end()) {
        refuse_file(folder,
                    fmt::format("{} and {}, expected one file of this name", twin[0], twin[1]),
                    "an image and its mask are called alike but for the ending");
    }
    return names;
}

/// Pairs the images of a folder with their masks. Throws for one without the other.
std::vector<MaskedImage> pairs_in(const fs::path& folder) {
    const std::vector<std::string> images = names_by_stem(folder / "images");
    const std::vector<std::string> masks = names_by_stem(folder / "masks");
    const auto [image, mask] = std::ranges::mismatch(images, masks, {}, stem_of, stem_of);
    const bool lacks_mask =
        image != images.end() && (mask == masks.end() || stem_of(*image) < stem_of(*mask));
    if (lacks_mask) {
        refuse_file(folder / "images" / *image,
                    fmt::format("an image without a mask, expected masks/{}.png", stem_of(*image)),
                    "write its mask, or take it out of the folder");
    }
    if (mask != masks.end()) {
        refuse_file(folder / "masks" / *mask,
                    "a mask without an image of this name in images",
                    "add its image, or take it out of the folder");
    }
    if (images.empty()) {
        refuse_file(folder / "images", "no image is there, expected at least one");
    }
    std::vector<MaskedImage> pairs;
    for (std::size_t i = 0; i < images.size(); ++i) {
        pairs.push_back({.image = images[i], .mask = masks[i]});
    }
    return pairs;
}

/// Images with a class for each pixel.
class Segmentation final : public ImageSet {
  public:
    Segmentation(const DataRange& range, const ImageSize& size, int classes)
        : folder_(range.path), size_(size), mask_size_(size), classes_(classes) {
        mask_size_.channels = 1;
        std::vector<MaskedImage> pairs = pairs_in(folder_);
        const std::size_t begin = range.begin_in(pairs.size());
        const std::size_t end = range.end_in(pairs.size());
        if (begin == end) {
            refuse_file(range.path,
                        fmt::format("no image is left of {}", pairs.size()),
                        "change data.validation, the share that is held out");
        }
        for (std::size_t i = begin; i < end; ++i) {
            const fs::path image = image_file(pairs[i]);
            const ImageHeader image_header = read_image_header(image);
            expect_size(image, image_header, size_);
            const fs::path mask = mask_file(pairs[i]);
            const ImageHeader mask_header = read_image_header(mask);
            expect_mask(mask, mask_header, mask_size_);
            bytes_ += image_header.file_bytes + mask_header.file_bytes;
            pairs_.push_back(std::move(pairs[i]));
        }
    }

    std::size_t count() const override { return pairs_.size(); }

    void read(std::size_t index,
              std::span<unsigned char> pixels,
              std::span<std::int32_t> targets) const override {
        const MaskedImage& pair = pairs_[index];
        read_image(image_file(pair), size_, pixels);
        std::vector<unsigned char> values(mask_size_.pixels());
        const fs::path mask = mask_file(pair);
        read_mask(mask, mask_size_, values);
        constexpr int white = 255;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const int value = classes_ == 2 && values[i] == white ? 1 : values[i];
            if (value >= classes_) {
                refuse_file(mask,
                            fmt::format("value {} at row {}, column {}, expected 0 to {}{}",
                                        value,
                                        i / as_index(size_.width),
                                        i % as_index(size_.width),
                                        classes_ - 1,
                                        classes_ == 2 ? ", or 255 for 1" : ""),
                            "let the model end with as many classes as masks have, or mend the "
                            "mask");
            }
            targets[i] = value;
        }
    }

    std::string description() const override {
        return fmt::format("segmentation, {} with masks", counted(pairs_.size(), "image"));
    }

    void add_content(ContentHash& hash) const override {
        for (const MaskedImage& pair : pairs_) {
            hash.add(std::as_bytes(std::span(pair.image)));
            add_file(hash, DataFile(image_file(pair)));
            add_file(hash, DataFile(mask_file(pair)));
        }
    }

    std::size_t unchecked_bytes() const override { return bytes_; }

  private:
    fs::path image_file(const MaskedImage& pair) const { return folder_ / "images" / pair.image; }
    fs::path mask_file(const MaskedImage& pair) const { return folder_ / "masks" / pair.mask; }

    fs::path folder_;
    ImageSize size_;
    ImageSize mask_size_;
    int classes_;
    std::vector<MaskedImage> pairs_;
    std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> open_segmentation(const ScenarioParts& scenario,
                                              const Model& model,
                                              DataUse use) {
    const ImageSize size = image_size_of(model, "segmentation");
    expect_targets(model, /*per_pixel=*/true, "segmentation");
    return image_batches(
        std::make_unique<Segmentation>(data_range(scenario, use), size, classes_of(model)),
        {.size = size,
         .target_per_pixel = true,
         .use = use,
         .seed = scenario.training.seed,
         .changes = scenario.data.changes});
}

}  // namespace pipetwin::exec
