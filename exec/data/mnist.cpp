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
#include "core/model/model.h"
#include "exec/data/files.h"
#include "exec/data/idx_file.h"
#include "exec/data/image_batches.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

/// A folder of MNIST's files: which of its two parts is read, and which images of that.
struct MnistPart {
    DataRange range;
    bool is_test = false;  ///< the files for tests, else those for training

    fs::path file(const std::string& what) const {
        return find_idx_file(
            range.path,
            (is_test ? "t10k-" : "train-") + what + "-ubyte",
            is_test ? "put the files for tests there, or set data.validation = 0.1, a share of the "
                      "others, or a path"
                    : "data.path is the folder with the four files of MNIST");
    }
};

MnistPart mnist_part(const ScenarioParts& scenario, DataUse use) {
    if (reads_test_files(scenario, use)) {
        return {.range = {.path = data_range(scenario, DataUse::Training).path}, .is_test = true};
    }
    return {.range = data_range(scenario, use)};
}

/// Which of `count` images of a part are read.
struct ImageSpan {
    ImageSpan(const DataRange& range, std::size_t all)
        : first(range.begin_in(all)), count(range.end_in(all) - first) {
        if (count == 0) {
            refuse_file(range.path,
                        fmt::format("no image is left of {}", all),
                        "change data.validation, the share that is held out");
        }
    }

    std::size_t first;
    std::size_t count;
};

/// Images with the digit, or the piece of clothing, that each shows.
class Mnist final : public ImageSet {
  public:
    Mnist(const MnistPart& part,
          const std::function<void(const fs::path&, const IdxShape&)>& expect_shape,
          int classes)
        : images_(read(part, expect_shape)),
          labels_(read_idx_labels(part.file("labels-idx1"), images_.count, classes)),
          span_(part.range, images_.count) {}

    ImageSize size() const {
        return {.height = static_cast<int>(images_.shape.rows),
                .width = static_cast<int>(images_.shape.columns),
                .channels = 1};
    }

    std::size_t count() const override { return span_.count; }

    void read(std::size_t index,
              std::span<unsigned char> pixels,
              std::span<std::int32_t> targets) const override {
        const std::size_t image = span_.first + index;
        std::ranges::copy(std::span(images_.pixels).subspan(image * pixels.size(), pixels.size()),
                          pixels.begin());
        targets.front() = labels_[image];
    }

    std::string description() const override {
        return fmt::format("mnist, {}", counted(span_.count, "image"));
    }

    void add_content(ContentHash& hash) const override {
        hash.add(std::as_bytes(std::span(images_.pixels)));
        hash.add(std::as_bytes(std::span(labels_)));
    }

  private:
    static IdxImages read(
        const MnistPart& part,
        const std::function<void(const fs::path&, const IdxShape&)>& expect_shape) {
        const fs::path file = part.file("images-idx3");
        return read_idx_images(file, [&](const IdxShape& shape) { expect_shape(file, shape); });
    }

    IdxImages images_;
    std::vector<unsigned char> labels_;
    ImageSpan span_;
};

/// Images in the middle of larger ones; the target of a pixel is 1 where the image is above 0.
class Silhouettes final : public ImageSet {
  public:
    Silhouettes(const MnistPart& part, const ImageSize& size)
        : size_(size), images_(read(part, size)), span_(part.range, images_.count) {}

    std::size_t count() const override { return span_.count; }

    void read(std::size_t index,
              std::span<unsigned char> pixels,
              std::span<std::int32_t> targets) const override {
        const std::size_t rows = images_.shape.rows;
        const std::size_t columns = images_.shape.columns;
        const std::size_t width = as_index(size_.width);
        const std::size_t top = (as_index(size_.height) - rows) / 2;
        const std::size_t left = (width - columns) / 2;
        const std::span<const unsigned char> image =
            std::span(images_.pixels)
                .subspan((span_.first + index) * rows * columns, rows * columns);
        std::ranges::fill(pixels, static_cast<unsigned char>(0));
        for (std::size_t row = 0; row < rows; ++row) {
            std::ranges::copy(image.subspan(row * columns, columns),
                              pixels.subspan((top + row) * width + left, columns).begin());
        }
        std::ranges::transform(
            pixels, targets.begin(), [](unsigned char pixel) { return pixel > 0 ? 1 : 0; });
    }

    std::string description() const override {
        return fmt::format("silhouettes, {}", counted(span_.count, "image"));
    }

    void add_content(ContentHash& hash) const override {
        hash.add(std::as_bytes(std::span(images_.pixels)));
    }

  private:
    static IdxImages read(const MnistPart& part, const ImageSize& size) {
        const fs::path file = part.file("images-idx3");
        return read_idx_images(file, [&](const IdxShape& shape) {
            if (shape.rows == 0 || shape.columns == 0 || shape.rows > as_index(size.height) ||
                shape.columns > as_index(size.width) || size.channels != 1) {
                refuse_file(file,
                            fmt::format("images of {} x {} pixels, but the model reads {} (rows, "
                                        "columns, channels)",
                                        shape.rows,
                                        shape.columns,
                                        to_string(size)),
                            "let it read 1 channel and at least as many pixels, as in image = [32, "
                            "32, 1]");
            }
        });
    }

    ImageSize size_;
    IdxImages images_;
    ImageSpan span_;
};

/// Throws where a model that reads one row of `inputs` numbers cannot read images of this shape.
void expect_flat_shape(const fs::path& file, const IdxShape& shape, int inputs) {
    if (shape.rows * shape.columns != as_index(inputs)) {
        refuse_file(file,
                    fmt::format("images of {} x {} pixels, but the model reads {}",
                                shape.rows,
                                shape.columns,
                                counted(inputs, "number")),
                    fmt::format("set the first of model.sizes to {}", shape.rows * shape.columns));
    }
}

void expect_image_shape(const fs::path& file, const IdxShape& shape, const ImageSize& size) {
    if (shape.rows != as_index(size.height) || shape.columns != as_index(size.width) ||
        size.channels != 1) {
        refuse_file(
            file,
            fmt::format("images of {} x {} pixels in 1 channel, but the model reads {} (rows, "
                        "columns, channels)",
                        shape.rows,
                        shape.columns,
                        to_string(size)),
            fmt::format("let it read image = [{}, {}, 1]", shape.rows, shape.columns));
    }
}

}  // namespace

std::unique_ptr<DataSource> open_mnist(const ScenarioParts& scenario,
                                       const Model& model,
                                       DataUse use) {
    const SampleShape& input = model.layer(0).input;
    const bool flat = !input.is_image();
    if (input.token_ids || (flat && input.positions != 1)) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.kind"},
                    fmt::format("\"mnist\" gives 784 numbers per sample, but the model reads {}",
                                to_string(input)),
                    "use model.kind = \"mlp\" with sizes = [784, ..., 10], or a model with image = "
                    "[28, 28, 1]");
    }
    expect_targets(model, /*per_pixel=*/false, "mnist");
    const auto expect_shape = [&](const fs::path& file, const IdxShape& shape) {
        if (flat) {
            expect_flat_shape(file, shape, input.width);
        } else {
            expect_image_shape(file, shape, image_size_of(model, "mnist"));
        }
    };
    auto images =
        std::make_unique<Mnist>(mnist_part(scenario, use), expect_shape, classes_of(model));
    const ImageSize size = images->size();
    return image_batches(std::move(images),
                         {.size = size,
                          .flat = flat,
                          .with_replacement = flat,
                          .use = use,
                          .seed = scenario.training.seed,
                          .changes = scenario.data.changes});
}

std::unique_ptr<DataSource> open_silhouettes(const ScenarioParts& scenario,
                                             const Model& model,
                                             DataUse use) {
    const ImageSize size = image_size_of(model, "silhouettes");
    expect_targets(model, /*per_pixel=*/true, "silhouettes");
    if (classes_of(model) < 2) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.kind"},
                    fmt::format("\"silhouettes\" has pixels of 2 classes, but the model tells {} "
                                "apart",
                                classes_of(model)),
                    "end it with two channels and cross_entropy, or one and binary_cross_entropy");
    }
    return image_batches(std::make_unique<Silhouettes>(mnist_part(scenario, use), size),
                         {.size = size,
                          .target_per_pixel = true,
                          .use = use,
                          .seed = scenario.training.seed,
                          .changes = scenario.data.changes});
}

}  // namespace pipetwin::exec
