// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/text/override.h"
#include "core/text/toml_slips.h"

/// TOML, read strictly: every refusal names the place, what was found and what was expected.
namespace pipetwin {

/// Lowest and highest number that a key takes.
struct Range {
    std::int64_t low = 0;
    std::int64_t high = 0;
};

class TomlTable;

/// A parsed text with overrides put into it, and where everything stands.
class TomlDocument {
  public:
    /// `place` names the text in errors. Throws Error(BadInput) for text that is no TOML or is
    /// nested deeper than 64, and for an override whose key or value is none. `page` says what the
    /// keys may be.
    TomlDocument(std::string_view text,
                 std::string place,
                 const std::vector<Override>& overrides,
                 std::string_view page = "docs/scenario.md");

    /// The outermost table of the document, which must outlive the result.
    TomlTable root() const;

    /// Copies every key of `table` in `other` that `table` lacks here, but for those in `without`.
    /// Errors about them name their place in `other`.
    void fill_in(std::string_view table,
                 const TomlDocument& other,
                 std::span<const std::string_view> without);

    /// Puts `text` in the place of the string that the key of the table has, where that stands.
    void replace_text(std::string_view table, std::string_view key, const std::string& text);

    /// Where the value of `path` ("pipeline.stages") comes from: "--set ..." or file:line:column.
    std::string place_of(std::string_view path, const toml::source_region& source) const;

    /// The error with the place of its key in front of its place: "x.toml:9:13: partition". An
    /// error about no key is one of the whole document, at its beginning. An error that has its
    /// place stays as it is.
    Error placed(const Error& error) const;

    /// The key of the last override that set `path`, a part of it or a table around it; null: none.
    const std::string* override_of(std::string_view path) const;

    /// True if `fill_in` copied the value of `path`.
    bool is_filled_in(std::string_view path) const;

    /// What can be done about a key where nothing better is known.
    std::string where_keys_are(std::string_view path) const;

  private:
    void put(const Override& change);

    std::string place_;
    std::string page_;
    toml::table table_;
    std::vector<std::string> overridden_;                        ///< keys, as given
    std::map<std::string, std::string, std::less<>> filled_in_;  ///< place of each such key
};

/// One table of a document, or the lack of it: a key that is not there reads as empty. Every reader
/// throws Error(BadInput) for a value of another type or outside its range.
class TomlTable {
  public:
    TomlTable(const TomlDocument& document, const toml::table* table, std::string path)
        : document_(&document), table_(table), path_(std::move(path)) {}

    /// Refuses every key that is not `known`, naming the nearest one that is.
    void expect_keys(std::span<const std::string_view> known) const;

    /// True if the table has the key, whatever its value.
    bool has(std::string_view key) const;
    bool is_auto(std::string_view key) const;  ///< the string "auto"
    /// The table of a reader that has asked `is_auto`: what it refuses may be "auto", too, and the
    /// errors say so.
    TomlTable or_auto() const;

    /// The table under the key; an empty one if the key is missing. Throws Error(BadInput) for any
    /// other value.
    TomlTable table(std::string_view key) const;
    std::vector<TomlTable> tables(std::string_view key) const;  ///< an array of tables

    /// true or false; none if the key is missing. Throws Error(BadInput) for a value of another
    /// type.
    std::optional<bool> boolean(std::string_view key) const;
    /// A whole number within `range`; none if the key is missing.
    std::optional<std::int64_t> integer(std::string_view key, Range range) const;
    /// A list of whole numbers, each within `range`; none if the key is missing.
    std::optional<std::vector<int>> integers(std::string_view key, Range range) const;
    /// A list of numbers, each within `range`; none if the key is missing.
    std::optional<std::vector<double>> numbers(std::string_view key, Range range) const;
    /// A list of lists of numbers, each within `range`; none if the key is missing.
    std::optional<std::vector<std::vector<double>>> rows_of_numbers(std::string_view key,
                                                                    Range range) const;
    std::optional<double> number(std::string_view key, Range range) const;  ///< or a whole number
    /// A string; none if the key is missing.
    std::optional<std::string> text(std::string_view key) const;
    /// A list of strings; none if the key is missing.
    std::optional<std::vector<std::string>> texts(std::string_view key) const;
    std::optional<Bytes> bytes(std::string_view key) const;  ///< "4 GiB", or a number of bytes

    /// True if the key has a list of any kind.
    bool is_list(std::string_view key) const;
    /// True if the key has a string.
    bool is_text(std::string_view key) const;
    std::optional<std::vector<Bytes>> all_bytes(std::string_view key) const;  ///< a list of them

    /// The index in `words` of the word that the key has; none if the key is missing. Refuses any
    /// other word, with the nearest one.
    std::optional<std::size_t> choice(std::string_view key,
                                      std::span<const std::string_view> words) const;

    /// The index in `built` of each word in the key's list; none if the key is missing.
    std::optional<std::vector<std::size_t>> choices(std::string_view key,
                                                    std::span<const std::string_view> built) const;

    /// A word of a list by its index, and the number that stands behind it as in "mlp:3".
    struct CountedWord {
        std::size_t word = 0;
        std::optional<int> count{};
    };

    /// The words of a key's list of lists; a list of words is the only one of them. A word may have
    /// a number within `counts`, unless that ends at 0. None if the key is missing.
    std::optional<std::vector<std::vector<CountedWord>>> rows_of_choices(
        std::string_view key, std::span<const std::string_view> built, Range counts = {}) const;

    /// True if the key has a list that begins with a list.
    bool is_list_of_lists(std::string_view key) const;

    /// The whole number of a key that must be there, within `range` and int.
    int required_int(std::string_view key, Range range) const;

    /// Throws Error(BadInput): "place: path.key is missing, expected <expected>".
    [[noreturn]] void missing(std::string_view key, std::string_view expected) const;

    /// Throws Error(BadInput): "place: path.key = <value>, expected <expected>".
    [[noreturn]] void refuse(std::string_view key,
                             std::string_view expected,
                             Hint hint = {},
                             ErrorReason reason = ErrorReason::Other) const;

    /// True if the key's value is of a document that has filled this one in.
    bool is_filled_in(std::string_view key) const;

    /// The place of a key's value, or of the table where the key is not there.
    std::string place(std::string_view key) const;

  private:
    const toml::node* find(std::string_view key) const;
    std::string path_of(std::string_view key) const;
    /// The error about the key, with its place. Its text begins with "pipeline.stages = ", but
    /// where the place names the key.
    Error about(std::string_view key, const Error& error) const;
    /// "write stages = 4", or "write --set pipeline.stages=4" of an overridden key.
    Hint key_with(std::string_view key, std::string_view value) const;
    /// What to do about a value of another kind than `expected`.
    Hint hint_of_value(std::string_view key, ValueKind expected) const;
    /// "pipeline.stages = "; empty where the place of the key names it.
    std::string beside_place(std::string_view key) const;

    /// The values that `read` makes of the elements of a list; an element of which it makes nothing
    /// is refused, with the hint that `hint_of` makes of it.
    template <class Read>
    auto list(std::string_view key,
              std::string_view of,
              ValueKind kind,
              const std::string& expected,
              Read read,
              const std::function<Hint(const toml::node&)>& hint_of = {}) const;

    const TomlDocument* document_;
    const toml::table* table_;
    std::string path_;
    bool may_be_auto_ = false;
};

}  // namespace pipetwin
