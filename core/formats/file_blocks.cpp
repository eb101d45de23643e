#include "core/formats/file_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"

namespace pipetwin {

namespace {

/// An open file, closed at the end of its life.
class Source {
  public:
    // Non-blocking, so that opening a FIFO nobody writes to does not wait for ever.
    explicit Source(const std::filesystem::path& file)
        : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    ~Source() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;
    Source(Source&&) = delete;
    Source& operator=(Source&&) = delete;

    bool is_open() const { return descriptor_ >= 0; }
    int get() const { return descriptor_; }

  private:
    int descriptor_;
};

[[noreturn]] void refuse_io(const std::filesystem::path& file, std::string_view what) {
    const int code = errno;
    throw Error(ErrorKind::Io,
                file.string(),
                fmt::format("{}: {}", what, std::generic_category().message(code)));
}

void check_size(const std::filesystem::path& file, std::size_t size, std::size_t max_bytes) {
    if (size > max_bytes) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("larger than the limit of {} bytes", max_bytes));
    }
}

}  // namespace

void read_blocks(const std::filesystem::path& file,
                 std::size_t max_bytes,
                 const std::function<void(std::string_view)>& take) {
    const Source source(file);
    if (!source.is_open()) {
        refuse_io(file, "cannot open");
    }
    struct stat status {};
    if (::fstat(source.get(), &status) != 0) {
        refuse_io(file, "cannot read");
    }
    if (!S_ISREG(status.st_mode)) {
        throw Error(ErrorKind::BadInput, file.string(), "not a regular file");
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
