// SPDX-License-Identifier: Apache-2.0
#include "exec/data/images/image_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#ifdef PIPETWIN_PNG
#include <png.h>
#endif
#ifdef PIPETWIN_JPEG
#include <jpeglib.h>
#endif

#include "core/base/error.h"
#include "tests/exec/data/image_files.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace image_file_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using tests::counting_image;
using tests::even_image;
using tests::pnm;
using tests::RawImage;

class ImageFile : public ::testing::Test {
  protected:
    fs::path write(const std::string& bytes) const { return folder_.write("image", bytes); }

    std::vector<unsigned char> read(const fs::path& file, const ImageSize& size) const {
        std::vector<unsigned char> pixels(size.numbers());
        read_image(file, size, pixels);
        return pixels;
    }

    std::vector<unsigned char> values(const fs::path& file, const ImageSize& size) const {
        std::vector<unsigned char> values(size.numbers());
        read_mask(file, size, values);
        return values;
    }

    /// What reading says; each refusal names the file.
    std::string refusal(const std::string& bytes, const ImageSize& size) const {
        const fs::path file = write(bytes);
        try {
            read(file, size);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            EXPECT_THAT(error.place(), HasSubstr(file.string()));
            return error.text();
        }
        return "accepted";
    }

    std::string mask_refusal(const fs::path& file, const ImageSize& size) const {
        try {
            values(file, size);
        } catch (const Error& error) {
            return error.text();
        }
        return "accepted";
    }

    tests::ScratchFolder folder_;
};

// --- PPM and PGM ---

TEST_F(ImageFile, PpmAndPgmAreReadByteForByte) {
    for (const int channels : {1, 3}) {
        const RawImage image = counting_image(5, 7, channels);
        const fs::path file = write(pnm(image));
        const ImageHeader header = read_image_header(file);
        EXPECT_EQ(header.size, (ImageSize{5, 7, channels}));
        EXPECT_EQ(header.file_bytes, fs::file_size(file));
        EXPECT_EQ(read(file, {5, 7, channels}), image.bytes);
    }
}

TEST_F(ImageFile, TheHeaderOfAPnmMayHaveCommentsAndAnyWhiteSpace) {
    const fs::path file = write("P5 # by hand\n\t2# columns\r 1\n#\n255\n#!");
    EXPECT_THAT(read(file, {1, 2, 1}), ElementsAre('#', '!'));
}

TEST_F(ImageFile, AGreyImageStandsForOneInColours) {
    const fs::path file = write(pnm({.height = 1, .width = 2, .bytes = {9, 200}}));
    EXPECT_THAT(read(file, {1, 2, 3}), ElementsAre(9, 9, 9, 200, 200, 200));
}

TEST_F(ImageFile, RefusalsSayWhatWasFoundAndWhatWasExpected) {
    const std::string whole = pnm(counting_image(4, 3, 3));
    EXPECT_THAT(refusal(whole, {4, 4, 3}),
                HasSubstr("an image of 4 x 3 x 3 (rows, columns, channels), expected 4 x 4 x 3"));
    EXPECT_THAT(refusal(whole, {4, 3, 1}), HasSubstr("of 4 x 3 x 3"));
    EXPECT_THAT(refusal(whole + "x", {4, 3, 3}), HasSubstr("48 bytes, expected 47 of 4 x 3 x 3"));
    EXPECT_THAT(refusal(whole.substr(0, 46), {4, 3, 3}), HasSubstr("46 bytes, expected 47"));
    EXPECT_THAT(refusal("", {4, 3, 3}), HasSubstr("no image by its first bytes"));
    EXPECT_THAT(refusal("P3\n1 1\n255\n1 2 3\n", {1, 1, 3}), HasSubstr("expected PPM (P6)"));
    EXPECT_THAT(refusal("P5\n1 1\n65535\n12", {1, 1, 1}),
                HasSubstr("values up to 65535, expected 255"));
    EXPECT_THAT(refusal("P5\n1 1\n255", {1, 1, 1}), HasSubstr("no number at byte 7"));
    EXPECT_THAT(refusal("P5\n1 1\n255x1", {1, 1, 1}), HasSubstr("no white space at byte 10"));
    EXPECT_THAT(refusal("P5\n1 x\n255\n1", {1, 1, 1}), HasSubstr("no number at byte 5"));
    EXPECT_THAT(refusal("P5\n0 1\n255\n1", {1, 1, 1}), HasSubstr("a side of 0 pixels"));
    EXPECT_THAT(refusal("P5\n99999999999999999999 1\n255\n1", {1, 1, 1}), HasSubstr("above 65535"));
    EXPECT_THAT(refusal("P5" + std::string(5000, ' ') + "1 1\n255\n1", {1, 1, 1}),
                HasSubstr("no number at byte 4096"));
}

TEST_F(ImageFile, WhatIsNoRegularFileIsRefused) {
    EXPECT_THROW(read_image_header(folder_.path()), Error);
    EXPECT_THROW(read_image_header(folder_ / "nowhere"), Error);
    EXPECT_THROW(read_image_header("/dev/zero"), Error);
}

/// A file of a terabyte, nearly all of it a hole.
TEST_F(ImageFile, AHugeFileIsRefusedBeforeItIsRead) {
    const fs::path file = write("P5\n1 1\n255\nx");
    fs::resize_file(file, std::uintmax_t{1} << 40U);
    try {
        read(file, {1, 1, 1});
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.text(), HasSubstr("1099511627776 bytes, expected at most 268435456"));
    }
}

#ifdef PIPETWIN_PNG

/// How a PNG is written.
struct PngKind {
    int colour_type = PNG_COLOR_TYPE_GRAY;
    int bits = 8;
    int interlace = PNG_INTERLACE_NONE;
    std::vector<png_color> palette{};
    std::size_t comment_bytes = 0;
};

/// Writes rows of packed bytes as a PNG.
std::string png(int height,
                int width,
                const PngKind& kind,
                const std::vector<std::vector<unsigned char>>& rows) {
    std::string file;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(
        png,
        &file,
        [](png_structp writer, png_bytep bytes, std::size_t count) {
            static_cast<std::string*>(png_get_io_ptr(writer))
                ->append(reinterpret_cast<const char*>(bytes), count);
        },
        [](png_structp) {});
    png_set_IHDR(png,
                 info,
                 static_cast<png_uint_32>(width),
                 static_cast<png_uint_32>(height),
                 kind.bits,
                 kind.colour_type,
                 kind.interlace,
                 PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (!kind.palette.empty()) {
        png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
    }
    std::string comment(kind.comment_bytes, 'c');
    png_text text{};
    text.compression = PNG_TEXT_COMPRESSION_zTXt;
    text.key = const_cast<png_charp>("Comment");
    text.text = comment.data();
    text.text_length = comment.size();
    if (!comment.empty()) {
        png_set_text(png, info, &text, 1);
    }
    png_write_info(png, info);
    std::vector<std::vector<unsigned char>> copies = rows;
    std::vector<png_bytep> pointers;
    for (std::vector<unsigned char>& row : copies) {
        pointers.push_back(row.data());
    }
    png_write_image(png, pointers.data());
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return file;
}

std::vector<std::vector<unsigned char>> rows_of(const RawImage& image) {
    std::vector<std::vector<unsigned char>> rows;
    const std::ptrdiff_t row_bytes = std::ptrdiff_t{image.width} * image.channels;
    for (auto row = image.bytes.begin(); row != image.bytes.end(); row += row_bytes) {
        rows.emplace_back(row, row + row_bytes);
    }
    return rows;
}

TEST_F(ImageFile, PngOfGreyAndOfColoursIsReadByteForByteInterlacedOrNot) {
    for (const int interlace : {PNG_INTERLACE_NONE, PNG_INTERLACE_ADAM7}) {
        const RawImage grey = counting_image(9, 11, 1);
        EXPECT_EQ(read(write(png(9, 11, {.interlace = interlace}, rows_of(grey))), {9, 11, 1}),
                  grey.bytes);
        const RawImage colours = counting_image(9, 11, 3);
        const fs::path file = write(png(
            9, 11, {.colour_type = PNG_COLOR_TYPE_RGB, .interlace = interlace}, rows_of(colours)));
        EXPECT_EQ(read_image_header(file).size, (ImageSize{9, 11, 3}));
        EXPECT_EQ(read(file, {9, 11, 3}), colours.bytes);
    }
}

TEST_F(ImageFile, PngsOfOtherDepthsBecomeBytes) {
    // 16 bits: the nearest of 256 values; 0x1234 * 255 / 65535 = 18.1.
    EXPECT_THAT(read(write(png(1, 2, {.bits = 16}, {{0x12, 0x34, 0xff, 0xff}})), {1, 2, 1}),
                ElementsAre(18, 255));
    // 1 bit: black and white, eight pixels in a byte.
    EXPECT_THAT(read(write(png(1, 3, {.bits = 1}, {{0b10100000}})), {1, 3, 1}),
                ElementsAre(255, 0, 255));
    // What can be seen through is not.
    EXPECT_THAT(read(write(png(1, 2, {.colour_type = PNG_COLOR_TYPE_GRAY_ALPHA}, {{7, 0, 9, 99}})),
                     {1, 2, 1}),
                ElementsAre(7, 9));
    EXPECT_THAT(read(write(png(1, 1, {.colour_type = PNG_COLOR_TYPE_RGB_ALPHA}, {{1, 2, 3, 0}})),
                     {1, 1, 3}),
                ElementsAre(1, 2, 3));
}

TEST_F(ImageFile, APaletteMeansColoursInAnImageAndPlacesInAMask) {
    const PngKind kind{.colour_type = PNG_COLOR_TYPE_PALETTE,
                       .palette = {{0, 0, 0}, {128, 0, 0}, {0, 128, 0}}};
    const fs::path file = write(png(1, 3, kind, {{2, 0, 1}}));
    EXPECT_THAT(read(file, {1, 3, 3}), ElementsAre(0, 128, 0, 0, 0, 0, 128, 0, 0));
    EXPECT_THAT(values(file, {1, 3, 1}), ElementsAre(2, 0, 1));
}

TEST_F(ImageFile, MasksAreReadAsTheyAreStored) {
    EXPECT_THAT(values(write(png(1, 3, {.bits = 1}, {{0b10100000}})), {1, 3, 1}),
                ElementsAre(1, 0, 1));
    EXPECT_THAT(values(write(png(1, 2, {.bits = 4}, {{0x5f}})), {1, 2, 1}), ElementsAre(5, 15));
    EXPECT_THAT(values(write(pnm({.height = 1, .width = 2, .bytes = {3, 255}})), {1, 2, 1}),
                ElementsAre(3, 255));
    EXPECT_THAT(mask_refusal(write(png(1, 1, {.bits = 16}, {{0, 1}})), {1, 1, 1}),
                HasSubstr("16 bits, expected 8"));
    EXPECT_THAT(mask_refusal(write(pnm(counting_image(1, 1, 3))), {1, 1, 1}),
                HasSubstr("a mask in colours, expected grey or a palette"));
    EXPECT_THAT(mask_refusal(write(pnm(counting_image(1, 2, 1))), {1, 1, 1}),
                HasSubstr("a mask of 1 x 2 pixels, expected 1 x 1"));
}

TEST_F(ImageFile, ADamagedPngIsRefusedWhereverItIsCutOrChanged) {
    const std::string whole =
        png(6, 6, {.colour_type = PNG_COLOR_TYPE_RGB}, rows_of(counting_image(6, 6, 3, 100)));
    ASSERT_EQ(refusal(whole, {6, 6, 3}), "accepted");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        EXPECT_NE(refusal(whole.substr(0, length), {6, 6, 3}), "accepted") << length;
    }
    for (std::size_t place = 0; place < whole.size(); ++place) {
        std::string changed = whole;
        changed[place] = static_cast<char>(changed[place] ^ 0x40);
        EXPECT_NE(refusal(changed, {6, 6, 3}), "accepted") << place;
    }
}

/// A text of 50 MB packs into 50 kB; nobody reads it, and no memory is taken for it.
TEST_F(ImageFile, TextsInAPngTakeNoMemory) {
    const RawImage image = counting_image(2, 2, 1);
    const std::string file = png(2, 2, {.comment_bytes = std::size_t{50'000'000}}, rows_of(image));
    ASSERT_LT(file.size(), 100'000U);
    EXPECT_EQ(read(write(file), {2, 2, 1}), image.bytes);
}

#endif

#ifdef PIPETWIN_JPEG

std::string jpeg(const RawImage& image, bool progressive = false) {
    jpeg_compress_struct writer{};
    jpeg_error_mgr errors{};
    writer.err = jpeg_std_error(&errors);
    jpeg_create_compress(&writer);
    unsigned char* bytes = nullptr;
    unsigned long count = 0;
    jpeg_mem_dest(&writer, &bytes, &count);
    writer.image_height = static_cast<JDIMENSION>(image.height);
    writer.image_width = static_cast<JDIMENSION>(image.width);
    writer.input_components = image.channels;
    writer.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&writer);
    jpeg_set_quality(&writer, 100, TRUE);
    if (progressive) {
        jpeg_simple_progression(&writer);
    }
    jpeg_start_compress(&writer, TRUE);
    RawImage copy = image;
    while (writer.next_scanline < writer.image_height) {
        JSAMPROW row = copy.bytes.data() + std::size_t{writer.next_scanline} *
                                               static_cast<std::size_t>(image.width) *
                                               static_cast<std::size_t>(image.channels);
        jpeg_write_scanlines(&writer, &row, 1);
    }
    jpeg_finish_compress(&writer);
    std::string file(reinterpret_cast<const char*>(bytes), count);
    jpeg_destroy_compress(&writer);
    std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg took it
    return file;
}

/// Blocks of 8 x 8 equal pixels lose nothing in JPEG: only their means are kept, and at quality 100
/// each mean is.
RawImage two_blocks() {
    RawImage image = even_image(8, 16, 1, 10);
    for (std::size_t i = 0; i < image.bytes.size(); ++i) {
        image.bytes[i] = i % 16 < 8 ? 10 : 200;
    }
    return image;
}

TEST_F(ImageFile, AJpegOfEvenBlocksIsReadByteForByte) {
    const RawImage image = two_blocks();
    for (const bool progressive : {false, true}) {
        const fs::path file = write(jpeg(image, progressive));
        EXPECT_EQ(read_image_header(file).size, (ImageSize{8, 16, 1}));
        EXPECT_EQ(read(file, {8, 16, 1}), image.bytes);
    }
    std::vector<unsigned char> grey_in_colours;
    for (const unsigned char byte : image.bytes) {
        grey_in_colours.insert(grey_in_colours.end(), 3, byte);
    }
    EXPECT_EQ(read(write(jpeg(image)), {8, 16, 3}), grey_in_colours);
}

/// Red, green and blue become brightness and two differences of 8 bits and come back: each is
/// rounded once on both ways, which moves a channel by at most 2.
TEST_F(ImageFile, AJpegInColoursKeepsThem) {
    RawImage image = even_image(8, 8, 3, 0);
    for (std::size_t i = 0; i < image.bytes.size(); ++i) {
        image.bytes[i] = static_cast<unsigned char>(i % 3 == 0 ? 250 : i % 3 == 1 ? 130 : 20);
    }
    const std::vector<unsigned char> pixels = read(write(jpeg(image)), {8, 8, 3});
    for (std::size_t i = 0; i < pixels.size(); ++i) {
        EXPECT_NEAR(pixels[i], image.bytes[i], 2) << i;
    }
}

TEST_F(ImageFile, ADamagedJpegIsRefused) {
    const std::string whole = jpeg(counting_image(24, 24, 3));
    ASSERT_EQ(refusal(whole, {24, 24, 3}), "accepted");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        EXPECT_NE(refusal(whole.substr(0, length), {24, 24, 3}), "accepted") << length;
    }
    EXPECT_THAT(refusal(whole, {24, 23, 3}), HasSubstr("an image of 24 x 24 x 3"));
    EXPECT_THAT(mask_refusal(write(whole), {24, 24, 1}), HasSubstr("a mask in JPEG"));
}

/// A changed byte of a JPEG may give another image, which nothing can tell, but no crash.
TEST_F(ImageFile, AChangedByteOfAJpegDoesNoHarm) {
    const std::string whole = jpeg(counting_image(16, 16, 3), /*progressive=*/true);
    for (std::size_t place = 0; place < whole.size(); ++place) {
        for (const int change : {0x01, 0x80, 0xff}) {
            std::string changed = whole;
            changed[place] = static_cast<char>(changed[place] ^ change);
            refusal(changed, {16, 16, 3});
        }
    }
}

TEST_F(ImageFile, AJpegWithoutASizeIsRefused) {
    EXPECT_THAT(refusal("\xff\xd8" + std::string(100'000, '\xff'), {1, 1, 1}),
                HasSubstr("a JPEG without its size"));
    EXPECT_THAT(refusal("\xff\xd8\xff\xda" + std::string(10, 'x'), {1, 1, 1}),
                HasSubstr("a JPEG without its size up to byte 2"));
    EXPECT_THAT(refusal("\xff\xd8\xff\xe0", {1, 1, 1}), HasSubstr("ends before its header"));
}

#endif

}  // namespace image_file_test
}  // namespace pipetwin::exec
