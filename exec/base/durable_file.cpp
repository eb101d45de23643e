// SPDX-License-Identifier: Apache-2.0
#include "exec/base/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/without_signals.h"
#include "core/text/input_file.h"
#include "core/text/open_file.h"

namespace pipetwin::exec {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int code) {
    errno = code;
    refuse_io(path, fmt::format("cannot {}", doing));
}

}  // namespace

DurableFile::DurableFile(std::filesystem::path path)
    : path_(std::move(path)), file_(without_signals([&] {
          return open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      })) {
    if (file_ < 0) {
        fail(path_, "create the file", errno);
    }
}

DurableFile::~DurableFile() {
    if (file_ >= 0) {
        close(file_);
    }
}

void DurableFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written =
            without_signals([&] { return ::write(file_, bytes.data(), bytes.size()); });
        if (written < 0) {
            fail(path_, "write to the file", errno);
        }
        bytes = bytes.subspan(as_index(written));
    }
}

void DurableFile::finish() {
    const int file = std::exchange(file_, -1);
    const int flushed = fsync(file);
    const int why = errno;
    const int closed = close(file);
    if (flushed != 0 || closed != 0) {
        fail(path_, "bring the file to the disk", flushed != 0 ? why : errno);
    }
}

namespace {

void flush(const std::filesystem::path& path, int flags) {
    const int opened = without_signals([&] { return open(path.c_str(), flags | O_CLOEXEC); });
    if (opened < 0) {
        fail(path, "open it", errno);
    }
    const int flushed = fsync(opened);
    const int why = errno;
    close(opened);
    if (flushed != 0) {
        fail(path, "bring it to the disk", why);
    }
}

}  // namespace

void flush_file(const std::filesystem::path& file) {
    flush(file, O_RDONLY);
}

void flush_folder(const std::filesystem::path& folder) {
    flush(folder, O_RDONLY | O_DIRECTORY);
}

void create_folders(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> missing;
    std::error_code status;
    for (std::filesystem::path at = std::filesystem::absolute(folder).lexically_normal();
         !std::filesystem::exists(at, status) && at.has_relative_path();
         at = at.parent_path()) {
        missing.push_back(at);
    }
    std::filesystem::create_directories(folder, status);
    if (status) {
        fail(folder, "create the folder", status.value());
    }
    for (const std::filesystem::path& created : missing) {
        flush_folder(created.parent_path());
    }
}

FileBeneath::FileBeneath(const std::filesystem::path& folder, const std::string& name)
    : path_(folder / name) {
    InputFile input(folder, name);
    size_ = input.size();
    file_ = input.release();
}

FileBeneath::~FileBeneath() {
    close(file_);
}

void FileBeneath::read(std::size_t begin, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = without_signals(
            [&] { return pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(begin)); });
        if (count < 0) {
            fail(path_, "read the file", errno);
        }
        if (count == 0) {
            throw Error(
                ErrorKind::BadInput,
                path_.string(),
                fmt::format(
                    "it ends at byte {}, {} too early", begin, counted(bytes.size(), "byte")));
        }
        begin += static_cast<std::size_t>(count);
        bytes = bytes.subspan(as_index(count));
    }
}

}  // namespace pipetwin::exec
