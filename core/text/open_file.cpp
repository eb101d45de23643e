// SPDX-License-Identifier: Apache-2.0
#include "core/text/open_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/io_hint.h"

namespace pipetwin {

OpenFile::OpenFile(const std::filesystem::path& path, int flags)
    : descriptor_(::open(path.c_str(), flags, 0666)) {}

OpenFile::~OpenFile() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

bool OpenFile::close() {
    return ::close(std::exchange(descriptor_, -1)) == 0;
}

void write_all(const OpenFile& target,
               std::string_view content,
               const std::filesystem::path& file) {
    while (!content.empty()) {
        const ssize_t written = ::write(target.get(), content.data(), content.size());
        if (written < 0 && errno != EINTR) {
            refuse_io(file, "cannot write");
        }
        content.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
}

void take_size_limits_as_errors() {
    std::signal(SIGXFSZ, SIG_IGN);  // NOLINT(concurrency-mt-unsafe): before any other thread
}

void refuse_io(const std::filesystem::path& file, std::string_view what) {
    const int code = errno;
    const bool may_pass = code == ENOSPC || code == EDQUOT || code == EIO || code == EFBIG ||
                          code == EAGAIN || code == ENOMEM || code == ENFILE || code == EMFILE;
    const LastingIoError error(
        ErrorKind::Io,
        file.string(),
        fmt::format("{}: {}", what, std::generic_category().message(code)),
        code == ENOENT && what == "cannot write" && file.has_parent_path()
            ? fmt::format("make the folder first: mkdir -p {}", file.parent_path().string())
            : io_hint(code));
    if (may_pass) {
        throw Error(error);  // NOLINT(cppcoreguidelines-slicing): the type is what differs
    }
    throw error;
}

}  // namespace pipetwin
