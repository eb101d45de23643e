#include "core/text/file_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/open_file.h"

namespace pipetwin {

namespace {

void check_size(const std::filesystem::path& file, std::size_t size, std::size_t max_bytes) {
    if (size > max_bytes) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("larger than the limit of {} bytes", max_bytes),
                    "is it the right file? those of this kind are smaller");
    }
}

}  // namespace

void read_blocks(const std::filesystem::path& file,
                 std::size_t max_bytes,
                 const std::function<void(std::string_view)>& take) {
    // Non-blocking, so that opening a FIFO without a writer does not wait for ever.
    const OpenFile source(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (!source.is_open()) {
        refuse_io(file, "cannot open");
    }
    struct stat status {};
    if (::fstat(source.get(), &status) != 0) {
        refuse_io(file, "cannot read");
    }
    if (!S_ISREG(status.st_mode)) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    "not a regular file",
                    "name a file; what a pipe or device gives has to be written to one first");
    }
    check_size(file, static_cast<std::size_t>(status.st_size), max_bytes);
    std::vector<char> buffer(std::size_t{1} << 16);
    std::size_t size = 0;
    while (true) {
        const ssize_t count = ::read(source.get(), buffer.data(), buffer.size());
        if (count == 0) {
            return;
        }
        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            refuse_io(file, "cannot read");
        }
        size += static_cast<std::size_t>(count);
        take({buffer.data(), static_cast<std::size_t>(count)});
        check_size(file, size, max_bytes);  // the file grew meanwhile
    }
}

}  // namespace pipetwin
