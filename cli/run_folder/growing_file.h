// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace pipetwin::cli {

/// A file of a run that grows line by line. What cannot be written, as the disk is full, stays in
/// memory and goes before what follows. Texts beyond a limit of memory are dropped and counted.
class GrowingFile {
  public:
    /// Bytes of text that stay in memory at most: a line of metrics has some 300.
    static constexpr std::size_t most_in_memory = std::size_t{64} << 20U;

    /// The file keeps its first `kept_bytes` bytes. It is not opened before the first `add`; a
    /// link, or what else is no file of its folder alone, is replaced at once. Throws Error(Io).
    explicit GrowingFile(std::filesystem::path path,
                         std::int64_t kept_bytes = 0,
                         std::size_t most_kept = most_in_memory);
    GrowingFile(const GrowingFile&) = delete;
    GrowingFile& operator=(const GrowingFile&) = delete;
    ~GrowingFile();

    const std::filesystem::path& path() const { return path_; }

    /// Appends to the file, and hands all to the system that it takes. Returns whether it took all.
    bool add(std::string_view text);
    /// Tries again to hand over what was kept. Returns whether nothing is left.
    bool write_kept();
    /// How many texts were dropped: neither written nor kept.
    std::int64_t dropped() const { return dropped_; }
    /// Throws Error(Io) where something is kept: why the last try failed.
    void expect_written() const;
    /// Hands over what was kept, and waits for the disk for so long. Throws Error(Io).
    void finish(std::chrono::milliseconds patience);
    /// Returns when all that was handed over is on the disk. Throws Error(Io).
    void bring_to_disk() const;
    /// Empties the file, and forgets what was kept.
    void begin_again();

  private:
    bool open();
    bool fail();

    std::filesystem::path path_;
    std::int64_t size_;  ///< bytes that the system has taken
    int file_ = -1;
    std::string kept_;
    std::size_t most_kept_;  ///< bytes of it
    std::int64_t dropped_ = 0;
    int why_ = 0;  ///< errno of the last try; 0: it went well
};

}  // namespace pipetwin::cli
