// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

/// Meanings of the words in the window and in reports, in a sentence each.
namespace pipetwin::gui {

struct GlossaryEntry {
    std::string_view word;
    std::string_view meaning;
};

/// All entries, in the order in which a reader needs them.
std::span<const GlossaryEntry> glossary();

/// The meaning of `word`; empty for a word that explains itself.
std::string_view meaning_of(std::string_view word);

}  // namespace pipetwin::gui
