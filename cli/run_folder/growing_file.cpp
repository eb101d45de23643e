// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/growing_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/io_hint.h"
#include "core/text/input_file.h"
#include "core/text/own_file.h"
#include "exec/base/retry.h"

namespace pipetwin::cli {

GrowingFile::GrowingFile(std::filesystem::path path, std::int64_t kept_bytes, std::size_t most_kept)
    : path_(std::move(path)), size_(kept_bytes), most_kept_(most_kept) {
    if (!is_own_file(path_)) {  // of this folder alone, with the bytes that stay
        replace_file(path_,
                     size_ > 0 ? InputFile(path_).read_up_to(as_index(size_)) : std::string());
    }
}

GrowingFile::~GrowingFile() {
    if (!kept_.empty()) {
        write_kept();
    }
    if (file_ >= 0) {
        close(file_);
    }
}

bool GrowingFile::add(std::string_view text) {
    const auto has_room = [&] { return kept_.size() + text.size() <= most_kept_; };
    if (!kept_.empty() && !has_room() && !write_kept() && !has_room()) {
        ++dropped_;
        return false;
    }
    kept_ += text;
    return write_kept();
}

bool GrowingFile::write_kept() {
    if (file_ < 0 && !open()) {
        return fail();
    }
    std::size_t taken = 0;
    while (taken < kept_.size()) {
        const ssize_t count = write(file_, kept_.data() + taken, kept_.size() - taken);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            break;
        }
        taken += as_index(count);
    }
    const int code = errno;
    kept_.erase(0, taken);
    size_ += static_cast<std::int64_t>(taken);
    errno = code;
    if (!kept_.empty()) {
        return fail();
    }
    why_ = 0;
    return true;
}

/// Opens the file and cuts off what it is not to keep; errno says why it could not.
bool GrowingFile::open() {
    // Never through a link, and without a wait where it is a FIFO.
    const int file = ::open(
        path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file < 0) {
        return false;
    }
    struct stat about {};
    int code = fstat(file, &about) == 0 ? 0 : errno;
    if (code == 0 && !S_ISREG(about.st_mode)) {
        code = EINVAL;
    }
    if (code == 0 && about.st_size > size_ && ftruncate(file, size_) != 0) {
        code = errno;
    }
    if (code != 0) {
        close(file);
        errno = code;
        return false;
    }
    file_ = file;
    return true;
}

bool GrowingFile::fail() {
    why_ = errno;
    return false;
}

void GrowingFile::expect_written() const {
    if (why_ != 0) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    fmt::format("cannot be written: {}", std::generic_category().message(why_)),
                    io_hint(why_));
    }
}

void GrowingFile::finish(std::chrono::milliseconds patience) {
    exec::keep_trying(
        patience,
        [this] {
            write_kept();
            expect_written();
        },
        [](const Error&) {});
}

void GrowingFile::bring_to_disk() const {
    expect_written();
    if (file_ >= 0 && fsync(file_) != 0) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    fmt::format("cannot be written to the disk: {}",
                                std::generic_category().message(errno)));
    }
}

void GrowingFile::begin_again() {
    if (file_ >= 0) {
        close(file_);
        file_ = -1;
    }
    size_ = 0;
    kept_.clear();
}

}  // namespace pipetwin::cli
