// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "exec/base/random.h"
#include "exec/data/batch.h"
#include "exec/data/data_check.h"
#include "exec/data/shuffle.h"
#include "exec/data/token_limit.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace data_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A folder of its own for each test.
class Data : public ::testing::Test {
  protected:
    void write(const std::string& name, const std::string& bytes) const {
        folder_.write(name, bytes);
    }

    Scenario scenario(DataKind kind, const std::string& path) const {
        Scenario scenario;
        scenario.file = folder_ / "scenario.toml";
        scenario.data.kind = kind;
        scenario.data.path = path;
        return scenario;
    }

    tests::ScratchFolder folder_;
};

Model small_gpt(int context, int vocabulary = 256) {
    return gpt_model({.layers = 1,
                      .d_model = 4,
                      .heads = 1,
                      .context = context,
                      .vocabulary = vocabulary,
                      .feed_forward = 4});
}

/// The numbers as bytes, little-endian, of so many bytes each.
std::string bytes_of(const std::vector<std::uint32_t>& numbers, int width) {
    std::string bytes;
    for (const std::uint32_t number : numbers) {
        for (int byte = 0; byte < width; ++byte) {
            bytes += static_cast<char>(number >> (8 * byte) & 0xFFU);
        }
    }
    return bytes;
}

/// llm.c's: 256 numbers of which three are used.
std::string header(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
    std::vector<std::uint32_t> numbers(256);
    numbers[0] = magic;
    numbers[1] = version;
    numbers[2] = count;
    return bytes_of(numbers, 4);
}

std::vector<std::uint32_t> counting(std::uint32_t begin, std::uint32_t end) {
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t number = begin; number < end; ++number) {
        numbers.push_back(number);
    }
    return numbers;
}

/// The text of the Error that opening throws, with its place and hint.
std::string refusal_of_validation(const Scenario& scenario, const Model& model) {
    try {
        open_data(scenario, model, DataUse::Validation);
    } catch (const Error& error) {
        return error.place() + ": " + error.text();
    }
    return "";
}

std::string refusal(const Scenario& scenario, const Model& model) {
    try {
        open_data(scenario, model);
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        return error.what();
    }
    return "accepted";
}

using Text = Data;

TEST_F(Text, TargetsAreTheInputsShiftedByOne) {
    write("text", "abcdefghijklmnopqrstuvwxyz");
    const auto data = open_data(scenario(DataKind::Text, "text"), small_gpt(5));
    const Batch batch = data->batch(0, 6);
    ASSERT_EQ(batch.tokens.size(), 30U);
    ASSERT_EQ(batch.targets.size(), 30U);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
        EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    }
    EXPECT_EQ(data->description(), "text, 26 bytes in 1 file");
}

TEST_F(Text, ReachesEveryPlaceOfAShortText) {
    write("text", "abcdefgh");
    const auto data = open_data(scenario(DataKind::Text, "text"), small_gpt(3));
    std::set<int> starts;
    for (int step = 0; step < 20; ++step) {
        const Batch batch = data->batch(step, 8);
        for (std::size_t s = 0; s < 8; ++s) {
            starts.insert(batch.tokens[3 * s]);
        }
    }
    EXPECT_THAT(starts, ElementsAre('a', 'b', 'c', 'd', 'e'));
}

TEST_F(Text, ABatchDependsOnSeedAndStepAlone) {
    write("text", std::string(1000, 'x') + "the end");
    Scenario described = scenario(DataKind::Text, "text");
    for (int i = 0; i < 1000; ++i) {
        std::ofstream(folder_ / "text", std::ios::app) << i;
    }
    const auto data = open_data(described, small_gpt(7));
    const Batch third = data->batch(3, 4);
    data->batch(9, 2);
    EXPECT_EQ(data->batch(3, 4).tokens, third.tokens);
    EXPECT_NE(data->batch(4, 4).tokens, third.tokens);
    described.training.seed = 2;
    EXPECT_NE(open_data(described, small_gpt(7))->batch(3, 4).tokens, third.tokens);
}

TEST_F(Text, AFolderIsItsRegularFilesInByteOrderOfTheirNamesWithoutLinks) {
    fs::create_directories(folder_ / "texts" / "deeper");
    write("texts/b", "34");
    write("texts/B", "12");
    write("texts/deeper/c", "never");
    write("elsewhere", "never");
    fs::create_symlink(folder_ / "elsewhere", folder_ / "texts" / "a");
    const auto data = open_data(scenario(DataKind::Text, "texts"), small_gpt(3));
    const Batch batch = data->batch(0, 1);
    EXPECT_THAT(batch.tokens, ElementsAre('1', '2', '3'));
    EXPECT_THAT(batch.targets, ElementsAre('2', '3', '4'));
    EXPECT_EQ(data->description(), "text, 4 bytes in 2 files");
}

/// Processes agree on all of it, whatever the first batches are.
TEST_F(Data, ContentIsEveryByteOfEveryFile) {
    const auto content = [this](DataKind kind, const std::string& path, int vocabulary) {
        ContentHash hash;
        open_data(scenario(kind, path), small_gpt(3, vocabulary))->add_content(hash);
        return hash.digits();
    };
    fs::create_directories(folder_ / "texts");
    write("texts/a", std::string(100'000, 'a'));
    write("texts/b", std::string(100'000, 'b') + "x");
    const std::string text = content(DataKind::Text, "texts", 256);
    EXPECT_EQ(content(DataKind::Text, "texts", 256), text);
    write("texts/b", std::string(100'000, 'b') + "y");
    EXPECT_NE(content(DataKind::Text, "texts", 256), text);

    const std::string numbers = bytes_of(std::vector<std::uint32_t>(1000, 7), 2);
    const std::string head = header(20240520, 1, 1001);
    write("tokens", head + numbers + bytes_of({7}, 2));
    const std::string tokens = content(DataKind::Tokens, "tokens", 100);
    write("tokens", head + numbers + bytes_of({8}, 2));
    EXPECT_NE(content(DataKind::Tokens, "tokens", 100), tokens);
}

TEST_F(Text, ReadsBytesAboveAsciiAsTokens) {
    write("text", "\xff\xfe\x80\x01");
    const auto data = open_data(scenario(DataKind::Text, "text"), small_gpt(3));
    EXPECT_THAT(data->batch(0, 1).tokens, ElementsAre(255, 254, 128));
}

TEST_F(Text, RefusalsNamePathWhatWasFoundAndWhatWasExpected) {
    EXPECT_THAT(
        refusal(scenario(DataKind::Text, "nowhere"), small_gpt(3)),
        HasSubstr("nowhere: there is no such file or folder, expected a file or a folder of them"));
    write("short", "abc");
    EXPECT_THAT(refusal(scenario(DataKind::Text, "short"), small_gpt(3)),
                HasSubstr("short: 3 bytes, expected more than the context of 3"));
    EXPECT_THAT(refusal(scenario(DataKind::Text, "/dev/null"), small_gpt(3)),
                HasSubstr("neither a regular file nor a folder"));
    EXPECT_THAT(refusal(scenario(DataKind::Text, "short"), small_gpt(3, 255)),
                HasSubstr("model.vocabulary: 255, expected at least 256"));
    EXPECT_THAT(refusal(scenario(DataKind::Text, "short"), mlp_model({4, 2})),
                HasSubstr("\"text\" gives token ids"));
}

std::string big_endian(std::uint32_t value) {
    std::string bytes;
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        bytes.push_back(static_cast<char>(value >> shift & 255U));
    }
    return bytes;
}

/// Three images of 2 x 2 pixels: 0..3, 4..7, 8..11; labels 2, 0, 1.
std::string small_images() {
    std::string bytes = big_endian(0x803) + big_endian(3) + big_endian(2) + big_endian(2);
    for (char pixel = 0; pixel < 12; ++pixel) {
        bytes.push_back(pixel);
    }
    return bytes;
}
std::string small_labels() {
    return big_endian(0x801) + big_endian(3) + std::string{2, 0, 1};
}

class Mnist : public Data {
  protected:
    void write_both(const std::string& images, const std::string& labels) const {
        write("train-images-idx3-ubyte", images);
        write("train-labels-idx1-ubyte", labels);
    }
    void write_gzipped(const std::string& name, const std::string& bytes) const {
        const gzFile file = gzopen((folder_ / name).c_str(), "wb");
        gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
        gzclose(file);
    }
    std::string refusal_of(const std::string& images, const std::string& labels) const {
        write_both(images, labels);
        return refusal(scenario(DataKind::Mnist, "."), mlp_model({4, 3}));
    }
};

void expect_small_mnist(const DataSource& data) {
    const Batch batch = data.batch(0, 20);
    ASSERT_EQ(batch.values.size(), 80U);
    EXPECT_EQ(batch.width, 4);
    std::set<int> seen;
    for (std::size_t s = 0; s < 20; ++s) {
        const int label = batch.targets[s];
        const int first_pixel = label == 2 ? 0 : label == 0 ? 4 : 8;
        EXPECT_FLOAT_EQ(batch.values[4 * s], static_cast<float>(first_pixel) / 255.0F);
        EXPECT_FLOAT_EQ(batch.values[4 * s + 3], static_cast<float>(first_pixel + 3) / 255.0F);
        seen.insert(label);
    }
    EXPECT_EQ(seen.size(), 3U);
    EXPECT_EQ(data.description(), "mnist, 3 images");
}

TEST_F(Mnist, PairsImagesWithTheirLabels) {
    write_both(small_images(), small_labels());
    expect_small_mnist(*open_data(scenario(DataKind::Mnist, "."), mlp_model({4, 3})));
}

TEST_F(Mnist, ReadsGzippedFilesAsWell) {
    write_gzipped("train-images-idx3-ubyte.gz", small_images());
    write_gzipped("train-labels-idx1-ubyte.gz", small_labels());
    expect_small_mnist(*open_data(scenario(DataKind::Mnist, "."), mlp_model({4, 3})));
}

TEST_F(Mnist, RefusalsNameFileWhatWasFoundAndWhatWasExpected) {
    const Model model = mlp_model({4, 3});
    EXPECT_THAT(refusal(scenario(DataKind::Mnist, "."), model),
                HasSubstr("neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz"));
    EXPECT_THAT(refusal_of(small_labels(), small_labels()),
                HasSubstr("train-images-idx3-ubyte: begins with 0x00000801, expected 0x00000803"));
    EXPECT_THAT(refusal_of(small_images().substr(0, 6), small_labels()),
                HasSubstr("ends 2 bytes before a header is complete"));
    EXPECT_THAT(
        refusal_of(small_images().substr(0, 20), small_labels()),
        HasSubstr("ends 8 bytes before what the header promises is complete, expected 12 bytes"));
    EXPECT_THAT(refusal_of(small_images() + "x", small_labels()),
                HasSubstr("goes on after the 12 bytes"));
    EXPECT_THAT(refusal_of(small_images(), big_endian(0x801) + big_endian(2) + "ab"),
                HasSubstr("train-labels-idx1-ubyte: 2 labels, expected 3"));
    EXPECT_THAT(
        refusal_of(small_images(), big_endian(0x801) + big_endian(3) + std::string{0, 3, 0}),
        HasSubstr("train-labels-idx1-ubyte: byte 9: label 3 of image 1, expected 0 to 2"));
    write_both(small_images(), small_labels());
    EXPECT_THAT(refusal(scenario(DataKind::Mnist, "."), mlp_model({5, 3})),
                HasSubstr("images of 2 x 2 pixels, but the model reads 5 numbers"));
    EXPECT_THAT(refusal(scenario(DataKind::Mnist, "."), small_gpt(3)),
                HasSubstr("\"mnist\" gives 784 numbers"));
}

TEST_F(Mnist, RefusesAHeaderThatPromisesMoreThanFourGigabytesWithoutAllocating) {
    const std::string huge =
        big_endian(0x803) + big_endian(0xffffffff) + big_endian(2) + big_endian(2);
    EXPECT_THAT(refusal_of(huge, small_labels()), HasSubstr("promises 17179869180 bytes"));
    const std::string many = big_endian(0x803) + big_endian(0) + big_endian(2) + big_endian(2);
    EXPECT_THAT(refusal_of(many, small_labels()), HasSubstr("0 images, expected at least 1"));
}

TEST_F(Mnist, RefusesADamagedGzipFile) {
    write_gzipped("train-images-idx3-ubyte.gz", small_images());
    write_gzipped("train-labels-idx1-ubyte.gz", small_labels());
    std::ifstream in(folder_ / "train-images-idx3-ubyte.gz", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    bytes.resize(bytes.size() - 9);  // the check sum and more
    write("train-images-idx3-ubyte.gz", bytes);
    EXPECT_THAT(refusal(scenario(DataKind::Mnist, "."), mlp_model({4, 3})),
                HasSubstr("train-images-idx3-ubyte.gz: "));
}

using Synthetic = Data;

TEST_F(Synthetic, RealInputsLieAroundTheCentreOfTheirClass) {
    const auto data = open_data(scenario(DataKind::Synthetic, ""), mlp_model({6, 4}));
    std::vector<double> sums(4 * 6);
    std::vector<int> counts(4);
    for (int step = 0; step < 50; ++step) {
        const Batch batch = data->batch(step, 40);
        for (std::size_t s = 0; s < 40; ++s) {
            const auto label = static_cast<std::size_t>(batch.targets[s]);
            ++counts.at(label);
            for (std::size_t j = 0; j < 6; ++j) {
                sums[label * 6 + j] += static_cast<double>(batch.values[s * 6 + j]);
            }
        }
    }
    double between =
        0;  // clusters lie apart: their means differ by far more than chance (0.045) allows
    for (std::size_t j = 0; j < 6; ++j) {
        between = std::max(between, std::abs(sums[j] / counts[0] - sums[6 + j] / counts[1]));
    }
    EXPECT_GT(between, 0.5);
    EXPECT_GT(counts[3], 400);
}

TEST_F(Synthetic, TokensFollowARuleNineTimesInTen) {
    const auto data = open_data(scenario(DataKind::Synthetic, ""), small_gpt(32, 50));
    std::vector<std::vector<int>> next(50, std::vector<int>(50));
    int pairs = 0;
    for (int step = 0; step < 20; ++step) {
        const Batch batch = data->batch(step, 16);
        for (std::size_t i = 0; i < batch.tokens.size(); ++i, ++pairs) {
            ++next.at(static_cast<std::size_t>(batch.tokens[i]))
                  .at(static_cast<std::size_t>(batch.targets[i]));
        }
    }
    int by_rule = 0;
    for (const std::vector<int>& counts : next) {
        by_rule += *std::ranges::max_element(counts);
    }
    EXPECT_NEAR(static_cast<double>(by_rule) / pairs, 0.9, 0.02);
}

TEST_F(Synthetic, ABatchDependsOnSeedAndStepAlone) {
    const auto data = open_data(scenario(DataKind::Synthetic, ""), mlp_model({6, 4}));
    EXPECT_EQ(data->batch(5, 8).values, data->batch(5, 8).values);
    EXPECT_NE(data->batch(5, 8).values, data->batch(6, 8).values);
}

// --- What is held out for validation. ---

TEST_F(Text, AShareOfItsEndIsHeldOut) {
    write("text", "aaaaaaaaaaaaaaaaaaaabbbbb");
    Scenario described = scenario(DataKind::Text, "text");
    described.data.validation_share = 0.2;
    const auto training = open_data(described, small_gpt(3));
    const auto held_out = open_data(described, small_gpt(3), DataUse::Validation);
    for (int step = 0; step < 20; ++step) {
        EXPECT_THAT(training->batch(step, 4).targets, Each('a'));
        EXPECT_THAT(held_out->batch(step, 4).tokens, Each('b'));
    }
    described.data.validation_share = 0.1;
    EXPECT_THAT(refusal_of_validation(described, small_gpt(3)),
                AllOf(HasSubstr("text: 3 bytes, expected more than the context of 3")));
}

TEST_F(Text, ValidationMayHaveAPlaceOfItsOwn) {
    write("text", "aaaaaaaa");
    write("other", "cccccccc");
    Scenario described = scenario(DataKind::Text, "text");
    described.data.validation_path = "other";
    EXPECT_THAT(open_data(described, small_gpt(3))->batch(0, 4).tokens, Each('a'));
    EXPECT_THAT(open_data(described, small_gpt(3), DataUse::Validation)->batch(0, 4).tokens,
                Each('c'));
}

TEST_F(Synthetic, HeldOutSamplesAreOthersOfTheSameKind) {
    const Scenario described = scenario(DataKind::Synthetic, "");
    const Model model = small_gpt(32, 50);
    const Batch training = open_data(described, model)->batch(0, 4);
    const Batch held_out = open_data(described, model, DataUse::Validation)->batch(0, 4);
    EXPECT_NE(training.tokens, held_out.tokens);
    // The rule is the same: most often what follows a token there follows it here, too.
    std::map<int, int> after;
    const Batch much = open_data(described, model)->batch(1, 200);
    for (std::size_t i = 0; i < much.tokens.size(); ++i) {
        after[much.tokens[i]] = much.targets[i];
    }
    int followed = 0;
    for (std::size_t i = 0; i < held_out.tokens.size(); ++i) {
        followed += after[held_out.tokens[i]] == held_out.targets[i] ? 1 : 0;
    }
    EXPECT_GT(followed, static_cast<int>(held_out.tokens.size()) / 2);
}

TEST(Batch, IsSplitIntoConsecutiveSlices) {
    const Batch batch{.samples = 7, .tokens = {}, .values = {}, .targets = {}};
    const std::vector<MicroBatch> slices = split(batch, {3, 2, 2});
    ASSERT_EQ(slices.size(), 3U);
    EXPECT_EQ(slices[2].batch, &batch);
    EXPECT_EQ(slices[2].first_sample, 5);
    EXPECT_EQ(slices[2].samples, 2);
    EXPECT_THROW(split(batch, {3, 3}), InternalError);
}

TEST(RandomStream, NumberNDependsOnNothingDrawnBefore) {
    constexpr RandomStream stream = RandomStream(5).of(1);
    const double third = stream.normal(3);
    stream.normal(0);
    EXPECT_EQ(stream.normal(3), third);
    EXPECT_NE(RandomStream(5).of(2).normal(3), third);
    EXPECT_NE(RandomStream(6).of(1).normal(3), third);
}

TEST(RandomStream, HasTheMomentsOfItsDistributions) {
    constexpr int count = 200000;
    const RandomStream stream(1);
    double uniform = 0;
    double mean = 0;
    double square = 0;
    double fourth = 0;
    double neighbours = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        const double x = stream.normal(i);
        uniform += stream.uniform(i) / count;
        mean += x / count;
        square += x * x / count;
        fourth += x * x * x * x / count;
        neighbours += x * stream.normal(i + 1) / count;
    }
    EXPECT_NEAR(uniform, 0.5, 0.003);
    EXPECT_NEAR(mean, 0, 0.01);
    EXPECT_NEAR(square, 1, 0.015);
    EXPECT_NEAR(fourth, 3, 0.12);
    EXPECT_NEAR(neighbours, 0, 0.01);
}

// Three windows of 4 in 15 tokens, two in 9; what is left over is cut off elsewhere in each epoch.
TEST_F(Data, TokensAreReadOnceAnEpochInAnOrderOfItsOwn) {
    fs::create_directory(folder_ / "tokens");
    write("tokens/a.bin", bytes_of(counting(1000, 1015), 2));
    write("tokens/b.bin", bytes_of(counting(2000, 2009), 2));
    Scenario described = scenario(DataKind::Tokens, "tokens");
    described.training.batch = 5;
    const auto data = open_data(described, small_gpt(4, 3000));
    EXPECT_EQ(data->description(), "tokens, 24 in 2 files");
    std::set<std::vector<std::int32_t>> orders;
    for (int epoch = 0; epoch < 20; ++epoch) {
        const Batch batch = data->batch(epoch, 5);
        std::set<std::int32_t> seen;
        for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
            EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
            EXPECT_TRUE(seen.insert(batch.tokens[i]).second) << batch.tokens[i] << " came twice";
        }
        EXPECT_EQ(seen.size(), 20U);
        orders.insert(batch.tokens);
    }
    EXPECT_GT(orders.size(), 15U);
    // A step is a function of its number: another reader, another moment, the same samples.
    EXPECT_EQ(open_data(described, small_gpt(4, 3000))->batch(7, 5).tokens,
              data->batch(7, 5).tokens);
}

TEST_F(Data, TokensComeWithTheHeadersOfLlmC) {
    write("gpt2.bin", header(20240520, 1, 6) + bytes_of(counting(50'000, 50'006), 2));
    write("llama3.bin", header(20240801, 7, 6) + bytes_of(counting(100'000, 100'006), 4));
    Scenario described = scenario(DataKind::Tokens, "gpt2.bin");
    described.training.batch = 1;
    EXPECT_THAT(open_data(described, small_gpt(5, 60'000))->batch(0, 1).tokens,
                ElementsAre(50'000, 50'001, 50'002, 50'003, 50'004));
    described.data.path = "llama3.bin";
    EXPECT_THAT(open_data(described, small_gpt(5, 200'000))->batch(0, 1).targets,
                ElementsAre(100'001, 100'002, 100'003, 100'004, 100'005));
}

TEST_F(Data, TokensThatAreNoneAreRefused) {
    const auto refused = [this](const std::string& bytes) {
        write("x.bin", bytes);
        Scenario described = scenario(DataKind::Tokens, "x.bin");
        described.training.batch = 2;
        return refusal(described, small_gpt(5, 60'000));
    };
    EXPECT_THAT(refused(header(20240520, 2, 0)),
                HasSubstr("version 2 of a token file, expected 1"));
    EXPECT_THAT(refused(header(20240520, 1, 6) + "12"), HasSubstr("6 tokens by its header"));
    EXPECT_THAT(refused(header(20240520, 1, 0xFFFFFFFF)), HasSubstr("by its header"));
    EXPECT_THAT(refused("123"), HasSubstr("3 bytes, expected tokens of 2 bytes each"));
    EXPECT_THAT(refused(""), HasSubstr("0 samples of 5 tokens"));
    EXPECT_THAT(refused(bytes_of(counting(0, 10), 2)),
                HasSubstr("1 sample of 5 tokens and one more, expected at least the batch of 2"));
    EXPECT_EQ(refused(bytes_of(counting(0, 11), 2)), "accepted");
}

/// What `check` throws, with its place.
std::string found_in(const DataSource& data) {
    try {
        data.check([] { return true; });
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        return error.what();
    }
    return "nothing";
}

TEST_F(Data, ATokenThatTheModelDoesNotKnowIsFoundWithItsByte) {
    for (const int width : {2, 4}) {
        std::vector<std::uint32_t> numbers(300'000, 7);
        numbers[271'828] = 60'001;
        const std::string head =
            width == 2 ? header(20240520, 1, 300'000) : header(20240801, 7, 300'000);
        write("x.bin", head + bytes_of(numbers, width));
        Scenario described = scenario(DataKind::Tokens, "x.bin");
        described.training.batch = 1;
        EXPECT_EQ(found_in(*open_data(described, small_gpt(5, 60'002))), "nothing");
        const int byte = 1024 + 271'828 * width;
        const auto data = open_data(described, small_gpt(5, 60'001));
        EXPECT_EQ(data->unchecked_bytes(), 300'000U * static_cast<unsigned>(width));
        EXPECT_THAT(found_in(*data),
                    HasSubstr("x.bin: byte " + std::to_string(byte) +
                              ": token 60001, but the model knows those from 0 to 60000"));
        // It is in no other part of the file, and a batch that draws it finds it, too.
        described.data.validation_share = 0.5;
        EXPECT_EQ(found_in(*open_data(described, small_gpt(5, 60'001))), "nothing");
        EXPECT_THROW(
            open_data(described, small_gpt(5, 60'001), DataUse::Validation)->batch(0, 29'999),
            Error);
    }
    // Every number of two bytes is a token.
    write("x.bin", bytes_of(counting(0, 65'536), 2));
    Scenario described = scenario(DataKind::Tokens, "x.bin");
    described.training.batch = 1;
    EXPECT_EQ(open_data(described, small_gpt(5, 65'536))->unchecked_bytes(), 0U);
    EXPECT_EQ(open_data(described, small_gpt(5, 65'535))->unchecked_bytes(), 131'072U);
}

TEST(TokenLimit, FindsTheFirstTokenAboveIt) {
    const RandomStream random(3);
    std::uint64_t draw = 0;
    for (int round = 0; round < 500; ++round) {
        const int width = round % 2 == 0 ? 2 : 4;
        const std::size_t count = random.below(draw++, 5000);
        const auto most = static_cast<std::uint32_t>(random.below(draw++, 65'535));
        std::vector<std::uint32_t> numbers(count);
        for (std::uint32_t& number : numbers) {
            number = static_cast<std::uint32_t>(random.below(draw++, most + 1));
        }
        std::size_t expected = count;
        for (std::uint64_t wrong = random.below(draw++, 3); wrong > 0 && count > 0; --wrong) {
            const std::size_t index = random.below(draw++, count);
            numbers[index] = width == 2 ? 65'535 : 0xFFFFFFFF;
            expected = std::min(expected, index);
        }
        const std::string bytes = "x" + bytes_of(numbers, width);  // at any address
        EXPECT_EQ(
            first_above(
                std::as_bytes(std::span(bytes).subspan(1)), static_cast<std::size_t>(width), most),
            expected);
    }
}

TEST_F(Data, AFileThatHasBecomeShorterSaysWhereItEnds) {
    write("x.bin", bytes_of(counting(0, 60), 2));
    Scenario described = scenario(DataKind::Tokens, "x.bin");
    described.training.batch = 11;
    const auto data = open_data(described, small_gpt(5, 100));
    static_cast<void>(data->batch(0, 11));
    fs::resize_file(folder_ / "x.bin", 64);
    try {
        static_cast<void>(data->batch(0, 11));  // all of it
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.what(),
                    ::testing::ContainsRegex("x.bin: byte [0-9]+: the file ends here"));
        EXPECT_THAT(error.what(), HasSubstr("but had 120 bytes when it was opened"));
    }
}

TEST_F(Data, WhatATextHasAndTheModelDoesNotTellApartIsRefused) {
    write("x.txt", "abc\xff");
    const Model model = Model::chain(
        {.token_ids = true, .positions = 2},
        {{.name = "embedding", .type = LayerType::Embedding, .outputs = 4, .vocabulary = 256},
         {.name = "head", .type = LayerType::Linear, .outputs = 128},
         {.name = "loss", .type = LayerType::CrossEntropy}});
    EXPECT_THAT(refusal(scenario(DataKind::Text, "x.txt"), model),
                HasSubstr("x.txt: byte 3: a byte of value 255, but the model tells 128 values"));
}

TEST_F(Data, LargeFilesAreLookedAtInTheBackground) {
    std::string numbers(2 * DataCheck::at_once, '\0');  // of two bytes each
    numbers[numbers.size() - 2] = 99;
    write("x.bin", numbers);
    Scenario described = scenario(DataKind::Tokens, "x.bin");
    DataCheck check(described, small_gpt(5, 99));
    check.wait();
    EXPECT_THROW(check.refuse_found(), Error);
    DataCheck fine(described, small_gpt(5, 100));
    fine.wait();
    EXPECT_NO_THROW(fine.refuse_found());
    write("x.bin", numbers.substr(numbers.size() - 2000));
    EXPECT_THROW(DataCheck(described, small_gpt(5, 99)), Error);  // at once
}

TEST(ShuffleTest, HoldsEveryNumberOnce) {
    for (const std::uint64_t count :
         {1U, 2U, 3U, 4U, 5U, 15U, 16U, 17U, 63U, 64U, 65U, 1000U, 4097U}) {
        const Shuffle shuffle(RandomStream(count), count);
        std::set<std::uint64_t> seen;
        for (std::uint64_t n = 0; n < count; ++n) {
            const std::uint64_t number = shuffle.at(n);
            EXPECT_LT(number, count);
            seen.insert(number);
        }
        EXPECT_EQ(seen.size(), count);
    }
}

// Each number is as likely in each place: 400 orders of 10, 40 expected in every cell.
TEST(ShuffleTest, IsFair) {
    std::array<std::array<int, 10>, 10> cells{};
    constexpr int orders = 400;
    for (std::uint64_t order = 0; order < orders; ++order) {
        const Shuffle shuffle(RandomStream(order), 10);
        for (std::size_t place = 0; place < 10; ++place) {
            ++cells.at(place).at(static_cast<std::size_t>(shuffle.at(place)));
        }
    }
    double chi_squared = 0;
    for (const auto& row : cells) {
        for (const int count : row) {
            chi_squared += (count - 40.0) * (count - 40.0) / 40.0;
        }
    }
    EXPECT_LT(chi_squared, 130);  // 81 degrees of freedom: 126 is passed once in a thousand times
}

}  // namespace data_test
}  // namespace pipetwin::exec
