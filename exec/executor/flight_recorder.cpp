// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/text/own_file.h"

namespace pipetwin::exec {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
    throw Error(
        ErrorKind::Io,
        file.string(),
        fmt::format("{}: {}", what, std::error_code(errno, std::system_category()).message()),
        "name a folder that can be written with --out DIR");
}

}  // namespace

FlightRecorder::FlightRecorder(const std::filesystem::path& file, const std::string& who) {
    std::error_code ignored;
    std::filesystem::create_directories(file.parent_path(), ignored);
    expect_own_folder(file.parent_path());
    const int descriptor = open_own_file(file);
    if (ftruncate(descriptor, 0) != 0) {
        close(descriptor);
        fail(file, "a flight recorder cannot be made");
    }
    // Taken now: a disk that is full later would end the process at its next line.
    const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(file_bytes));
    void* const memory =
        error == 0 ? mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
                   : MAP_FAILED;
    close(descriptor);
    if (memory == MAP_FAILED) {
        errno = error != 0 ? error : errno;
        fail(file, "a flight recorder has no room");
    }
    text_ = static_cast<char*>(memory);
    for (std::size_t line = 0; line < heading_lines + kept_lines; ++line) {
        write(line, ' ', "");
    }
    write(
        0, '#', "pipetwin flight recorder: what this process turned to, the newest line marked >");
    write(1, '#', who);
}

FlightRecorder::~FlightRecorder() {
    if (text_ != nullptr) {
        munmap(text_, file_bytes);
    }
}

FlightRecorder& FlightRecorder::of_nothing() {
    static FlightRecorder recorder;
    return recorder;
}

void FlightRecorder::write(std::size_t line, char mark, std::string_view text) {
    char* const begin = text_ + line * line_bytes;
    const std::size_t room = line_bytes - 3;
    const std::size_t used = std::min(room, text.size());
    begin[0] = mark;
    begin[1] = ' ';
    std::memcpy(begin + 2, text.data(), used);
    std::memset(begin + 2 + used, ' ', room - used);
    begin[line_bytes - 1] = '\n';
}

void FlightRecorder::note(std::string_view what) {
    if (text_ == nullptr) {
        return;
    }
    if (!is_printable(what)) {
        note(printable(what));
        return;
    }
    const auto now = std::chrono::system_clock::now();
    const auto micros =
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
    std::array<char, line_bytes> text{};
    const auto written = fmt::format_to_n(text.data(),
                                          text.size(),
                                          "{:%H:%M:%S}.{:06} {}",
                                          fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                                          micros % 1'000'000,
                                          what);
    const std::lock_guard lock(mutex_);
    const std::size_t before = (next_ + kept_lines - 1) % kept_lines;
    write(heading_lines + next_,
          '>',
          std::string_view(text.data(), std::min(written.size, text.size())));
    if (text_[(heading_lines + before) * line_bytes] == '>') {
        text_[(heading_lines + before) * line_bytes] = ' ';
    }
    next_ = (next_ + 1) % kept_lines;
}

void FlightRecorder::turn_to(int step, int rank, std::size_t cell, const Action& action) {
    if (text_ != nullptr) {  // the text of a line asks for memory
        note(fmt::format("step {} rank {} cell {} {}", step, rank, cell, to_string(action)));
    }
}

}  // namespace pipetwin::exec
