// SPDX-License-Identifier: Apache-2.0
#include "exec/data/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/input_file.h"

namespace pipetwin::exec {

namespace fs = std::filesystem;

namespace {

/// What is no file, folder or link; empty for those. Left out in silence, it would be data less.
std::string_view special_kind(fs::file_type type) {
    switch (type) {
        case fs::file_type::fifo:
            return "a FIFO";
        case fs::file_type::socket:
            return "a socket";
        case fs::file_type::block:
        case fs::file_type::character:
            return "a device";
        default:
            return "";
    }
}

/// Names of what is of this type in a folder, in byte order.
std::vector<std::string> names_in(const fs::path& folder, fs::file_type type) {
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const fs::file_type found = entry->symlink_status(error).type();
        std::string name = entry->path().filename().string();
        if (const auto special = special_kind(found); !special.empty() && !name.starts_with('.')) {
            refuse_file(
                entry->path(),
                fmt::format("{} among the files of a folder, expected regular files", special),
                "take it out of the folder");
        }
        if (found == type) {
            names.push_back(std::move(name));
        }
    }
    if (error) {
        throw Error(ErrorKind::Io, folder.string(), "cannot be listed: " + error.message());
    }
    std::ranges::sort(names);
    return names;
}

/// `names_in` without those that begin with a dot.
std::vector<std::string> seen_names_in(const fs::path& folder, fs::file_type type) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
        refuse_file(folder, "there is no such folder, expected one", "set data.path");
    }
    std::vector<std::string> names = names_in(folder, type);
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    return names;
}

}  // namespace

std::vector<std::string> folders_in(const fs::path& folder) {
    return seen_names_in(folder, fs::file_type::directory);
}

std::vector<std::string> image_names_in(const fs::path& folder) {
    return seen_names_in(folder, fs::file_type::regular);
}

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
    for (const std::string& name : names_in(path, fs::file_type::regular)) {
        files.push_back(path / name);
    }
    return files;
}

DataFile::DataFile(fs::path path) : path_(std::move(path)) {
    InputFile opened(path_);
    size_ = opened.size();
    file_ = opened.release();
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(std::exchange(other.size_, 0)) {}

DataFile::~DataFile() {
    if (file_ >= 0) {
        close(file_);
    }
}

void DataFile::read(std::size_t begin, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(begin));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            throw Error(ErrorKind::Io,
                        place_in(path_, begin),
                        fmt::format("cannot be read: {}", std::generic_category().message(errno)));
        }
        if (count == 0) {
            throw Error(ErrorKind::BadInput,
                        place_in(path_, begin),
                        fmt::format("the file ends here, but had {} when it was opened",
                                    counted(size_, "byte")),
                        "make the file whole again");
        }
        begin += static_cast<std::size_t>(count);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

void add_file(ContentHash& hash, const DataFile& file) {
    constexpr std::size_t at_once = std::size_t{1} << 20U;
    std::vector<std::byte> buffer;
    for (std::size_t begin = 0; begin < file.size(); begin += at_once) {
        buffer.resize(std::min(at_once, file.size() - begin));
        file.read(begin, buffer);
        hash.add(buffer);
    }
}

void refuse_file(const fs::path& path, std::string text, std::string hint) {
    throw Error(ErrorKind::BadInput, path.string(), std::move(text), std::move(hint));
}

std::string place_in(const fs::path& file, std::size_t byte) {
    return fmt::format("{}: byte {}", file.string(), byte);
}

}  // namespace pipetwin::exec
