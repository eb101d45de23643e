// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "exec/data/files.h"
#include "exec/data/image_batches.h"
#include "exec/data/sources.h"

// CIFAR-10's binary version: records of a label and three planes, red, green and blue, each of 32
// rows of 32 bytes.
namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr ImageSize cifar_size{.height = 32, .width = 32, .channels = 3};
constexpr std::size_t plane_bytes = std::size_t{32} * 32;
constexpr std::size_t record_bytes = 1 + 3 * plane_bytes;

/// A file of a folder with CIFAR-10. Throws Error(BadInput) if it is missing or its length is none
/// of whole records.
DataFile open_records(const fs::path& folder, const std::string& name) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
        refuse_file(folder, "there is no such folder", "data.path is the folder of CIFAR-10");
    }
    if (!fs::exists(folder / name, error)) {
        refuse_file(folder,
                    fmt::format("{} is not in this folder, expected the six binary files of "
                                "CIFAR-10",
                                name),
                    "unpack cifar-10-binary.tar.gz, and name the folder cifar-10-batches-bin");
    }
    DataFile file(folder / name);
    if (file.size() == 0 || file.size() % record_bytes != 0) {
        refuse_file(file.path(),
                    fmt::format("{}, expected records of {} bytes each",
                                counted(file.size(), "byte"),
                                record_bytes),
                    "unpack cifar-10-binary.tar.gz again");
    }
    return file;
}

/// The files of a use: data_batch_1.bin to data_batch_5.bin, or test_batch.bin.
std::vector<DataFile> open_files(const fs::path& folder, bool is_test) {
    std::vector<DataFile> files;
    if (is_test) {
        files.push_back(open_records(folder, "test_batch.bin"));
        return files;
    }
    for (int number = 1; number <= 5; ++number) {
        files.push_back(open_records(folder, fmt::format("data_batch_{}.bin", number)));
    }
    return files;
}

/// Small images, which are read when they are needed.
class Cifar10 final : public ImageSet {
  public:
    Cifar10(const DataRange& range, bool is_test, int classes)
        : files_(open_files(range.path, is_test)) {
        for (const DataFile& file : files_) {
            expect_labels(file, classes);
            all_ += file.size() / record_bytes;
            ends_.push_back(all_);
        }
        first_ = range.begin_in(all_);
        count_ = range.end_in(all_) - first_;
        if (count_ == 0) {
            refuse_file(range.path,
                        fmt::format("no image is left of {}", all_),
                        "change data.validation, the share that is held out");
        }
    }

    std::size_t count() const override { return count_; }

    void read(std::size_t index,
              std::span<unsigned char> pixels,
              std::span<std::int32_t> targets) const override {
        const std::size_t record = first_ + index;
        const auto end = std::ranges::upper_bound(ends_, record);
        const auto number = static_cast<std::size_t>(end - ends_.begin());
        const std::size_t before = number == 0 ? 0 : ends_[number - 1];
        std::array<std::byte, record_bytes> bytes;  // NOLINT(*-init): `read` fills it
        files_[number].read((record - before) * record_bytes, bytes);
        targets.front() = std::to_integer<std::int32_t>(bytes.front());
        for (std::size_t pixel = 0; pixel < plane_bytes; ++pixel) {
            for (std::size_t channel = 0; channel < 3; ++channel) {
                pixels[3 * pixel + channel] =
                    std::to_integer<unsigned char>(bytes[1 + channel * plane_bytes + pixel]);
            }
        }
    }

    std::string description() const override {
        return fmt::format("cifar10, {}", counted(count_, "image"));
    }

    void add_content(ContentHash& hash) const override {
        for (const DataFile& file : files_) {
            add_file(hash, file);
        }
    }

  private:
    static void expect_labels(const DataFile& file, int classes) {
        for (std::size_t place = 0; place < file.size(); place += record_bytes) {
            std::byte label{};
            file.read(place, std::span(&label, 1));
            if (std::to_integer<int>(label) >= classes) {
                refuse_file(place_in(file.path(), place),
                            fmt::format("label {} of image {}, expected 0 to {}",
                                        std::to_integer<int>(label),
                                        place / record_bytes,
                                        classes - 1),
                            "let the model end with 10 classes, or correct the file");
            }
        }
    }

    std::vector<DataFile> files_;
    std::vector<std::size_t> ends_;  ///< [file]: images in it and in those before it
    std::size_t all_ = 0;
    std::size_t first_ = 0;  ///< of the images that are read
    std::size_t count_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> open_cifar10(const ScenarioParts& scenario,
                                         const Model& model,
                                         DataUse use) {
    if (const ImageSize size = image_size_of(model, "cifar10"); size != cifar_size) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.kind"},
                    fmt::format("\"cifar10\" gives images of {} (rows, columns, channels), but the "
                                "model reads {}",
                                to_string(cifar_size),
                                to_string(size)),
                    "let it read image = [32, 32, 3]");
    }
    expect_targets(model, /*per_pixel=*/false, "cifar10");
    const bool is_test = reads_test_files(scenario, use);
    DataRange range = data_range(scenario, is_test ? DataUse::Training : use);
    if (is_test) {
        range.end = 1;
    }
    return image_batches(std::make_unique<Cifar10>(range, is_test, classes_of(model)),
                         {.size = cifar_size,
                          .use = use,
                          .seed = scenario.training.seed,
                          .changes = scenario.data.changes});
}

}  // namespace pipetwin::exec
