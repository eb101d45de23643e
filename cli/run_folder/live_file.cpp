// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/live_file.h"

#include <utility>

namespace pipetwin::cli {

LiveFile::LiveFile(std::filesystem::path path, const LiveHeader& header)
    : file_(std::move(path)), header_(print_live_header(header)) {
    write(header_);
}

void LiveFile::add(int step, const Timeline& timeline) {
    if (size_ > largest) {
        file_.begin_again();
        size_ = 0;
        write(header_);
    }
    write(print_live_step({.step = step, .timeline = aligned(timeline)}));
}

void LiveFile::write(const std::string& line) {
    size_ += static_cast<std::int64_t>(line.size());
    file_.add(line);
}

}  // namespace pipetwin::cli
