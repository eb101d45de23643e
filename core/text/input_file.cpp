// SPDX-License-Identifier: Apache-2.0
#include "core/text/input_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/io_hint.h"
#include "core/base/suggest.h"
#include "core/base/without_signals.h"

namespace pipetwin {

namespace {

/// With O_NONBLOCK a FIFO without a writer is opened at once, and a terminal does not become this
/// process's.
constexpr int reading = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

/// The name of a file in the same folder that may be meant: "gpt-text.toml" for "gpt_text.toml",
/// "gpt-text" and "gpt-text.tml". Empty: none is near.
std::string near_file(const std::filesystem::path& file) {
    constexpr std::size_t most_names = 2000;
    const std::string name = file.filename().string();
    std::vector<std::string> names;
    std::error_code failed;
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    for (auto entry = std::filesystem::directory_iterator(folder, failed);
         !failed && entry != std::filesystem::directory_iterator() && names.size() < most_names;
         entry.increment(failed)) {
        names.push_back(entry->path().filename().string());
    }
    std::ranges::sort(names);
    const auto is_whole = [&name](const std::string& one) {
        return std::filesystem::path(one).stem() == name;
    };
    if (const auto whole = std::ranges::find_if(names, is_whole); whole != names.end()) {
        return (file.parent_path() / *whole).string();
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string_view near = nearest_word(name, known);
    constexpr std::size_t most_slips = 3;
    return near.empty() || edit_distance(name, near) > most_slips
               ? std::string()
               : (file.parent_path() / near).string();
}

std::string hint_of(const std::filesystem::path& file, int code) {
    if (code == EXDEV) {
        return "put the file itself into the folder";
    }
    const std::string near = code == ENOENT ? near_file(file) : "";
    return near.empty() ? io_hint(code) : fmt::format("did you mean '{}'?", near);
}

[[noreturn]] void refuse(const std::filesystem::path& file, std::string_view doing, int code) {
    const std::string why =
        code == EXDEV ? "the name leads out of the folder" : std::generic_category().message(code);
    throw Error(ErrorKind::Io,
                file.string(),
                fmt::format("cannot {}: {}", doing, why),
                hint_of(file, code));
}

std::string_view kind_of(mode_t mode) {
    return S_ISDIR(mode)                    ? "a folder"
           : S_ISFIFO(mode)                 ? "a FIFO"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "neither file nor folder";
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& file)
    : path_(file), descriptor_(without_signals([&] { return ::open(file.c_str(), reading); })) {
    if (descriptor_ < 0) {
        refuse(path_, "open", errno);
    }
    expect_regular();
}

InputFile::InputFile(const std::filesystem::path& folder, const std::filesystem::path& name)
    : path_(folder / name) {
    const std::filesystem::path opened = folder.empty() ? "." : folder;
    const int beneath =
        without_signals([&] { return ::open(opened.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); });
    if (beneath < 0) {
        refuse(opened, "open the folder", errno);
    }
    open_how how{};
    how.flags = reading;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    descriptor_ = static_cast<int>(without_signals(
        [&] { return ::syscall(SYS_openat2, beneath, name.c_str(), &how, sizeof(how)); }));
    const int why = errno;
    ::close(beneath);
    if (descriptor_ < 0) {
        refuse(path_, "open", why);
    }
    expect_regular();
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(other.release()), size_(other.size_) {}

InputFile::~InputFile() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

void InputFile::expect_regular() {
    struct stat about {};
    const int failed = ::fstat(descriptor_, &about) != 0 ? errno : 0;
    if (failed == 0 && S_ISREG(about.st_mode)) {
        size_ = static_cast<std::size_t>(about.st_size);
        return;
    }
    ::close(release());  // no destructor runs for what was never whole
    if (failed != 0) {
        refuse(path_, "read", failed);
    }
    throw Error(ErrorKind::BadInput,
                path_.string(),
                fmt::format("{}, expected a regular file", kind_of(about.st_mode)),
                S_ISDIR(about.st_mode) ? "name a file in it" : "write it to a file, and name that");
}

int InputFile::release() {
    return std::exchange(descriptor_, -1);
}

std::size_t InputFile::read(std::span<char> bytes) {
    const ssize_t count =
        without_signals([&] { return ::read(descriptor_, bytes.data(), bytes.size()); });
    if (count < 0) {
        refuse(path_, "read", errno);
    }
    return static_cast<std::size_t>(count);
}

void InputFile::go_to(std::size_t place) {
    if (::lseek(descriptor_, static_cast<off_t>(place), SEEK_SET) < 0) {
        refuse(path_, "read", errno);
    }
}

std::string InputFile::read_up_to(std::size_t most) {
    constexpr std::size_t at_once = std::size_t{1} << 20U;
    std::string content;
    while (content.size() < most) {
        const std::size_t had = content.size();
        content.resize(had + std::min(most - had, at_once));
        const std::size_t count = read(std::span(content).subspan(had));
        content.resize(had + count);
        if (count == 0) {
            break;
        }
    }
    return content;
}

}  // namespace pipetwin
