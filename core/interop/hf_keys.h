// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/json_object.h"

namespace pipetwin {

/// `HfSize::otherwise` of a size without which a file is refused.
constexpr int hf_required = -1;
/// `HfSize::otherwise` of a size that follows from others where the file does not say it.
constexpr int hf_derived = -2;

/// A size in Hugging Face's config.json: the names of its key, of which the first that is there
/// counts, and the value where none is.
struct HfSize {
    std::vector<std::string_view> keys{};
    int otherwise = hf_required;

    bool is_read() const { return !keys.empty(); }
};

/// An answer in Hugging Face's config.json: the names of its key, and the answer where none is
/// there. Without a name the answer is the same for all files.
struct HfFlag {
    std::vector<std::string_view> keys{};
    bool otherwise = false;
};

/// Values of a config.json. A key that is null stands for one that is not there. Every refusal is
/// an Error(BadInput) with the JSON pointer, what was found and what was expected.
class HfConfig {
  public:
    /// `object` must outlive it.
    explicit HfConfig(const JsonObject& object) : object_(object) {}

    /// True if the key is there and not null. It counts as read.
    bool has(std::string_view key) const;

    /// Notes that the key's meaning is known, whatever its value.
    void mark_read(std::string_view key) const { read_.emplace(key); }

    /// A whole number from `least` to `most`; a list of equal ones stands for one of them. Throws
    /// if the key is missing.
    int size_at(std::string_view key, int most, int least = 1) const;
    /// The size under the first of its keys that is there, else `otherwise`. Throws if that is
    /// `hf_required`.
    int size(const HfSize& size, int most, int least = 1) const;
    /// The answer under the first of its keys that is there, else `otherwise`.
    bool flag(const HfFlag& flag) const;

    /// The first of the keys that is there, else the first of them.
    std::string_view name(const HfSize& size) const;

    /// Throws Error(BadInput) for the value of the key.
    [[noreturn]] void refuse(std::string_view key,
                             std::string_view expected,
                             std::string hint) const;

    /// The file's object; what is read from it directly does not count as read.
    const JsonObject& object() const { return object_; }

    /// Returns the keys that are there with a value that says something (not null, false, 0, 1, ""
    /// or an empty list) and that nothing has asked for.
    std::vector<std::string_view> unread(const std::vector<std::string_view>& keys) const;

    /// Returns the keys of the file that nothing has asked for, whose value says something, and
    /// that `hf_is_harmless` does not know.
    std::vector<std::string> unknown() const;

    /// A key of the file that nothing has asked for, and the key that may be meant by it.
    struct Misspelt {
        std::string there;
        std::string meant;
    };
    /// Returns the keys of the file that nothing has asked for and that differ by one letter, or
    /// two of twelve and more, from a key that was asked for and is not there.
    std::vector<Misspelt> misspelt() const;

  private:
    const JsonObject& object_;
    mutable std::set<std::string, std::less<>> read_;
};

/// True if a key of a config.json is known to change neither sizes nor work: those of tokens, of
/// generating text, of initial weights, of positions, of dropout and losses.
bool hf_is_harmless(std::string_view key);

}  // namespace pipetwin
