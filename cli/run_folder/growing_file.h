#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace pipetwin::cli {

/// A file of a run that grows line by line. What cannot be written, as the disk is full, stays in
/// memory and goes before what follows.
class GrowingFile {
  public:
    /// The file keeps its first `kept_bytes` bytes. It is not opened before the first `add`; a
    /// link, or what else is no file of its folder alone, is replaced at once. Throws Error(Io).
    explicit GrowingFile(std::filesystem::path path, std::int64_t kept_bytes = 0);
    GrowingFile(const GrowingFile&) = delete;
    GrowingFile& operator=(const GrowingFile&) = delete;
    ~GrowingFile();

    const std::filesystem::path& path() const { return path_; }

    /// Appends to the file, and hands all to the system that it takes. Returns whether it took all.
    bool add(std::string_view text);
    /// Tries again to hand over what was kept. Returns whether nothing is left.
    bool write_kept() { return add({}); }
    /// Throws Error(Io) where something is kept: why the last try failed.
    void expect_written() const;
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
    int why_ = 0;  ///< errno of the last try; 0: it went well
};

}  // namespace pipetwin::cli
