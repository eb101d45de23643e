#pragma once

#include <span>
#include <string_view>

/// What the words on the screen mean, in a sentence each.
namespace pipetwin::gui {

struct GlossaryEntry {
    std::string_view word;
    std::string_view meaning;
};

/// In the order in which a reader needs them.
std::span<const GlossaryEntry> glossary();

/// What stands for `word`; empty for a word that explains itself.
std::string_view meaning_of(std::string_view word);

}  // namespace pipetwin::gui
