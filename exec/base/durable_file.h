// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

/// Files that are still there, whole, after the power went: written, flushed to the disk, and only
/// then named. All throw Error(Io), naming path and cause.
namespace pipetwin::exec {

/// A new file on its way to the disk.
class DurableFile {
  public:
    /// Throws if there is a file of that name already.
    explicit DurableFile(std::filesystem::path path);
    DurableFile(const DurableFile&) = delete;
    DurableFile& operator=(const DurableFile&) = delete;
    ~DurableFile();

    /// Appends to the file.
    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

    /// Returns when all of it is on the disk. Once: after a failure the system has forgotten what
    /// was not written, and would report success.
    void finish();

  private:
    std::filesystem::path path_;
    int file_ = -1;
};

/// Returns when all that any process wrote to a file is on the disk.
void flush_file(const std::filesystem::path& file);

/// Returns when the names in a folder are on the disk.
void flush_folder(const std::filesystem::path& folder);

/// Creates a folder, with those above it that are missing. Returns when their names are on the
/// disk.
void create_folders(const std::filesystem::path& folder);

/// A regular file `name` beneath `folder`, opened for reading: links that lead out of it are not
/// followed.
class FileBeneath {
  public:
    FileBeneath(const std::filesystem::path& folder, const std::string& name);
    FileBeneath(const FileBeneath&) = delete;
    FileBeneath& operator=(const FileBeneath&) = delete;
    ~FileBeneath();

    std::size_t size() const { return size_; }
    /// Fills `bytes` from a place in the file; throws Error(BadInput) if it ends before.
    void read(std::size_t begin, std::span<std::byte> bytes) const;

  private:
    std::filesystem::path path_;
    int file_ = -1;
    std::size_t size_ = 0;
};

}  // namespace pipetwin::exec
