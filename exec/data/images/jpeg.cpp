// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdio>  // jpeglib.h needs it before itself

#ifdef PIPETWIN_JPEG
#include <jpeglib.h>
// Behind jpeglib.h, whose types it uses.
#include <jerror.h>
#endif

#include <array>
#include <csetjmp>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/data/images/image_decoders.h"

namespace pipetwin::exec {

#ifdef PIPETWIN_JPEG

namespace {

/// Where libjpeg goes when it complains, and what of.
struct JpegErrors {
    jpeg_error_mgr base;  ///< first: libjpeg knows this part alone
    std::jmp_buf back;
    std::array<char, JMSG_LENGTH_MAX> complaint;
};

[[noreturn]] void leave_jpeg(j_common_ptr jpeg) {
    auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
    errors->base.format_message(jpeg, errors->complaint.data());
    std::longjmp(errors->back, 1);  // NOLINT(cert-err52-cpp,modernize-avoid-setjmp-longjmp)
}

/// A warning says that data are missing or damaged, where libjpeg would go on with grey pixels.
void take_jpeg_warning(j_common_ptr jpeg, int level) {
    const int code = jpeg->err->msg_code;
    const bool is_harmless =
        code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM;
    if (level < 0 && !is_harmless) {
        leave_jpeg(jpeg);
    }
}

void say_nothing(j_common_ptr /*jpeg*/) {}

/// A small file may have any number of scans, each of which takes as long as the image is large.
void limit_scans(j_common_ptr jpeg) {
    constexpr int most_scans = 500;
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > most_scans) {
        ERREXIT(jpeg, JERR_NO_BACKING_STORE);
    }
}

/// Decodes a JPEG; false if libjpeg complained or its frame is another than `target` says. libjpeg
/// jumps over this function's frame alone, in which nothing has a destructor.
bool decode_jpeg_rows(jpeg_decompress_struct& jpeg,
                      JpegErrors& errors,
                      std::span<const unsigned char> bytes,
                      const ImageSize& target,
                      unsigned char* pixels) {
    if (setjmp(errors.back) != 0) {  // NOLINT(cert-err52-cpp,modernize-avoid-setjmp-longjmp)
        return false;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_progress_mgr progress{};
    progress.progress_monitor = limit_scans;
    jpeg.progress = &progress;
    jpeg_mem_src(&jpeg, bytes.data(), static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = target.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    if (jpeg.image_height != static_cast<JDIMENSION>(target.height) ||
        jpeg.image_width != static_cast<JDIMENSION>(target.width)) {
        ERREXIT(&jpeg, JERR_BAD_LENGTH);
    }
    jpeg_start_decompress(&jpeg);
    const std::size_t row_bytes =
        static_cast<std::size_t>(target.width) * static_cast<std::size_t>(target.channels);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = pixels + jpeg.output_scanline * row_bytes;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    return true;
}

}  // namespace

void decode_jpeg(const EncodedImage& image, int channels, std::span<unsigned char> pixels) {
    JpegErrors errors{};
    jpeg_decompress_struct jpeg{};
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = leave_jpeg;
    errors.base.emit_message = take_jpeg_warning;
    errors.base.output_message = say_nothing;
    const ImageSize target = {image.header.size.height, image.header.size.width, channels};
    const bool is_whole = decode_jpeg_rows(jpeg, errors, image.bytes, target, pixels.data());
    jpeg_destroy_decompress(&jpeg);
    if (!is_whole) {
        refuse_image(
            image.file,
            fmt::format("a damaged JPEG: {}, expected a whole image", errors.complaint.data()),
            "copy or write the file again");
    }
}

#else

void decode_jpeg(const EncodedImage& image, int /*channels*/, std::span<unsigned char> /*pixels*/) {
    throw Error(ErrorKind::Unavailable,
                image.file.string(),
                "a JPEG, and this build has no libjpeg to read it with",
                "build with libjpeg62-turbo-dev installed, or convert the images to PPM");
}

#endif

}  // namespace pipetwin::exec
