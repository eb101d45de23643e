// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/data/pairs/language_draw.h"
#include "exec/data/pairs/mo_file.h"
#include "exec/data/pairs/pair_corpus.h"
#include "exec/data/pairs/pair_tokens.h"
#include "exec/data/pairs/text_pieces.h"
#include "tests/support/mo_file.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace pairs_test {

namespace fs = std::filesystem;
using namespace std::string_view_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Order = tests::ByteOrder;
using Rows = tests::MoRows;
using tests::mo_file;

Rows with_header(const std::string& charset, Rows rows) {
    rows.insert(rows.begin(),
                {"", "Language: de\nContent-Type: text/plain; charset=" + charset + "\nX: y\n"});
    return rows;
}

template <class Call>
Error error_of(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {ErrorKind::Other, "", ""};
}

TEST(MoFile, HasItsEntriesInEitherByteOrder) {
    const Rows rows =
        with_header("UTF-8", {{"File not found", "Datei nicht gefunden"}, {"Open", "Öffnen"}});
    for (const Order order : {Order::LittleEndian, Order::BigEndian}) {
        const Catalogue found = read_mo(mo_file(rows, order), "de.mo");
        EXPECT_THAT(found.entries,
                    ElementsAre(CatalogueEntry{"File not found", "Datei nicht gefunden"},
                                CatalogueEntry{"Open", "Öffnen"}));
        EXPECT_EQ(found.undecodable, 0U);
    }
}

TEST(MoFile, LeavesOutContextsAndTakesTheFirstAndTheLastPluralForm) {
    const Rows rows = {
        {"menu\4Open", "Öffnen"},
        {std::string("%d file\0%d files", 16), std::string("%d plik\0%d pliki\0%d plików"sv)}};
    EXPECT_THAT(read_mo(mo_file(rows), "pl.mo").entries,
                ElementsAre(CatalogueEntry{"Open", "Öffnen"},
                            CatalogueEntry{"%d file", "%d plik"},
                            CatalogueEntry{"%d files", "%d plików"}));
}

TEST(MoFile, IsConvertedFromTheCharsetOfItsHeader) {
    const Rows latin = with_header("ISO-8859-1",
                                   {{"Open",
                                     "\xd6"
                                     "ffnen"}});
    EXPECT_THAT(read_mo(mo_file(latin), "de.mo").entries,
                ElementsAre(CatalogueEntry{"Open", "Öffnen"}));
    const Rows mixed = with_header("UTF-8",
                                   {{"Open",
                                     "\xd6"
                                     "ffnen"},
                                    {"Close", "Schließen"}});
    const Catalogue found = read_mo(mo_file(mixed), "de.mo");
    EXPECT_THAT(found.entries, ElementsAre(CatalogueEntry{"Close", "Schließen"}));
    EXPECT_EQ(found.undecodable, 1U);
    const Error unknown = error_of([] { read_mo(mo_file(with_header("KLINGON", {})), "tlh.mo"); });
    EXPECT_EQ(unknown.kind(), ErrorKind::BadInput);
    EXPECT_EQ(unknown.place(), "tlh.mo");
    EXPECT_THAT(unknown.text(), HasSubstr("'KLINGON'"));
}

TEST(MoFile, MayBeEmpty) {
    EXPECT_THAT(read_mo(mo_file({}), "de.mo").entries, IsEmpty());
}

TEST(MoFile, ThatEndsEarlyIsRefusedWithTheByte) {
    const std::string whole =
        mo_file(with_header("UTF-8", {{"Open", "Öffnen"}, {"Close", "Schließen"}}));
    for (std::size_t length = 0; length + 1 < whole.size(); ++length) {
        SCOPED_TRACE(length);
        const Error error =
            error_of([&] { read_mo(std::string_view(whole).substr(0, length), "de.mo"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.place(), HasSubstr("de.mo: byte "));
    }
    EXPECT_NO_THROW(
        read_mo(std::string_view(whole).substr(0, whole.size() - 1), "de.mo"));  // the last 0
}

TEST(MoFile, WithWrongNumbersIsRefused) {
    std::string other = mo_file({});
    other[0] = 'x';
    EXPECT_THAT(error_of([&] { read_mo(other, "x.mo"); }).text(),
                HasSubstr("no message catalogue"));
    std::string many = mo_file({});
    many[11] = '\x7f';
    EXPECT_THAT(error_of([&] { read_mo(many, "x.mo"); }).text(),
                HasSubstr("do not fit into 28 bytes"));
    std::string later = mo_file({});
    later[6] = '\x02';
    EXPECT_THAT(error_of([&] { read_mo(later, "x.mo"); }).text(), HasSubstr("revision 2"));
}

LanguagePairs sifted(std::vector<TextPair> pairs, PairsLeftOut& left_out) {
    return sift("de", std::move(pairs), {}, left_out);
}

std::vector<TextPair> all_of(const LanguagePairs& pairs) {
    std::vector<TextPair> all = pairs.training;
    all.insert(all.end(), pairs.validation.begin(), pairs.validation.end());
    std::ranges::sort(all, {}, &TextPair::english);
    return all;
}

TEST(PairCorpus, LeavesOutAndCountsByRule) {
    PairsLeftOut left_out;
    const LanguagePairs found = sifted({{"File not found", "Datei nicht gefunden"},
                                        {"Cannot open", "Kann nicht öffnen"},
                                        {"Cannot open", "Öffnen misslungen"},
                                        {"Nothing here", ""},
                                        {"Terminal", "Terminal"},
                                        {"Two\nlines of text", "Zwei Zeilen Text"},
                                        {"Tab in it", "Tabulator\tdarin"},
                                        {"Short", "Kurze Sache"},
                                        {std::string(127, 'a'), "zu lang geworden"},
                                        {"abcdefgh", std::string(33, 'b')}},
                                       left_out);
    EXPECT_THAT(all_of(found),
                ElementsAre(TextPair{"Cannot open", "Kann nicht öffnen"},
                            TextPair{"File not found", "Datei nicht gefunden"}));
    EXPECT_EQ(left_out.repeated, 1U);
    EXPECT_EQ(left_out.untranslated, 2U);
    EXPECT_EQ(left_out.of_lines, 2U);
    EXPECT_EQ(left_out.short_ones, 1U);
    EXPECT_EQ(left_out.long_ones, 1U);
    EXPECT_EQ(left_out.uneven, 1U);
    EXPECT_EQ(left_out.sum(), 8U);
}

// Eight letters in three bytes each are 24 bytes: 1 to 4 by characters, 1 to 1.33 by bytes.
TEST(PairCorpus, ComparesLengthsInCharacters) {
    PairsLeftOut left_out;
    std::string letters;
    for (int i = 0; i < 8; ++i) {
        letters += "あ";
    }
    EXPECT_THAT(all_of(sifted({{std::string(32, 'a'), letters}}, left_out)), SizeIs(1));
    EXPECT_THAT(all_of(sifted({{std::string(33, 'a'), letters}}, left_out)), IsEmpty());
    EXPECT_EQ(left_out.uneven, 1U);
}

TEST(PairCorpus, KeepsATextOutOfTrainingInEveryLanguage) {
    std::vector<TextPair> german;
    std::vector<TextPair> french;
    for (int i = 0; i < 5000; ++i) {
        const std::string text = "message number " + std::to_string(i);
        german.push_back({text, "Nachricht Nummer " + std::to_string(i)});
        french.push_back({text, "message nr. " + std::to_string(i)});
    }
    PairsLeftOut left_out;
    const LanguagePairs de = sift("de", german, {}, left_out);
    const LanguagePairs fr = sift("fr", french, {}, left_out);
    std::set<std::string> held_out;
    for (const TextPair& pair : de.validation) {
        held_out.insert(pair.english);
    }
    // Binomial with p = 1/50: 100 expected, standard deviation 9.9.
    EXPECT_NEAR(static_cast<double>(held_out.size()), 100, 40);
    EXPECT_EQ(fr.validation.size(), held_out.size());
    for (const TextPair& pair : fr.training) {
        EXPECT_FALSE(held_out.contains(pair.english));
    }
}

class Catalogues : public ::testing::Test {
  protected:
    void put(const std::string& language, const std::string& name, const std::string& bytes) const {
        fs::create_directories(folder.path() / language / "LC_MESSAGES");
        folder.write(language + "/LC_MESSAGES/" + name, bytes);
    }
    const tests::ScratchFolder folder;
};

TEST_F(Catalogues, AreReadOfEveryLanguageAndBrokenOnesAreNamed) {
    put("de", "a.mo", mo_file({{"File not found", "Datei nicht gefunden"}}));
    put("de", "b.mo", "no catalogue at all, but long enough");
    put("de", "notes.txt", "not read");
    put("nb", "a.mo", mo_file({{"File not found", "Fant ikke filen"}}));
    put("no", "b.mo", mo_file({{"Cannot open", "Kan ikke åpne"}}));
    const PairCorpus corpus = read_catalogues({folder.path()}, {"nb", "de"}, {});
    ASSERT_THAT(corpus.languages, SizeIs(2));
    EXPECT_EQ(corpus.languages[0].language, "nb");
    EXPECT_THAT(all_of(corpus.languages[0]),
                ElementsAre(TextPair{"Cannot open", "Kan ikke åpne"},
                            TextPair{"File not found", "Fant ikke filen"}));
    EXPECT_THAT(all_of(corpus.languages[1]), SizeIs(1));
    EXPECT_EQ(corpus.files, 3U);
    EXPECT_THAT(corpus.broken_files,
                ElementsAre(::testing::AllOf(HasSubstr("b.mo: byte 0"),
                                             HasSubstr("no message catalogue"))));
}

TEST_F(Catalogues, OfSeveralFoldersAreReadInTheirOrder) {
    put("de", "a.mo", mo_file({{"File not found", "Datei nicht gefunden"}}));
    put("more/de",
        "a.mo",
        mo_file({{"File not found", "Nichts da."}, {"Cannot open", "Geht nicht"}}));
    const PairCorpus corpus = read_catalogues({folder.path(), folder.path() / "more"}, {"de"}, {});
    EXPECT_THAT(all_of(corpus.languages[0]),
                ElementsAre(TextPair{"Cannot open", "Geht nicht"},
                            TextPair{"File not found", "Datei nicht gefunden"}));
    EXPECT_EQ(corpus.left_out.repeated, 1U);
}

TEST_F(Catalogues, OfALanguageThatIsNotThereAreRefused) {
    put("de", "a.mo", mo_file({{"Yes", "Ja"}}));
    const Error missing = error_of([&] { read_catalogues({folder.path()}, {"fr"}, {}); });
    EXPECT_EQ(missing.kind(), ErrorKind::BadInput);
    EXPECT_THAT(missing.text(), HasSubstr("fr/LC_MESSAGES/*.mo"));
    const Error empty = error_of([&] { read_catalogues({folder.path()}, {"de"}, {}); });
    EXPECT_THAT(empty.text(), HasSubstr("no pair for training in 1 catalogue"));
    const Error nowhere = error_of([&] { read_catalogues({folder.path() / "none"}, {"de"}, {}); });
    EXPECT_EQ(nowhere.kind(), ErrorKind::BadInput);
}

TEST(PairTokens, BeginWithTheLanguageAndEndWithTheEnd) {
    const PairVocabulary vocabulary({"de", "fr"});
    const PairTokens pair = vocabulary.tokens("No", "Nö", "fr");
    EXPECT_THAT(pair.source, ElementsAre(260, 'N', 'o', 258));
    EXPECT_THAT(pair.target_inputs, ElementsAre(257, 'N', 0xc3, 0xb6));
    EXPECT_THAT(pair.targets, ElementsAre('N', 0xc3, 0xb6, 258));
}

TEST(PairTokens, BecomeTheTextAgainUpToTheFirstEnd) {
    const PairVocabulary vocabulary({"de"});
    const PairTokens pair = vocabulary.tokens("Open", "Öffnen", "de");
    EXPECT_EQ(vocabulary.text_of(pair.targets), "Öffnen");
    const std::vector<std::int32_t> generated{257, 'a', 256, 'b', 259, 258, 'c'};
    EXPECT_EQ(vocabulary.text_of(generated), "ab");
}

TEST(PairTokens, NeedAVocabularyOfAMultipleOf64) {
    EXPECT_EQ(PairVocabulary({"de"}).size(), 320);
    std::vector<std::string> languages;
    for (int i = 0; i < 61; ++i) {
        languages.push_back("x" + std::to_string(i));
    }
    EXPECT_EQ(PairVocabulary(languages).size(), 320);
    languages.emplace_back("one more");
    EXPECT_EQ(PairVocabulary(languages).size(), 384);
    PairVocabulary({"de"}).require_room(320);
    const Error error = error_of([] { PairVocabulary({"de"}).require_room(300); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "model.vocabulary");
    EXPECT_THAT(error.text(), HasSubstr("300, expected at least 320"));
    EXPECT_EQ(error.hint(), "set vocabulary = 320");
}

TEST(PairTokens, KnowNoOtherLanguage) {
    const Error error = error_of([] { PairVocabulary({"de", "fr"}).source_tokens("Open", "es"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("de, fr"));
}

/// Pieces of a few texts.
TextPieces few_pieces(int count) {
    return TextPieces::trained_on(
        {"Open file", "Open folder", "Close file", "Close folder", "Open the file", "Öffnen"},
        count);
}

constexpr const char* without_library = "built without SentencePiece";

TEST(TextPieces, AreBytesWithoutAModel) {
    const TextPieces bytes;
    EXPECT_TRUE(bytes.are_bytes());
    EXPECT_EQ(bytes.count(), 256);
    EXPECT_THAT(bytes.ids("Nö"), ElementsAre('N', 0xc3, 0xb6));
    EXPECT_EQ(bytes.text(bytes.ids("Nö")), "Nö");
    EXPECT_EQ(bytes.model(), "");
}

TEST(TextPieces, OfAnyTextBecomeTheTextAgain) {
    if (!TextPieces::knows_models()) {
        GTEST_SKIP() << without_library;
    }
    const TextPieces pieces = few_pieces(300);
    EXPECT_EQ(pieces.count(), 300);
    for (const char* const text : {"Open file",
                                   "",
                                   "two  blanks and one behind ",
                                   " one in front",
                                   "%s: ½ 日本語",  // no character of these was in the texts
                                   "fi"}) {
        EXPECT_EQ(pieces.text(pieces.ids(text)), text);
    }
    // The words that come most often are single pieces: two for two words, fewer than bytes.
    EXPECT_EQ(pieces.ids("Open file").size(), 2);
    const std::vector<std::int32_t> strange{-1, pieces.ids("Open")[0], 300, 1'000'000};
    EXPECT_EQ(pieces.text(strange), "Open");
}

TEST(TextPieces, FollowFromTheTextsAndAreKeptInAFile) {
    if (!TextPieces::knows_models()) {
        GTEST_SKIP() << without_library;
    }
    const TextPieces pieces = few_pieces(300);
    const std::string model = pieces.model();
    few_pieces(301);  // another one takes the place of the one that was kept
    EXPECT_EQ(few_pieces(300).model(), model);
    const TextPieces again = TextPieces::of_model(model, "a.model");
    EXPECT_EQ(again.ids("Close the folder"), pieces.ids("Close the folder"));
}

TEST(TextPieces, OfNoModelAreRefused) {
    const auto refusal = [](const std::string& content) {
        return error_of([&] { TextPieces::of_model(content, "a.model"); });
    };
    if (!TextPieces::knows_models()) {
        EXPECT_EQ(refusal("").kind(), ErrorKind::Unavailable);
        return;
    }
    const TextPieces pieces = few_pieces(300);
    for (const char* const content : {"", "no model at all", "\n\x0e\n\x05<unk>"}) {
        EXPECT_EQ(refusal(content).kind(), ErrorKind::BadInput) << content;
        EXPECT_EQ(refusal(content).place(), "a.model");
    }
    // A part of a file either is refused or has fewer pieces, all of which are texts.
    for (std::size_t size = 0; size < pieces.model().size(); size += 7) {
        try {
            const TextPieces part = TextPieces::of_model(pieces.model().substr(0, size), "a");
            EXPECT_LE(part.count(), pieces.count());
            part.text(part.ids("Open the file"));
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        }
    }
    const Error many = error_of([&] { few_pieces(5000); });
    EXPECT_EQ(many.place(), "data.pieces");
    EXPECT_THAT(many.text(), HasSubstr("5000 pieces of 6 training texts: Vocabulary size"));
}

// p ~ D^(1/T), within four standard deviations of a binomial.
TEST(LanguageDraw, TakesLanguagesByTheirSizeAndTheTemperature) {
    const std::vector<std::uint64_t> sizes = {40000, 10000, 2500};
    constexpr std::uint64_t draws = 200'000;
    for (const double temperature : {1.0, 5.0}) {
        std::vector<double> weights;
        double sum = 0;
        for (const std::uint64_t size : sizes) {
            weights.push_back(std::pow(static_cast<double>(size), 1 / temperature));
            sum += weights.back();
        }
        const LanguageDraw draw(sizes, temperature, RandomStream(7));
        std::vector<double> found(sizes.size());
        for (const LanguageDraw::Place& place : draw.draws(0, draws)) {
            ++found[place.language];
        }
        for (std::size_t language = 0; language < sizes.size(); ++language) {
            const double p = weights[language] / sum;
            EXPECT_NEAR(draw.probabilities()[language], p, 1e-12);
            EXPECT_NEAR(found[language] / draws, p, 4 * std::sqrt(p * (1 - p) / draws));
        }
    }
}

TEST(LanguageDraw, TakesEveryPairOfALanguageOnceBeforeItTakesOneAgain) {
    const LanguageDraw draw({5, 3}, 1, RandomStream(1));
    std::vector<std::vector<std::uint64_t>> taken(2);
    for (const LanguageDraw::Place& place : draw.draws(0, 400)) {
        taken[place.language].push_back(place.pair);
    }
    for (std::size_t language = 0; language < 2; ++language) {
        const std::size_t size = language == 0 ? 5 : 3;
        for (std::size_t begin = 0; begin + size <= taken[language].size(); begin += size) {
            const auto first = taken[language].begin() + static_cast<std::ptrdiff_t>(begin);
            const std::set<std::uint64_t> epoch(first, first + static_cast<std::ptrdiff_t>(size));
            EXPECT_THAT(epoch, SizeIs(size));
        }
    }
}

TEST(LanguageDraw, GivesWhatTheNumberSaysInWhateverOrderItIsAsked) {
    const LanguageDraw once({50, 20, 7}, 5, RandomStream(3));
    const std::vector<LanguageDraw::Place> all = once.draws(0, 300);
    const LanguageDraw draw({50, 20, 7}, 5, RandomStream(3));
    for (const std::uint64_t first : {200U, 0U, 17U, 100U, 16U}) {
        const std::vector<LanguageDraw::Place> some = draw.draws(first, 60);
        EXPECT_TRUE(
            std::equal(some.begin(), some.end(), all.begin() + static_cast<std::ptrdiff_t>(first)))
            << first;
    }
}

}  // namespace pairs_test
}  // namespace pipetwin::exec
