#include "exec/data/files.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/text/input_file.h"

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
    const InputFile file(path);
    size_ = file.size();
    if (size_ > 0) {
        data_ =
            mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);  // the pages stay
    }
    if (data_ == MAP_FAILED) {
        data_ = nullptr;
        throw Error(ErrorKind::Io,
                    path.string(),
                    "cannot be mapped: " + std::generic_category().message(errno),
                    "is the file on a disk of this machine?");
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
