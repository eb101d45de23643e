// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "exec/data/batch.h"
#include "exec/data/data_check.h"
#include "exec/data/random_batch.h"
#include "tests/exec/data/image_files.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace image_data_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using tests::counting_image;
using tests::even_image;
using tests::pnm;
using tests::RawImage;

/// Tells images of this size apart by their means.
Model classifier(int height, int width, int channels, int classes) {
    return Model::chain(image_shape({height, width}, channels),
                        {{.type = LayerType::GlobalAvgPool},
                         {.type = LayerType::Sequence,
                          .inner = {{.type = LayerType::Linear, .outputs = classes},
                                    {.type = LayerType::CrossEntropy}}}});
}

/// Gives every pixel a class; with one class the loss is the binary one.
Model pixel_classifier(int height, int width, int channels, int classes) {
    return Model::chain(
        image_shape({height, width}, channels),
        {{.type = LayerType::Conv2d, .outputs = classes, .kernel = {1, 1}},
         {.type = classes == 1 ? LayerType::BinaryCrossEntropy : LayerType::CrossEntropy}});
}

std::string big_endian(std::uint32_t value) {
    std::string bytes;
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        bytes.push_back(static_cast<char>(value >> shift & 255U));
    }
    return bytes;
}

/// Bytes of a sample's values; the values have to be a 255th of whole numbers.
std::vector<int> bytes_of(const Batch& batch, int sample) {
    const std::size_t numbers =
        static_cast<std::size_t>(batch.positions) * static_cast<std::size_t>(batch.width);
    std::vector<int> bytes;
    for (const float value :
         std::span(batch.values).subspan(static_cast<std::size_t>(sample) * numbers, numbers)) {
        bytes.push_back(static_cast<int>(std::lround(value * 255.0F)));
        EXPECT_EQ(value, static_cast<float>(bytes.back()) / 255.0F);
    }
    return bytes;
}

std::vector<int> targets_of_sample(const Batch& batch, int sample) {
    const auto targets = static_cast<std::size_t>(batch.target_positions);
    const auto part =
        std::span(batch.targets).subspan(static_cast<std::size_t>(sample) * targets, targets);
    return {part.begin(), part.end()};
}

std::vector<int> as_ints(const std::vector<unsigned char>& bytes) {
    return {bytes.begin(), bytes.end()};
}

/// A folder of its own for each test.
class ImageData : public ::testing::Test {
  protected:
    ImageData() {
        described_.file = folder_ / "scenario.toml";
        described_.data.path = ".";
    }

    void write(const std::string& name, const std::string& bytes) const {
        fs::create_directories((folder_ / name).parent_path());
        folder_.write(name, bytes);
    }

    Scenario& scenario(DataKind kind) {
        described_.data.kind = kind;
        return described_;
    }

    /// The whole text of the Error that opening, and looking through all, throws.
    std::string refusal(const Scenario& scenario,
                        const Model& model,
                        DataUse use = DataUse::Training) const {
        try {
            const auto data = open_data(scenario, model, use);
            data->check([] { return true; });
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            return error.what();
        }
        return "accepted";
    }

    /// `count` images of 4 x 3 pixels whose first byte is their number, of the classes 0, 1,
    /// 0, 1...
    void write_idx(const std::string& part, int count) const {
        const auto number = static_cast<std::uint32_t>(count);
        std::string images = big_endian(0x803) + big_endian(number) + big_endian(4) + big_endian(3);
        std::string labels = big_endian(0x801) + big_endian(number);
        for (int i = 0; i < count; ++i) {
            const RawImage image = counting_image(4, 3, 1, i);
            images.append(image.bytes.begin(), image.bytes.end());
            labels.push_back(static_cast<char>(i % 2));
        }
        write(part + "-images-idx3-ubyte", images);
        write(part + "-labels-idx1-ubyte", labels);
    }

    tests::ScratchFolder folder_;
    Scenario described_;
};

// --- MNIST as images ---

TEST_F(ImageData, MnistFeedsAModelThatReadsImages) {
    write_idx("train", 6);
    const auto data = open_data(scenario(DataKind::Mnist), classifier(4, 3, 1, 2));
    const Batch batch = data->batch(0, 6);
    EXPECT_EQ(batch.positions, 12);
    EXPECT_EQ(batch.width, 1);
    EXPECT_EQ(batch.target_positions, 1);
    for (int sample = 0; sample < 6; ++sample) {
        const std::vector<int> bytes = bytes_of(batch, sample);
        const RawImage image = counting_image(4, 3, 1, bytes.front());
        EXPECT_EQ(bytes, as_ints(image.bytes));
        EXPECT_THAT(targets_of_sample(batch, sample), ElementsAre(bytes.front() % 2));
    }
    EXPECT_EQ(data->description(), "mnist, 6 images");
}

TEST_F(ImageData, EachImageComesOnceAnEpochInAnOrderOfItsOwn) {
    write_idx("train", 12);
    const auto data = open_data(scenario(DataKind::Mnist), classifier(4, 3, 1, 2));
    std::set<std::vector<int>> orders;
    for (int epoch = 0; epoch < 4; ++epoch) {
        std::vector<int> order;
        for (int step = 0; step < 3; ++step) {
            const Batch batch = data->batch(3 * epoch + step, 4);
            for (int sample = 0; sample < 4; ++sample) {
                order.push_back(bytes_of(batch, sample).front());
            }
        }
        orders.insert(order);
        std::ranges::sort(order);
        EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    }
    EXPECT_EQ(orders.size(), 4U);
}

TEST_F(ImageData, TheFilesForTestsAreForValidationWhereNothingElseIsNamed) {
    write_idx("train", 10);
    write_idx("t10k", 4);
    const Model model = classifier(4, 3, 1, 2);
    const auto held_out = open_data(scenario(DataKind::Mnist), model, DataUse::Validation);
    EXPECT_EQ(held_out->description(), "mnist, 4 images");
    EXPECT_EQ(open_data(described_, model)->description(), "mnist, 10 images");
    // The same batches each time hold all images of the files, once.
    std::vector<int> seen;
    for (int sample = 0; sample < 4; ++sample) {
        seen.push_back(bytes_of(held_out->batch(0, 4), sample).front());
    }
    std::ranges::sort(seen);
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3));
    // So it is for a model that reads one row of numbers.
    EXPECT_EQ(open_data(described_, mlp_model({12, 2}), DataUse::Validation)->description(),
              "mnist, 4 images");

    described_.data.validation_share = 0.2;
    EXPECT_EQ(open_data(described_, model, DataUse::Validation)->description(), "mnist, 2 images");
    EXPECT_EQ(open_data(described_, model)->description(), "mnist, 8 images");

    described_.data.validation_share = 0;
    fs::remove(folder_ / "t10k-images-idx3-ubyte");
    EXPECT_THAT(refusal(described_, model, DataUse::Validation),
                AllOf(HasSubstr("neither t10k-images-idx3-ubyte nor t10k-images-idx3-ubyte.gz"),
                      HasSubstr("or set data.validation = 0.1")));
}

TEST_F(ImageData, ImagesOfAnotherShapeThanTheModelReadsAreRefused) {
    write_idx("train", 3);
    EXPECT_THAT(refusal(scenario(DataKind::Mnist), classifier(3, 4, 1, 2)),
                HasSubstr("images of 4 x 3 pixels in 1 channel, but the model reads 3 x 4 x 1"));
    EXPECT_THAT(refusal(described_, classifier(4, 3, 3, 2)), HasSubstr("reads 4 x 3 x 3"));
    EXPECT_THAT(refusal(described_, pixel_classifier(4, 3, 1, 2)),
                HasSubstr("\"mnist\" gives one class for an image, but the model's loss reads 12"));
    EXPECT_THAT(refusal(described_, classifier(4, 3, 1, 1)),
                HasSubstr("label 1 of image 1, expected 0 to 0"));
}

// --- CIFAR-10 ---

/// A record whose red, green and blue planes begin with these values and count up.
std::string cifar_record(int label, int red, int green, int blue) {
    std::string record(1, static_cast<char>(label));
    for (const int first : {red, green, blue}) {
        for (int i = 0; i < 32 * 32; ++i) {
            record.push_back(static_cast<char>((first + i) % 256));
        }
    }
    return record;
}

class Cifar : public ImageData {
  protected:
    /// Ten images in five files; the first red value is the number of the image, its class, too.
    void write_all() const {
        for (int file = 0; file < 5; ++file) {
            const int first = 2 * file;
            write(fmt::format("data_batch_{}.bin", file + 1),
                  cifar_record(first, first, 100, 200) +
                      cifar_record(first + 1, first + 1, 100, 200));
        }
        write("test_batch.bin", cifar_record(7, 70, 71, 72));
    }
};

TEST_F(Cifar, PlanesBecomeChannelsBesideEachOther) {
    write_all();
    const auto data = open_data(scenario(DataKind::Cifar10), classifier(32, 32, 3, 10));
    EXPECT_EQ(data->description(), "cifar10, 10 images");
    const Batch batch = data->batch(0, 10);
    EXPECT_EQ(batch.positions, 1024);
    EXPECT_EQ(batch.width, 3);
    std::set<int> seen;
    for (int sample = 0; sample < 10; ++sample) {
        const std::vector<int> bytes = bytes_of(batch, sample);
        const int number = bytes.front();
        seen.insert(number);
        EXPECT_THAT(targets_of_sample(batch, sample), ElementsAre(number));
        for (int i = 0; i < 1024; ++i) {
            const auto pixel = std::span(bytes).subspan(static_cast<std::size_t>(3 * i), 3);
            EXPECT_THAT(pixel, ElementsAre((number + i) % 256, (100 + i) % 256, (200 + i) % 256));
        }
    }
    EXPECT_EQ(seen.size(), 10U);
    const auto held_out = open_data(described_, classifier(32, 32, 3, 10), DataUse::Validation);
    EXPECT_THAT(held_out->batch(0, 2).targets, ElementsAre(7, 7));
}

TEST_F(Cifar, RefusalsNameTheFileWhatWasFoundAndWhatWasExpected) {
    write_all();
    const Model model = classifier(32, 32, 3, 10);
    EXPECT_THAT(refusal(scenario(DataKind::Cifar10), classifier(28, 28, 1, 10)),
                HasSubstr("gives images of 32 x 32 x 3 (rows, columns, channels), but the model "
                          "reads 28 x 28 x 1"));
    EXPECT_THAT(refusal(described_, mlp_model({3072, 10})),
                HasSubstr("\"cifar10\" gives images, but the model reads 1 x 3072"));
    write("data_batch_3.bin", cifar_record(1, 0, 0, 0) + "x");
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("data_batch_3.bin: 3074 bytes, expected records of 3073 bytes each"));
    write("data_batch_3.bin", cifar_record(1, 0, 0, 0) + cifar_record(10, 0, 0, 0));
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("data_batch_3.bin: byte 3073: label 10 of image 1, expected 0 to 9"));
    fs::remove(folder_ / "data_batch_3.bin");
    EXPECT_THAT(refusal(described_, model), HasSubstr("data_batch_3.bin is not in this folder"));
    fs::remove(folder_ / "test_batch.bin");
    EXPECT_THAT(refusal(described_, model, DataUse::Validation),
                HasSubstr("test_batch.bin is not in this folder"));
}

// --- What becomes of images ---

TEST_F(ImageData, MeanAndDeviationAreOfEachChannel) {
    write("x/a.ppm",
          pnm({.height = 1, .width = 2, .channels = 3, .bytes = {0, 51, 255, 255, 0, 102}}));
    Scenario& described = scenario(DataKind::Images);
    described.data.changes.mean = {0.5, 0.2, 0};
    described.data.changes.deviation = {0.5, 0.25, 2};
    const Batch batch = open_data(described, classifier(1, 2, 3, 1))->batch(0, 1);
    ASSERT_EQ(batch.values.size(), 6U);
    const std::vector<double> expected{-1, 0, 0.5, 1, -0.8, 0.2};
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(batch.values[i], expected[i], 1e-6) << i;
    }
    described.data.changes.mean = {0.5, 0.2};
    EXPECT_THAT(refusal(described, classifier(1, 2, 3, 1)),
                HasSubstr("data.mean: 2 numbers, expected 3: one for each channel"));
}

/// The window of an image behind a margin of zeros that begins at (top, left), mirrored or not.
std::vector<int> window_of(const RawImage& image, int margin, int top, int left, bool mirrored) {
    const int wide = image.width + 2 * margin;
    const int high = image.height + 2 * margin;
    std::vector<int> padded(static_cast<std::size_t>(wide * high * image.channels), 0);
    const auto place = [&](int row, int column, int channel, int width) {
        return static_cast<std::size_t>((row * width + column) * image.channels + channel);
    };
    for (int row = 0; row < image.height; ++row) {
        for (int column = 0; column < image.width; ++column) {
            for (int channel = 0; channel < image.channels; ++channel) {
                padded[place(row + margin, column + margin, channel, wide)] =
                    image.bytes[place(row, column, channel, image.width)];
            }
        }
    }
    std::vector<int> window;
    for (int row = 0; row < image.height; ++row) {
        for (int column = 0; column < image.width; ++column) {
            const int from = mirrored ? image.width - 1 - column : column;
            for (int channel = 0; channel < image.channels; ++channel) {
                window.push_back(padded[place(top + row, left + from, channel, wide)]);
            }
        }
    }
    return window;
}

TEST_F(ImageData, ACropIsAWindowOfThePaddedImageAndAllOfThemCome) {
    const RawImage image = counting_image(3, 4, 3, 1);
    write("x/a.ppm", pnm(image));
    Scenario& described = scenario(DataKind::Images);
    described.data.changes.pad_and_crop = 2;
    described.data.changes.mirror = true;
    const auto data = open_data(described, classifier(3, 4, 3, 1));
    std::map<std::vector<int>, int> windows;
    for (int top = 0; top <= 4; ++top) {
        for (int left = 0; left <= 4; ++left) {
            for (const bool mirrored : {false, true}) {
                windows[window_of(image, 2, top, left, mirrored)] = 0;
            }
        }
    }
    ASSERT_EQ(windows.size(), 50U);
    constexpr int samples = 2000;
    const Batch batch = data->batch(0, samples);
    for (int sample = 0; sample < samples; ++sample) {
        const auto found = windows.find(bytes_of(batch, sample));
        ASSERT_NE(found, windows.end()) << sample;
        ++found->second;
    }
    for (const auto& [window, count] : windows) {
        // 40 on average, of a deviation of 6.3.
        EXPECT_GT(count, 10);
        EXPECT_LT(count, 75);
    }
    EXPECT_EQ(data->description(),
              "images, 1 file of 1 class, cropped behind a margin of 2, mirrored");
}

TEST_F(ImageData, WhatIsDrawnDependsOnSeedStepAndSampleAlone) {
    for (int i = 0; i < 5; ++i) {
        write(fmt::format("x/{}.pgm", i), pnm(counting_image(5, 5, 1, 10 * i)));
    }
    Scenario& described = scenario(DataKind::Images);
    described.data.changes = {.noise = 0.5, .pad_and_crop = 2, .mirror = true};
    const Model model = classifier(5, 5, 1, 1);
    const auto data = open_data(described, model);
    std::vector<Batch> in_order;
    for (int step = 0; step < 6; ++step) {
        in_order.push_back(data->batch(step, 4));
    }
    // As a resumed run, or another process, draws them.
    const auto again = open_data(described, model);
    for (const int step : {5, 0, 3, 3, 1}) {
        EXPECT_EQ(again->batch(step, 4).values, in_order[static_cast<std::size_t>(step)].values);
    }
    EXPECT_NE(in_order[0].values, in_order[1].values);
    described.training.seed = 2;
    EXPECT_NE(open_data(described, model)->batch(0, 4).values, in_order[0].values);
}

TEST_F(ImageData, ValidationIsNeitherCroppedNorMirrored) {
    const RawImage image = counting_image(4, 4, 1, 1);
    write("train/x/a.pgm", pnm(image));
    write("other/x/a.pgm", pnm(image));
    Scenario& described = scenario(DataKind::Images);
    described.data.path = "train";
    described.data.validation_path = "other";
    described.data.changes = {.pad_and_crop = 2, .mirror = true};
    const Batch batch =
        open_data(described, classifier(4, 4, 1, 1), DataUse::Validation)->batch(0, 20);
    for (int sample = 0; sample < 20; ++sample) {
        EXPECT_EQ(bytes_of(batch, sample), as_ints(image.bytes));
    }
}

TEST_F(ImageData, NoiseIsNormalOfItsDeviationAndOtherInValidation) {
    write("train/x/a.pgm", pnm(even_image(32, 32, 1, 51)));
    write("other/x/a.pgm", pnm(even_image(32, 32, 1, 51)));
    Scenario& described = scenario(DataKind::Images);
    described.data.path = "train";
    described.data.validation_path = "other";
    described.data.changes.noise = 0.5;
    const Model model = classifier(32, 32, 1, 1);
    const Batch batch = open_data(described, model)->batch(0, 16);
    double sum = 0;
    double squares = 0;
    for (const float value : batch.values) {
        const double noise = static_cast<double>(value) - 0.2;
        sum += noise;
        squares += noise * noise;
    }
    // 16384 numbers: the mean's deviation is 0.004, that of the deviation 0.003.
    EXPECT_NEAR(sum / 16384, 0, 0.016);
    EXPECT_NEAR(std::sqrt(squares / 16384), 0.5, 0.012);
    const auto held_out = open_data(described, model, DataUse::Validation);
    EXPECT_NE(held_out->batch(0, 16).values, batch.values);
    EXPECT_EQ(held_out->batch(0, 16).values, held_out->batch(0, 16).values);
}

// --- Folders of images ---

class Folders : public ImageData {
  protected:
    /// Classes B, a and c of 1, 2 and 3 grey images of 2 x 2 pixels, of the values 10, 20, 21, ...
    void write_classes(const std::string& under = "") const {
        int first = 10;
        int images = 1;
        for (const char* const name : {"B", "a", "c"}) {
            for (int i = 0; i < images; ++i) {
                write(fmt::format("{}{}/{}.pgm", under, name, i),
                      pnm(even_image(2, 2, 1, first + i)));
            }
            first += 10;
            ++images;
        }
    }

    std::set<std::pair<int, int>> seen(const DataSource& data, int samples) const {
        const Batch batch = data.batch(0, samples);
        std::set<std::pair<int, int>> pairs;
        for (int sample = 0; sample < samples; ++sample) {
            pairs.emplace(batch.targets[static_cast<std::size_t>(sample)],
                          bytes_of(batch, sample).front());
        }
        return pairs;
    }

    using Pairs = std::set<std::pair<int, int>>;
};

TEST_F(Folders, AClassIsThePlaceOfItsFolderInByteOrder) {
    write_classes();
    write("classes.txt", "beside the folders");
    write(".hidden/x.pgm", "no image");
    write("a/.hidden", "no image");
    fs::create_symlink(folder_ / "a" / "0.pgm", folder_ / "a" / "9.pgm");
    const auto data = open_data(scenario(DataKind::Images), classifier(2, 2, 1, 3));
    EXPECT_EQ(data->description(), "images, 6 files of 3 classes");
    EXPECT_EQ(seen(*data, 6), (Pairs{{0, 10}, {1, 20}, {1, 21}, {2, 30}, {2, 31}, {2, 32}}));
}

/// Images of a class lie together, so that the end of all would be the last class alone.
TEST_F(Folders, AShareForValidationIsTheEndOfEachClass) {
    for (int i = 0; i < 4; ++i) {
        write(fmt::format("x/{}.pgm", i), pnm(even_image(2, 2, 1, 10 + i)));
        write(fmt::format("y/{}.pgm", i), pnm(even_image(2, 2, 1, 20 + i)));
    }
    Scenario& described = scenario(DataKind::Images);
    described.data.validation_share = 0.25;
    const Model model = classifier(2, 2, 1, 2);
    EXPECT_EQ(seen(*open_data(described, model, DataUse::Validation), 2),
              (Pairs{{0, 13}, {1, 23}}));
    EXPECT_EQ(seen(*open_data(described, model), 6),
              (Pairs{{0, 10}, {0, 11}, {0, 12}, {1, 20}, {1, 21}, {1, 22}}));
}

TEST_F(Folders, ValidationOfItsOwnHasTheSameClasses) {
    write_classes("train/");
    write_classes("other/");
    Scenario& described = scenario(DataKind::Images);
    described.data.path = "train";
    described.data.validation_path = "other";
    const Model model = classifier(2, 2, 1, 3);
    EXPECT_EQ(refusal(described, model, DataUse::Validation), "accepted");
    fs::rename(folder_ / "other" / "a", folder_ / "other" / "b");
    EXPECT_THAT(
        refusal(described, model, DataUse::Validation),
        HasSubstr("other: the class \"b\" where the training has \"a\", expected folders of the"));
    fs::remove_all(folder_ / "other" / "c");
    fs::rename(folder_ / "other" / "b", folder_ / "other" / "a");
    EXPECT_THAT(refusal(described, model, DataUse::Validation),
                HasSubstr("no class where the training has \"c\""));
}

TEST_F(Folders, RefusalsNameTheFileWhatWasFoundAndWhatWasExpected) {
    write_classes();
    const Model model = classifier(2, 2, 1, 3);
    EXPECT_THAT(refusal(scenario(DataKind::Images), classifier(2, 2, 1, 2)),
                HasSubstr("3 folders for classes, but the model tells 2 apart"));
    EXPECT_THAT(refusal(described_, classifier(2, 2, 1, 4)), HasSubstr("tells 4 apart"));
    EXPECT_THAT(refusal(described_, pixel_classifier(2, 2, 1, 3)),
                HasSubstr("\"images\" gives one class for an image"));
    write("a/2.pgm", pnm(even_image(3, 2, 1, 0)));
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("a/2.pgm: an image of 3 x 2 x 1 (rows, columns, channels), expected 2 x "
                          "2 x 1, which the model reads"));
    write("a/2.pgm", "hello");
    EXPECT_THAT(refusal(described_, model), HasSubstr("a/2.pgm: no image by its first bytes"));
    write("a/2.pgm", pnm(even_image(2, 2, 1, 0)) + "more");
    EXPECT_THAT(refusal(described_, model), HasSubstr("a/2.pgm: 19 bytes, expected 15"));
    fs::remove(folder_ / "a" / "2.pgm");
    fs::remove(folder_ / "B" / "0.pgm");
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("B: a class without images, expected at least one"));
    described_.data.path = "nowhere";
    EXPECT_THAT(refusal(described_, model), HasSubstr("nowhere: there is no such folder"));
}

/// One of them would be an image fewer in silence. A device can only be made by the system's owner.
TEST_F(Folders, WhatIsNoFileAmongTheImagesIsRefused) {
    write_classes();
    const Model model = classifier(2, 2, 1, 3);
    const fs::path fifo = folder_ / "a" / "7.pgm";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_THAT(refusal(scenario(DataKind::Images), model),
                HasSubstr("a/7.pgm: a FIFO among the files of a folder, expected regular files"));
    fs::remove(fifo);
    ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
    EXPECT_THAT(refusal(described_, model), HasSubstr("fifo: a FIFO among the files"));
    fs::remove(folder_ / "fifo");
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const std::string socket_file = (folder_ / "a" / "8.pgm").string();
    ASSERT_LT(socket_file.size(), sizeof address.sun_path);
    socket_file.copy(address.sun_path, socket_file.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_THAT(refusal(described_, model), HasSubstr("a/8.pgm: a socket among the files"));
    ::close(socket);
    fs::remove(socket_file);
    ASSERT_EQ(::mkfifo((folder_ / "a" / ".hidden").c_str(), 0600), 0);
    EXPECT_EQ(open_data(described_, model)->description(), "images, 6 files of 3 classes");
}

/// What a small folder holds is looked at before the first step, that of a large one beside it.
TEST_F(Folders, DamagedImagesAreFoundBeforeTheFirstStep) {
    write_classes();
    write("a/2.pgm", pnm(even_image(2, 2, 1, 0)) + "more");
    EXPECT_NO_THROW(open_data(scenario(DataKind::Images), classifier(2, 2, 1, 3)));
    EXPECT_THROW(DataCheck(described_, classifier(2, 2, 1, 3)), Error);
}

TEST_F(Folders, ContentIsEveryByteOfEveryFile) {
    write_classes();
    const auto content = [&] {
        ContentHash hash;
        open_data(scenario(DataKind::Images), classifier(2, 2, 1, 3))->add_content(hash);
        return hash.digits();
    };
    const std::string first = content();
    EXPECT_EQ(content(), first);
    write("c/2.pgm", pnm(even_image(2, 2, 1, 99)));
    EXPECT_NE(content(), first);
}

// --- A class for each pixel ---

class Masks : public ImageData {
  protected:
    void write_pair(const std::string& name, const RawImage& image, const RawImage& mask) const {
        write("images/" + name + ".ppm", pnm(image));
        write("masks/" + name + ".pgm", pnm(mask));
    }
};

TEST_F(Masks, TheValueOfAMaskIsTheClassOfThePixel) {
    write_pair("a", counting_image(2, 2, 3), {.height = 2, .width = 2, .bytes = {0, 1, 2, 1}});
    const auto data = open_data(scenario(DataKind::Segmentation), pixel_classifier(2, 2, 3, 3));
    const Batch batch = data->batch(0, 1);
    EXPECT_EQ(batch.target_positions, 4);
    EXPECT_THAT(batch.targets, ElementsAre(0, 1, 2, 1));
    EXPECT_THAT(bytes_of(batch, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    EXPECT_EQ(data->description(), "segmentation, 1 image with masks");
}

TEST_F(Masks, WhiteIsTheSecondOfTwoClasses) {
    write_pair("a", counting_image(1, 3, 3), {.height = 1, .width = 3, .bytes = {0, 255, 1}});
    for (const int classes : {1, 2}) {  // 1: the binary loss
        const auto data =
            open_data(scenario(DataKind::Segmentation), pixel_classifier(1, 3, 3, classes));
        EXPECT_THAT(data->batch(0, 1).targets, ElementsAre(0, 1, 1));
    }
}

/// The image's pixels are the mask's classes, so that both have to move alike.
TEST_F(Masks, AreCroppedAndMirroredAsTheirImages) {
    RawImage image = counting_image(4, 5, 1, 1);
    write("images/a.pgm", pnm(image));
    write("masks/a.pgm", pnm(image));
    Scenario& described = scenario(DataKind::Segmentation);
    described.data.changes = {.pad_and_crop = 2, .mirror = true};
    const auto data = open_data(described, pixel_classifier(4, 5, 1, 30));
    const Batch batch = data->batch(0, 50);
    std::set<std::vector<int>> others;
    for (int sample = 0; sample < 50; ++sample) {
        EXPECT_EQ(targets_of_sample(batch, sample), bytes_of(batch, sample));
        others.insert(targets_of_sample(batch, sample));
    }
    EXPECT_GT(others.size(), 20U);
}

TEST_F(Masks, RefusalsNameTheFileWhatWasFoundAndWhatWasExpected) {
    const RawImage mask{.height = 2, .width = 2, .bytes = {0, 1, 2, 3}};
    write_pair("a", counting_image(2, 2, 3), mask);
    write_pair("b", counting_image(2, 2, 3), mask);
    EXPECT_THAT(refusal(scenario(DataKind::Segmentation), pixel_classifier(2, 2, 3, 3)),
                HasSubstr("masks/a.pgm: value 3 at row 1, column 1, expected 0 to 2"));
    const Model model = pixel_classifier(2, 2, 3, 4);
    EXPECT_EQ(refusal(described_, model), "accepted");
    EXPECT_THAT(refusal(described_, classifier(2, 2, 3, 4)),
                HasSubstr("\"segmentation\" gives a class for each pixel, but the model's loss "
                          "reads 1 position"));
    write("images/c.ppm", pnm(counting_image(2, 2, 3)));
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("images/c.ppm: an image without a mask, expected masks/c.png"));
    write("masks/c.pgm", pnm(mask));
    write("masks/aa.pgm", pnm(mask));
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("masks/aa.pgm: a mask without an image of this name in images"));
    fs::remove(folder_ / "masks" / "aa.pgm");
    write("masks/c.png", "twice");
    EXPECT_THAT(refusal(described_, model), HasSubstr("c.pgm and c.png, expected one file"));
    fs::remove(folder_ / "masks" / "c.png");
    write("masks/c.pgm", pnm(even_image(2, 3, 1, 0)));
    EXPECT_THAT(refusal(described_, model),
                HasSubstr("masks/c.pgm: a mask of 2 x 3 pixels, expected 2 x 2"));
    fs::remove_all(folder_ / "masks");
    EXPECT_THAT(refusal(described_, model), HasSubstr("masks: there is no such folder"));
}

// --- Silhouettes ---

TEST_F(ImageData, ASilhouetteIsWhereTheImageIsAboveZero) {
    std::string images = big_endian(0x803) + big_endian(1) + big_endian(2) + big_endian(2);
    images += std::string{9, 0, 0, 1};
    write("train-images-idx3-ubyte", images);
    const auto data = open_data(scenario(DataKind::Silhouettes), pixel_classifier(4, 5, 1, 2));
    const Batch batch = data->batch(0, 1);
    EXPECT_THAT(bytes_of(batch, 0), ElementsAreArray({0, 0, 0, 0, 0,  //
                                                      0, 9, 0, 0, 0,  //
                                                      0, 0, 1, 0, 0,  //
                                                      0, 0, 0, 0, 0}));
    EXPECT_THAT(batch.targets, ElementsAreArray({0, 0, 0, 0, 0,  //
                                                 0, 1, 0, 0, 0,  //
                                                 0, 0, 1, 0, 0,  //
                                                 0, 0, 0, 0, 0}));
    EXPECT_THAT(refusal(described_, pixel_classifier(1, 5, 1, 2)),
                HasSubstr("images of 2 x 2 pixels, but the model reads 1 x 5 x 1"));
    EXPECT_THAT(refusal(described_, classifier(4, 5, 1, 2)),
                HasSubstr("\"silhouettes\" gives a class for each pixel"));
}

// --- Debian's package dataset-fashion-mnist ---

class Fashion : public ImageData {
  protected:
    void SetUp() override {
        const fs::path folder = "/usr/share/datasets/fashion-mnist";
        if (!fs::exists(folder)) {
            GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
        }
        described_.data.path = folder;
    }
};

/// 6,000 training images and 1,000 test images of each of ten classes; mean 0.2860 and deviation
/// 0.3530 of the training images are known from where the data are used.
TEST_F(Fashion, HasItsPublishedCountsMeanAndDeviation) {
    const Model model = classifier(28, 28, 1, 10);
    const auto data = open_data(scenario(DataKind::Mnist), model);
    EXPECT_EQ(data->description(), "mnist, 60000 images");
    const Batch all = data->batch(0, 60000);
    std::map<int, int> counts;
    for (const int target : all.targets) {
        ++counts[target];
    }
    EXPECT_EQ(counts.size(), 10U);
    for (const auto& [target, count] : counts) {
        EXPECT_EQ(count, 6000);
    }
    double sum = 0;
    double squares = 0;
    for (const float value : all.values) {
        sum += static_cast<double>(value);
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double mean = sum / static_cast<double>(all.values.size());
    EXPECT_NEAR(mean, 0.2860, 5e-5);
    EXPECT_NEAR(
        std::sqrt(squares / static_cast<double>(all.values.size()) - mean * mean), 0.3530, 5e-5);
    const auto held_out = open_data(described_, model, DataUse::Validation);
    EXPECT_EQ(held_out->description(), "mnist, 10000 images");
}

TEST_F(Fashion, GivesSilhouettesOf32Pixels) {
    const auto data = open_data(scenario(DataKind::Silhouettes), pixel_classifier(32, 32, 1, 1));
    const Batch batch = data->batch(0, 100);
    const double above = std::accumulate(batch.targets.begin(), batch.targets.end(), 0.0);
    // About half of the pixels of an image are above 0.
    EXPECT_GT(above / static_cast<double>(batch.targets.size()), 0.2);
    EXPECT_LT(above / static_cast<double>(batch.targets.size()), 0.6);
}

// --- Made from the seed ---

TEST_F(ImageData, SyntheticAndRandomBatchesHaveTheTargetsOfTheModel) {
    for (const Model& model : {classifier(4, 3, 2, 5), pixel_classifier(4, 3, 2, 5)}) {
        const int targets = model.layer(0).spec.type == LayerType::Conv2d ? 12 : 1;
        const Batch synthetic = open_data(scenario(DataKind::Synthetic), model)->batch(0, 7);
        const Batch random = random_batch(model, 7, 1);
        for (const Batch* batch : {&synthetic, &random}) {
            EXPECT_EQ(batch->positions, 12);
            EXPECT_EQ(batch->width, 2);
            EXPECT_EQ(batch->values.size(), 7U * 12 * 2);
            EXPECT_EQ(batch->target_positions, targets);
            EXPECT_EQ(batch->targets.size(), 7U * static_cast<std::size_t>(targets));
            EXPECT_THAT(batch->targets, Each(AllOf(::testing::Ge(0), ::testing::Lt(5))));
        }
    }
}

}  // namespace image_data_test
}  // namespace pipetwin::exec
