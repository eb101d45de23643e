// SPDX-License-Identifier: Apache-2.0
#pragma once

// A folder that belongs to one test alone, also when its siblings run beside it in other processes.

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace pipetwin::tests {

/// Made empty under the system's folder for temporary files, removed with everything in it at the
/// end. Throws std::system_error where it can't be made.
class ScratchFolder {
  public:
    ScratchFolder() {
        // mkdtemp puts letters that no other folder has in place of the six X.
        std::string pattern =
            (std::filesystem::temp_directory_path() / "pipetwin-test-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) {
            throw std::system_error(errno, std::generic_category(), pattern);
        }
        path_ = pattern;
    }
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }

    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

    /// Writes the file `name` in the folder and returns where it lies.
    std::filesystem::path write(std::string_view name, std::string_view bytes) const {
        std::filesystem::path file = path_ / name;
        std::ofstream(file, std::ios::binary) << bytes;
        return file;
    }

  private:
    std::filesystem::path path_;
};

}  // namespace pipetwin::tests
