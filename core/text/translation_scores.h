// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipetwin {

/// A text of a translator and the text that it should be, both in UTF-8.
struct TranslatedText {
    std::string hypothesis;
    std::string reference;

    bool operator==(const TranslatedText&) const = default;
};

/// Corpus BLEU of 0 to 100 (Papineni et al. 2002): the geometric mean of the precisions of 1-grams
/// to 4-grams of words, summed over all texts, times the brevity penalty. Words are those of
/// `words_of`, with upper and lower case apart; an order without a match gets half of the precision
/// of one match, the next one a quarter and so on. As sacreBLEU by default
/// ("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"). Languages without spaces have no words there.
double bleu(std::span<const TranslatedText> texts);

/// chrF2 of 0 to 100 (Popovic 2015, 2016): the F score of 1-grams to 6-grams of characters without
/// whitespace, where recall counts twice as much as precision; both are means over the orders that
/// hypotheses and references have. As sacreBLEU by default
/// ("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"). A byte that begins no UTF-8 counts as a
/// character.
double chrf(std::span<const TranslatedText> texts);

/// The words of a text by the rules of mteval-v13a, which sacreBLEU calls "13a": punctuation and
/// symbols of ASCII are words of their own, but for a hyphen behind a letter, an apostrophe, and a
/// full stop or a comma between two digits.
std::vector<std::string> words_of(std::string_view text);

}  // namespace pipetwin
