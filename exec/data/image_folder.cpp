// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

/// The images of one class: the files of a folder.
struct ImageClass {
    fs::path folder;
    std::vector<std::string> names;
    std::size_t end = 0;  ///< images of it and of the classes before it
};

/// Throws where the classes of the training are others: a class is known by its place among all.
void expect_same_classes(const fs::path& folder,
                         const std::vector<std::string>& found,
                         const std::vector<std::string>& wanted) {
    if (found != wanted) {
        const auto [here, there] = std::ranges::mismatch(found, wanted);
        refuse_file(
            folder,
            fmt::format("{} where the training has {}, expected folders of the same names",
                        here == found.end() ? "no class" : fmt::format("the class \"{}\"", *here),
                        there == wanted.end() ? "none" : fmt::format("\"{}\"", *there)),
            "give each class of the training a folder, and no other");
    }
}

/// A folder with a folder for each class.
class ImageFolder final : public ImageSet {
  public:
    ImageFolder(const DataRange& range, const ImageSize& size, int classes) : size_(size) {
        const std::vector<std::string> names = folders_in(range.path);
        if (std::ssize(names) != classes) {
            refuse_file(range.path,
                        fmt::format("{} for classes, but the model tells {} apart",
                                    counted(names.size(), "folder"),
                                    classes),
                        "give each class a folder with its images, and let the model end with as "
                        "many outputs");
        }
        for (const std::string& name : names) {
            add_class(range, name);
        }
        if (count() == 0) {
            refuse_file(range.path,
                        "no image is left in any class",
                        "change data.validation, the share that is held out");
        }
    }

    std::size_t count() const override { return classes_.back().end; }

    void read(std::size_t index,
              std::span<unsigned char> pixels,
              std::span<std::int32_t> targets) const override {
        const auto found = std::ranges::upper_bound(classes_, index, {}, &ImageClass::end);
        const std::size_t from_end = found->end - index;
        read_image(found->folder / found->names[found->names.size() - from_end], size_, pixels);
        targets.front() = static_cast<std::int32_t>(found - classes_.begin());
    }

    std::string description() const override {
        return fmt::format(
            "images, {} of {}", counted(count(), "file"), counted(classes_.size(), "class"));
    }

    void add_content(ContentHash& hash) const override {
        for (const ImageClass& one : classes_) {
            for (const std::string& name : one.names) {
                hash.add(std::as_bytes(std::span(name)));
                add_file(hash, DataFile(one.folder / name));
            }
        }
    }

    std::size_t unchecked_bytes() const override { return bytes_; }

  private:
    /// Adds a class. The share of a range is that of each class, as files of a class lie together.
    void add_class(const DataRange& range, const std::string& name) {
        ImageClass& added = classes_.emplace_back(range.path / name);
        std::vector<std::string> names = image_names_in(added.folder);
        const std::size_t begin = range.begin_in(names.size());
        const std::size_t end = range.end_in(names.size());
        if (names.empty() || (range.begin == 0 && end == 0)) {
            refuse_file(added.folder,
                        names.empty() ? std::string("a class without images, expected at least one")
                                      : fmt::format("no image is left of {}", names.size()),
                        names.empty() ? "put its images there, or remove the folder and a class of "
                                        "the model"
                                      : "change data.validation, the share that is held out");
        }
        added.names.assign(names.begin() + static_cast<std::ptrdiff_t>(begin),
                           names.begin() + static_cast<std::ptrdiff_t>(end));
        added.end = added.names.size() + (classes_.size() < 2 ? 0 : classes_.end()[-2].end);
        for (const std::string& image : added.names) {
            const ImageHeader header = read_image_header(added.folder / image);
            expect_size(added.folder / image, header, size_);
            bytes_ += header.file_bytes;
        }
    }

    ImageSize size_;
    std::vector<ImageClass> classes_;
    std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> open_images(const ScenarioParts& scenario,
                                        const Model& model,
                                        DataUse use) {
    const ImageSize size = image_size_of(model, "images");
    expect_targets(model, /*per_pixel=*/false, "images");
    const DataRange range = data_range(scenario, use);
    if (const DataRange training = data_range(scenario, DataUse::Training);
        training.path != range.path) {
        expect_same_classes(range.path, folders_in(range.path), folders_in(training.path));
    }
    return image_batches(std::make_unique<ImageFolder>(range, size, classes_of(model)),
                         {.size = size,
                          .use = use,
                          .seed = scenario.training.seed,
                          .changes = scenario.data.changes});
}

}  // namespace pipetwin::exec
