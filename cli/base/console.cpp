// SPDX-License-Identifier: Apache-2.0
#include "cli/base/console.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <system_error>

#include <fmt/format.h>

#include "cli/base/listener.h"
#include "core/base/printable.h"
#include "exec/base/retry.h"

namespace pipetwin::cli {

namespace {

std::string_view escape_code(Style style) {
    switch (style) {
        case Style::Strong:
            return "1";
        case Style::Faint:
            return "2";
        case Style::Bad:
            return "1;31";
        case Style::Good:
            return "32";
        case Style::Hint:
            return "36";
    }
    PIPETWIN_EXPECT(false, "style out of range");
}

std::string painted(bool color, Style style, std::string_view text) {
    return color ? fmt::format("\x1b[{}m{}\x1b[0m", escape_code(style), text) : std::string(text);
}

/// The lines of a text. One that looks like a message of its own, because a name from a file has an
/// end of line in it, is indented.
std::string with_indented_labels(std::string_view text) {
    std::string lines;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = text.substr(begin, end - begin);
        const bool looks_like_one = line.starts_with("error:") || line.starts_with("hint:");
        lines += begin == 0 ? "" : looks_like_one ? "\n  " : "\n";
        lines += line;
        begin = end + 1;
    }
    return lines;
}

constexpr int narrowest = 20;
constexpr int widest = 1000;

/// The value of an environment variable; empty where it is not set.
std::string_view environment(const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before threads
    return value == nullptr ? std::string_view() : std::string_view(value);
}

/// The place in a regular file that the next write goes to; none where others may write to it, too:
/// it is stderr as well, or is appended to.
std::optional<std::int64_t> place_in(int file) {
    struct stat about {};
    struct stat of_stderr {};
    const bool is_own = file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
                        (fcntl(file, F_GETFL) & O_APPEND) == 0 &&
                        (fstat(STDERR_FILENO, &of_stderr) != 0 ||
                         of_stderr.st_dev != about.st_dev || of_stderr.st_ino != about.st_ino);
    const off_t place = is_own ? lseek(file, 0, SEEK_CUR) : -1;
    return place < 0 ? std::nullopt : std::optional<std::int64_t>(place);
}

/// A number of columns that lines can have; none for any other text.
std::optional<int> width_in(std::string_view text) {
    int width = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), width);
    const bool is_width = status == std::errc{} && rest == text.data() + text.size() &&
                          width >= narrowest && width <= widest;
    return is_width ? std::optional(width) : std::nullopt;
}

}  // namespace

Terminal this_terminal() {
    Terminal terminal;
    terminal.out = isatty(STDOUT_FILENO) == 1;
    terminal.err = isatty(STDERR_FILENO) == 1;
    terminal.out_file = STDOUT_FILENO;
    const std::string_view kind = environment("TERM");
    terminal.dumb = kind.empty() || kind == "dumb";
    terminal.no_color = terminal.dumb || !environment("NO_COLOR").empty();
    winsize size{};
    const bool knows_size = (terminal.out && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) ||
                            (terminal.err && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0);
    if (const std::optional<int> columns = width_in(environment("COLUMNS"))) {
        terminal.width = *columns;
    } else if (knows_size && size.ws_col > 0) {
        terminal.width = std::clamp(int{size.ws_col}, narrowest, widest);
    }
    return terminal;
}

Console::Console(std::ostream& out, std::ostream& err, Terminal terminal, const Listener* listener)
    : out_(&out),
      err_(&err),
      terminal_(terminal),
      listener_(listener),
      color_out_(terminal.out && !terminal.no_color),
      color_err_(terminal.err && !terminal.no_color) {}

void Console::configure(const CommonOptions& options) {
    quiet_ = options.quiet;
    verbose_ = options.verbose;
    if (options.color != ColorMode::Auto) {
        color_out_ = options.color == ColorMode::Always;
        color_err_ = color_out_;
    }
}

void Console::result(std::string_view text) {
    const Colours colours = color_out_ ? Colours::Kept : Colours::Escaped;
    const std::string shown = with_indented_labels(printable_lines(text, colours));
    if (keeps_ && !is_lost_) {
        constexpr std::size_t most_kept = std::size_t{16} << 20U;
        is_lost_ = unwritten_.size() > most_kept;
        unwritten_ += shown;
    }
    if (*out_ || !keeps_) {
        *out_ << shown;
    }
}

void Console::note(std::string_view text) {
    if (!quiet_) {
        *err_ << printable(text) << '\n' << std::flush;
    }
}

void Console::note_lines(std::string_view text) {
    if (!quiet_) {
        *err_ << with_indented_labels(printable_lines(text)) << '\n' << std::flush;
    }
}

void Console::error(const Error& error) {
    if (listener_ != nullptr && listener_->error) {
        listener_->error(error);
    }
    *err_ << painted(color_err_, Style::Bad, "error:") << ' ';
    if (!error.place().empty()) {
        *err_ << painted(color_err_, Style::Strong, error.place() + ":") << ' ';
    }
    *err_ << with_indented_labels(error.text()) << '\n';
    if (!error.hint().empty()) {
        *err_ << painted(color_err_, Style::Hint, "hint:") << ' ' << error.hint() << '\n';
    }
    *err_ << std::flush;
}

std::string Console::styled(Style style, std::string_view text) const {
    return painted(color_out_, style, text);
}

void Console::redraw(std::string_view line) {
    *err_ << "\r\x1b[K" << printable(line) << std::flush;
}

Console Console::with_results_in(std::ostream& out) const {
    Console other = *this;
    other.out_ = &out;
    other.terminal_.out_file = -1;
    other.unwritten_.clear();
    other.place_.reset();
    other.is_lost_ = false;
    return other;
}

void Console::keep_results() {
    out_->flush();
    keeps_ = true;
    place_ = place_in(terminal_.out_file);
}

/// A disk that becomes full takes the beginning of a write: that is not written again.
void Console::drop_taken() {
    const std::optional<std::int64_t> place = place_in(terminal_.out_file);
    if (place && place_ && *place > *place_) {
        unwritten_.erase(0, static_cast<std::size_t>(*place - *place_));
        place_ = place;
    }
}

void Console::flush() {
    if (!*out_ && keeps_) {
        out_->clear();
        drop_taken();
        *out_ << unwritten_;
    }
    out_->flush();
    if (*out_ || is_lost_) {
        unwritten_.clear();
        place_ = keeps_ ? place_in(terminal_.out_file) : std::nullopt;
    }
}

void Console::finish() {
    const auto write = [this] {
        flush();
        if (!*out_ || is_lost_) {
            throw Error(
                ErrorKind::Io, "stdout", "the result could not be written", "is the disk full?");
        }
    };
    const bool waits = keeps_ && !is_lost_;
    exec::keep_trying(
        waits ? exec::disk_patience : std::chrono::seconds(0), write, [](const Error&) {});
}

}  // namespace pipetwin::cli
