#include "cli/run_folder/live_file.h"

#include <utility>

#include "core/base/error.h"
#include "core/text/own_file.h"

namespace pipetwin::cli {

LiveFile::LiveFile(std::filesystem::path path, const LiveHeader& header)
    : path_(std::move(path)), header_(print_live_header(header)) {
    begin();
}

void LiveFile::begin() {
    replace_file(path_, "");
    stream_ = std::ofstream(path_, std::ios::app);
    size_ = 0;
    write(header_);
}

void LiveFile::add(int step, const Timeline& timeline) {
    if (size_ > largest) {
        begin();
    }
    write(print_live_step({.step = step, .timeline = aligned(timeline)}));
}

void LiveFile::write(const std::string& line) {
    stream_ << line << std::flush;
    size_ += static_cast<std::int64_t>(line.size());
    if (!stream_) {
        throw Error(
            ErrorKind::Io, path_.string(), "the file could not be written", "is the disk full?");
    }
}

}  // namespace pipetwin::cli
