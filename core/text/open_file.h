// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace pipetwin {

/// An open file descriptor, closed at the end of its life.
class OpenFile {
  public:
    /// Opens the file; `flags` as for open(2). `is_open` says whether it worked, and errno why not.
    OpenFile(const std::filesystem::path& path, int flags);
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    OpenFile(OpenFile&&) = delete;
    OpenFile& operator=(OpenFile&&) = delete;

    bool is_open() const { return descriptor_ >= 0; }
    int get() const { return descriptor_; }

    /// Closes the file before the destructor does; false if that fails (errno). Some file systems
    /// report a full disk no earlier than here.
    bool close();

  private:
    int descriptor_;
};

/// Writes all of the content to an open file; `file` names it in errors. Throws Error(Io).
void write_all(const OpenFile& target, std::string_view content, const std::filesystem::path& file);

/// Makes a write beyond the limit on the size of files an error like that of a full disk, and no
/// signal that ends the program. A program calls it first of all.
void take_size_limits_as_errors();

/// A refusal of the system that waiting does not mend: a folder that is not there, a lack of
/// rights. A full disk, an I/O error and what else may pass is an Error(Io) without this type.
class LastingIoError : public Error {
  public:
    using Error::Error;
};

/// Throws Error(Io), a LastingIoError where that is so: `what` could not be done to the file, and
/// the reason in errno.
[[noreturn]] void refuse_io(const std::filesystem::path& file, std::string_view what);

}  // namespace pipetwin
