// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/content_hash.h"

namespace pipetwin::exec {

/// The file itself, or the regular files of a folder in byte order of their names. Links are
/// skipped: what a folder holds shall not depend on what lies elsewhere. Throws Error(BadInput),
/// also for a FIFO, socket or device in the folder; Error(Io).
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);

/// Names of the folders in a folder, in byte order; hidden ones and links are left out. Throws
/// Error(BadInput) if there is no such folder, or a FIFO, socket or device in it; Error(Io).
std::vector<std::string> folders_in(const std::filesystem::path& folder);

/// Names of the regular files of a folder, in byte order; hidden ones and links are left out.
/// Throws as `folders_in`.
std::vector<std::string> image_names_in(const std::filesystem::path& folder);

/// A file that is read piece by piece while a training goes on. Reading is safe from several
/// threads.
class DataFile {
  public:
    /// Throws Error(Io); Error(BadInput) for what is no regular file.
    explicit DataFile(std::filesystem::path path);
    DataFile(DataFile&& other) noexcept;
    DataFile(const DataFile&) = delete;
    DataFile& operator=(const DataFile&) = delete;
    ~DataFile();

    const std::filesystem::path& path() const { return path_; }
    /// Bytes that the file had when it was opened.
    std::size_t size() const { return size_; }
    /// Fills `bytes` from byte `begin` on. Throws Error(BadInput), naming the byte, if the file has
    /// become shorter since it was opened; Error(Io) if the system cannot read it.
    void read(std::size_t begin, std::span<std::byte> bytes) const;

  private:
    std::filesystem::path path_;
    int file_ = -1;
    std::size_t size_ = 0;
};

/// Adds all bytes of a file to the hash. Throws as DataFile::read.
void add_file(ContentHash& hash, const DataFile& file);

/// Throws Error(BadInput) at the file or folder `path`.
[[noreturn]] void refuse_file(const std::filesystem::path& path,
                              std::string text,
                              std::string hint = {});

/// "tokens.bin: byte 2048": where something stands in a file.
std::string place_in(const std::filesystem::path& file, std::size_t byte);

}  // namespace pipetwin::exec
