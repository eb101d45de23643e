// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace pipetwin {

/// A regular file, opened for reading: the one way in which this program opens what it reads.
/// Opening never waits, whatever has the name. Throws Error(Io) where the system refuses, and
/// Error(BadInput) for a folder, a FIFO, a device or a socket.
class InputFile {
  public:
    /// Opens a file by a path that may lead over links.
    explicit InputFile(const std::filesystem::path& file);

    /// Opens the file `name` beneath `folder`. `name` comes from a file: Error(Io) where it leads
    /// out of the folder, be it by "..", as an absolute name or over a link.
    InputFile(const std::filesystem::path& folder, const std::filesystem::path& name);

    InputFile(InputFile&& other) noexcept;
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;
    InputFile& operator=(InputFile&&) = delete;
    ~InputFile();

    /// Bytes of the file when it was opened; 0 for what the system makes up, as in /proc.
    std::size_t size() const { return size_; }
    /// The open descriptor; -1 after `release`.
    int descriptor() const { return descriptor_; }
    /// Hands the open descriptor over; the caller closes it.
    int release();

    /// Reads the next bytes; returns how many, 0 at the end. Throws Error(Io).
    std::size_t read(std::span<char> bytes);
    /// Goes to a place from the beginning of the file. Throws Error(Io).
    void go_to(std::size_t place);
    /// Reads on until so many bytes are read or the file ends. Throws Error(Io).
    std::string read_up_to(std::size_t most);

  private:
    void expect_regular();

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::size_t size_ = 0;
};

}  // namespace pipetwin
