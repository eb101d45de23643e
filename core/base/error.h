// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pipetwin {

/// Kind of a failure. `cli/base/exit.cpp` maps each kind to an exit code; nothing else knows exit
/// codes.
enum class ErrorKind {
    Other,
    Usage,
    BadInput,      ///< a file or value that its grammar refuses
    Infeasible,    ///< does not fit, deadlock, incomplete schedule
    Unavailable,   ///< backend, device or feature that is not there
    Io,            ///< disk full, permission, folder in use
    WorkerFailed,  ///< a stage threw
    Hang,
    NotFinite,     ///< NaN or infinity
    Disagreement,  ///< ranks disagree
};

/// What an error says, where code acts on it.
enum class ErrorReason {
    Other,          ///< no code asks
    Memory,         ///< a rank, a device or the host has too little memory
    NoCosts,        ///< the profile has no costs at a size of micro-batches
    NoNetwork,      ///< nothing says what connects nodes
    ScheduleRule,   ///< the shape breaks a rule of its schedule
    SharingFits,    ///< no plan fits, but one would where devices share layers or state
    TooFewDevices,  ///< what the hint sets cluster.count to is enough
};

/// A key of a scenario and a value as TOML writes it: {"pipeline.stages", "4"}. Without a value it
/// is the key alone.
struct KeyValue {
    std::string key;
    std::string value{};

    friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

/// "stages = 4", as it is written below the header of its table.
std::string line_of_table(const KeyValue& setting);

/// "pipeline.stages = 4".
std::string with_its_table(const KeyValue& setting);

/// What to do about an error: a sentence, and the values that it is about.
struct Hint {
    Hint() = default;
    Hint(std::string text) : form(std::move(text)) {}
    Hint(const char* text) : form(text) {}
    /// `text` has "{}" for each of `named`, up to the last that it spells. Each changes or avoids
    /// the error.
    Hint(std::string text, std::vector<KeyValue> named)
        : form(std::move(text)), settings(std::move(named)) {}

    bool empty() const { return form.empty() && resume.empty(); }
    /// The sentence, with settings spelt by `spell`.
    std::string text(std::string (*spell)(const KeyValue&) = line_of_table) const;

    std::string form;
    std::vector<KeyValue> settings{};
    std::string meant{};   ///< the word that was meant, in "did you mean 'gpipe'?"; or empty
    std::string resume{};  ///< how a training continues from a checkpoint; or empty
};

/// "did you mean 'gpipe'?"
Hint did_you_mean(std::string_view word);

/// The one exception for an operation that cannot go on. what() is "<place>: <text>" and, on a
/// second line, "hint: <hint>"; empty parts are left out. Parts are made printable; the text keeps
/// its lines. Code that acts on an error asks its kind, reason and key, never its words.
class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, std::string place, std::string text, Hint hint = {});
    /// An error whose place is a key, or a key and its value: "pipeline.recompute = \"block\"".
    Error(ErrorKind kind, const KeyValue& subject, std::string text, Hint hint = {});

    ErrorKind kind() const { return kind_; }
    ErrorReason reason() const { return reason_; }
    const std::string& place() const { return place_; }
    const std::string& text() const { return text_; }
    const std::string& hint() const { return hint_text_; }
    const Hint& advice() const { return hint_; }  ///< the hint, with its values

    /// The key of a scenario that the error is about, "pipeline.stages"; empty: none is known.
    const std::string& key() const { return subject_.key; }
    const KeyValue& subject() const { return subject_; }  ///< that key with the value it has
    /// Whether the place is that of the key in its file, or of the option that set it.
    bool is_placed() const { return is_placed_; }
    /// Whether `place` is all that is known of where the error is.
    bool is_at(std::string_view place) const { return place_ == place; }

    /// Returns a copy of this error with `outer` put before its place ("rank 1, 1F2: ...").
    Error at(std::string_view outer) const;
    /// Returns a copy of this error that is about the key, wherever that stands.
    Error about(std::string key) const;
    /// Returns a copy of this error with `place` in the stead of its place; there its key stands.
    Error placed(std::string place) const;
    Error because(ErrorReason reason) const;  ///< a copy with this reason
    Error with_kind(ErrorKind kind) const;    ///< a copy with this kind
    Error with_text(std::string text) const;  ///< a copy with this text
    Error with_hint(Hint hint) const;         ///< a copy with this hint

  private:
    /// what() of the parts as they are.
    Error anew() const;

    ErrorKind kind_;
    ErrorReason reason_ = ErrorReason::Other;
    bool is_placed_ = false;
    std::string place_;
    std::string text_;
    Hint hint_;
    std::string hint_text_;
    KeyValue subject_;
};

/// A broken contract between two parts of the program: a bug, never the user's doing.
class InternalError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

/// Throws InternalError with the condition, the text, and name and line of the source; called by
/// PIPETWIN_EXPECT.
[[noreturn]] void contract_broken(const char* condition,
                                  std::string_view text,
                                  const std::source_location& where);

}  // namespace pipetwin

/// Checks a contract in every build type.
#define PIPETWIN_EXPECT(condition, text)                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            ::pipetwin::contract_broken(#condition, text, std::source_location::current()); \
        }                                                                                   \
    } while (false)
