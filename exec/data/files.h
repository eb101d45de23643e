#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace pipetwin::exec {

/// The file itself, or the regular files of a folder in byte order of their names. Links are
/// skipped: what a folder holds shall not depend on what lies elsewhere. Throws Error(BadInput),
/// Error(Io).
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);

/// The bytes of a file, which are read from the disk when they are accessed; the file must not
/// become shorter. Throws Error(Io).
class MappedFile {
  public:
    explicit MappedFile(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    /// All bytes of the file.
    std::span<const std::byte> bytes() const {
        return {static_cast<const std::byte*>(data_), size_};
    }

  private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace pipetwin::exec
