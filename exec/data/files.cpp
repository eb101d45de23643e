#include "exec/data/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace pipetwin::exec {

namespace fs = std::filesystem;

std::vector<fs::path> data_files(const fs::path& path) {
    const auto refuse = [&path](std::string text) {
        throw Error(ErrorKind::BadInput, path.string(), std::move(text), "set data.path");
    };
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
        refuse("there is no such file or folder, expected a file or a folder of them");
    }
    if (fs::is_regular_file(status)) {
        return {path};
    }
    if (!fs::is_directory(status)) {
        refuse("neither a regular file nor a folder, expected one of them");
    }
    std::vector<fs::path> files;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
        if (fs::is_regular_file(entry->symlink_status(error))) {
            files.push_back(entry->path());
        }
    }
    if (error) {
        throw Error(ErrorKind::Io, path.string(), "cannot be listed: " + error.message());
    }
    std::ranges::sort(files, {}, [](const fs::path& file) { return file.filename().string(); });
    return files;
}

MappedFile::MappedFile(const fs::path& path) {
    const auto fail = [&path](const char* doing, int code) {
        throw Error(ErrorKind::Io,
                    path.string(),
                    std::string(doing) + ": " + std::generic_category().message(code));
    };
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        fail("cannot be opened", errno);
    }
    struct stat about {};
    if (fstat(file, &about) != 0) {
        const int code = errno;
        close(file);
        fail("cannot be read", code);
    }
    size_ = static_cast<std::size_t>(about.st_size);
    if (size_ > 0) {
        data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int code = errno;
    close(file);  // the pages stay
    if (data_ == MAP_FAILED) {
        data_ = nullptr;
        fail("cannot be mapped", code);
    }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

}  // namespace pipetwin::exec
