// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "cli/base/options.h"
#include "core/base/error.h"

namespace pipetwin::cli {

struct Listener;

/// Properties of the terminal behind the program's streams.
struct Terminal {
    bool out = false;       ///< stdout is a terminal
    bool err = false;       ///< stderr is a terminal
    bool no_color = false;  ///< NO_COLOR is set, or the terminal knows no escape sequences
    bool dumb = false;      ///< the terminal knows no escape sequences: a line stays as it is
    int width = 100;        ///< characters per line
    int out_file = -1;      ///< descriptor of stdout; -1: it is none of the system's
};

/// The terminal of this process. `TERM` says whether it knows escape sequences ("dumb" and a
/// missing one: no); `COLUMNS`, where it is a number from 20 to 1000, how wide a line is, else the
/// terminal itself.
Terminal this_terminal();

/// Styles of text on a terminal; each has a colour.
enum class Style { Strong, Faint, Bad, Good, Hint };

/// Output of the program: results on stdout, everything else on stderr. Whatever is printed passes
/// `printable_lines`: no name from a file reaches a terminal as anything but text.
class Console {
  public:
    /// `listener`: of a program that runs commands as functions, and outlives this; null for
    /// people.
    Console(std::ostream& out,
            std::ostream& err,
            Terminal terminal,
            const Listener* listener = nullptr);

    /// Applies --quiet, --verbose and --color.
    void configure(const CommonOptions& options);

    /// The result of the command, on stdout.
    void result(std::string_view text);
    /// From now on results that cannot be written are kept, and written with those that follow: a
    /// disk may be full for a while. Beyond some megabytes they are lost.
    void keep_results();
    /// Progress and remarks, on stderr, a line each; nothing with --quiet.
    void note(std::string_view text);
    /// A remark of several lines.
    void note_lines(std::string_view text);
    /// "error: place: text" and "hint: ..." on stderr.
    void error(const Error& error);

    /// `text` in a style of the result's stream; unchanged where colours are off.
    std::string styled(Style style, std::string_view text) const;

    const Listener* listener() const { return listener_; }
    bool quiet() const { return quiet_; }
    bool verbose() const { return verbose_; }
    int width() const { return terminal_.width; }
    /// Whether a line on stderr can be written again in its place.
    bool can_redraw() const { return terminal_.err && !terminal_.dumb; }
    /// Writes over the current line of the terminal behind stderr; empty: only wipes it.
    void redraw(std::string_view line);

    /// A console that is like this one, but for its results, which go to `out`.
    Console with_results_in(std::ostream& out) const;

    /// Throws Error(Io) if a result could not be written (a full disk behind a redirection).
    void finish();
    /// Shows what was printed so far.
    void flush();

  private:
    void drop_taken();

    std::ostream* out_;
    std::ostream* err_;
    Terminal terminal_;
    const Listener* listener_;
    bool color_out_ = false;
    bool color_err_ = false;
    bool quiet_ = false;
    bool verbose_ = false;
    bool keeps_ = false;     ///< what could not be written
    bool is_lost_ = false;   ///< more than was kept
    std::string unwritten_;  ///< since the last flush that went well; where it keeps results
    std::optional<std::int64_t> place_;  ///< of `unwritten_` in the file behind stdout
};

}  // namespace pipetwin::cli
