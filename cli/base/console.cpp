#include "cli/base/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ostream>

#include <fmt/format.h>

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

}  // namespace

Terminal this_terminal() {
    Terminal terminal;
    terminal.out = isatty(STDOUT_FILENO) == 1;
    terminal.err = isatty(STDERR_FILENO) == 1;
    const char* const no_color =
        std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): before any thread
    terminal.no_color = no_color != nullptr && *no_color != '\0';
    winsize size{};
    if (terminal.out && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) {
        terminal.width = size.ws_col;
    }
    return terminal;
}

Console::Console(std::ostream& out, std::ostream& err, Terminal terminal)
    : out_(&out),
      err_(&err),
      terminal_(terminal),
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
    if (keeps_ && !is_lost_) {
        constexpr std::size_t most_kept = std::size_t{16} << 20U;
        is_lost_ = unwritten_.size() > most_kept;
        unwritten_ += text;
    }
    if (*out_ || !keeps_) {
        *out_ << text;
    }
}

void Console::note(std::string_view text) {
    if (!quiet_) {
        *err_ << text << '\n' << std::flush;
    }
}

void Console::detail(std::string_view text) {
    if (verbose_) {
        *err_ << text << '\n' << std::flush;
    }
}

void Console::error(const Error& error) {
    *err_ << painted(color_err_, Style::Bad, "error:") << ' ';
    if (!error.place().empty()) {
        *err_ << painted(color_err_, Style::Strong, error.place() + ":") << ' ';
    }
    *err_ << error.text() << '\n';
    if (!error.hint().empty()) {
        *err_ << painted(color_err_, Style::Hint, "hint:") << ' ' << error.hint() << '\n';
    }
    *err_ << std::flush;
}

std::string Console::styled(Style style, std::string_view text) const {
    return painted(color_out_, style, text);
}

void Console::flush() {
    if (!*out_ && keeps_) {
        out_->clear();
        *out_ << unwritten_;
    }
    out_->flush();
    if (*out_ || is_lost_) {
        unwritten_.clear();
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
