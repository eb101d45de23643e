// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/base/content_hash.h"
#include "core/model/model.h"
#include "exec/data/batch.h"
#include "exec/data/pairs/pair_corpus.h"
#include "exec/data/pairs/pair_tokens.h"
#include "tests/support/error_of.h"
#include "tests/support/mo_file.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace pair_source_test {

namespace fs = std::filesystem;
using pipetwin::testing::error_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using tests::mo_file;

constexpr int source_context = 40;
constexpr int target_context = 32;

Model small_model(int vocabulary = 320) {
    return translation_model({.layers = 1,
                              .d_model = 8,
                              .heads = 2,
                              .feed_forward = 8,
                              .vocabulary = vocabulary,
                              .source_context = source_context,
                              .target_context = target_context});
}

/// The vocabulary of texts that are cut into bytes, in the two languages of these tests.
PairVocabulary byte_vocabulary() {
    return PairVocabulary({"de", "fr"});
}

/// One sample of a batch as texts.
struct Sample {
    std::int32_t language = 0;  ///< the token in front
    std::string source;
    std::string target;

    auto operator<=>(const Sample&) const = default;
};

/// Takes a sample apart and expects padding behind its texts.
Sample sample_of(const Batch& batch, int index) {
    const std::int32_t* const source = batch.tokens.data() + index * batch.positions;
    const std::int32_t* const inputs = source + source_context;
    const std::int32_t* const targets = batch.targets.data() + index * target_context;
    const int length = batch.lengths[as_index(index)];
    EXPECT_EQ(source[length - 1], byte_vocabulary().end());
    EXPECT_TRUE(std::all_of(source + length, inputs, [](std::int32_t id) {
        return id == byte_vocabulary().padding();
    }));
    const auto target_length = std::find(targets, targets + target_context, -1) - targets;
    EXPECT_EQ(targets[target_length - 1], byte_vocabulary().end());
    EXPECT_TRUE(std::all_of(targets + target_length, targets + target_context, [](std::int32_t id) {
        return id == -1;
    }));
    EXPECT_EQ(inputs[0], byte_vocabulary().begin());
    EXPECT_TRUE(std::equal(targets, targets + target_length - 1, inputs + 1));
    EXPECT_TRUE(std::all_of(inputs + target_length, inputs + target_context, [](std::int32_t id) {
        return id == byte_vocabulary().padding();
    }));
    return {.language = source[0],
            .source = byte_vocabulary().text_of({source, as_index(length)}),
            .target = byte_vocabulary().text_of({targets, as_index(target_length)})};
}

std::vector<Sample> samples_of(const Batch& batch) {
    std::vector<Sample> samples;
    for (int index = 0; index < batch.samples; ++index) {
        samples.push_back(sample_of(batch, index));
    }
    return samples;
}

/// A folder with German and French texts for some English ones of several lengths.
class PairData : public ::testing::Test {
  protected:
    PairData() {
        scenario.file = folder / "scenario.toml";
        scenario.data.kind = DataKind::Pairs;
        scenario.data.path = "pairs.tsv";
        scenario.data.pairs.languages = {"de", "fr"};
    }

    /// The row of one English text.
    static std::string row(const std::string& language, int number) {
        const std::string tail =
            fmt::format("{}{}", number, std::string(as_index(number % 9), '.'));
        return fmt::format(
            "{}\tmessage {}\t{} {}\n", language, tail, language == "de" ? "Satz" : "phrase", tail);
    }

    void write_rows(int german, int french) const {
        std::string table;
        for (int number = 0; number < german; ++number) {
            table += row("de", number);
        }
        for (int number = 0; number < french; ++number) {
            table += row("fr", number);
        }
        folder.write("pairs.tsv", table);
    }

    std::unique_ptr<DataSource> open(DataUse use = DataUse::Training) const {
        return open_data(scenario, small_model(), use);
    }

    std::string refusal(DataUse use = DataUse::Training) const {
        const Error error = error_of([&] { open(use); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        return error.place() + ": " + error.text();
    }

    tests::ScratchFolder folder;
    Scenario scenario;
};

TEST_F(PairData, AreSourcesAndTargetsWithPaddingBehind) {
    write_rows(300, 200);
    const Batch batch = open()->batch(0, 64);
    EXPECT_EQ(batch.positions, source_context + target_context);
    EXPECT_EQ(batch.target_positions, target_context);
    ASSERT_THAT(batch.tokens, SizeIs(64 * (source_context + target_context)));
    ASSERT_THAT(batch.targets, SizeIs(64 * target_context));
    std::set<std::int32_t> languages;
    for (const Sample& sample : samples_of(batch)) {
        languages.insert(sample.language);
        const std::string tail = sample.source.substr(sample.source.find(' '));
        EXPECT_EQ(sample.source, "message" + tail);
        EXPECT_EQ(
            sample.target,
            (sample.language == byte_vocabulary().first_language() ? "Satz" : "phrase") + tail);
    }
    EXPECT_THAT(languages, ElementsAre(259, 260));
}

TEST_F(PairData, AreTranslatedInTheDirectionThatIsAskedFor) {
    write_rows(300, 200);
    scenario.data.pairs.direction = PairDirection::ToEnglish;
    for (const Sample& sample : samples_of(open()->batch(0, 32))) {
        EXPECT_EQ(sample.language, 261);
        EXPECT_THAT(sample.target, HasSubstr("message"));
    }
    scenario.data.pairs.direction = PairDirection::Both;
    int to_english = 0;
    for (const Sample& sample : samples_of(open()->batch(0, 400))) {
        to_english += sample.language == 261 ? 1 : 0;
    }
    // Binomial with p = 1/2: 200 expected, standard deviation 10.
    EXPECT_NEAR(to_english, 200, 40);
}

TEST_F(PairData, OfAStepAreTheSameWhateverWasDrawnBefore) {
    write_rows(300, 200);
    const auto data = open();
    const Batch first = data->batch(0, 16);
    const Batch sixth = data->batch(5, 16);
    EXPECT_NE(first.tokens, sixth.tokens);
    EXPECT_EQ(data->batch(0, 16).tokens, first.tokens);
    const Batch resumed = open()->batch(5, 16);
    EXPECT_EQ(resumed.tokens, sixth.tokens);
    EXPECT_EQ(resumed.targets, sixth.targets);
    EXPECT_EQ(resumed.lengths, sixth.lengths);
    scenario.training.seed = 2;
    EXPECT_NE(open()->batch(5, 16).tokens, sixth.tokens);
}

TEST_F(PairData, ComeOnceEachBeforeOneComesAgain) {
    write_rows(300, 0);
    scenario.data.pairs.languages = {"de"};
    std::set<Sample> held_out;
    for (const Sample& sample : samples_of(open(DataUse::Validation)->batch(0, 300))) {
        held_out.insert(sample);
        EXPECT_TRUE(is_held_out(sample.source));
    }
    const int training = 300 - static_cast<int>(held_out.size());
    std::set<Sample> once;
    for (const Sample& sample : samples_of(open()->batch(0, training))) {
        EXPECT_FALSE(is_held_out(sample.source));
        EXPECT_TRUE(once.insert(sample).second) << sample.source;
    }
}

TEST_F(PairData, InBucketsAreTheSamePairsInTheOrderOfTheirLengths) {
    write_rows(300, 200);
    std::vector<Sample> drawn = samples_of(open()->batch(3, 40));
    scenario.data.pairs.bucketing = true;
    const Batch batch = open()->batch(3, 40);
    EXPECT_TRUE(std::ranges::is_sorted(batch.lengths));
    std::vector<Sample> sorted = samples_of(batch);
    EXPECT_NE(sorted, drawn);
    std::ranges::sort(drawn);
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, drawn);
}

TEST_F(PairData, SayHowManyThereAreAndWhatWasLeftOut) {
    folder.write("pairs.tsv",
                 "de\tFile not found\tDatei nicht gefunden\n"  // 14 and 20 bytes
                 "de\tFile not found\tNoch einmal\n"           // repeated
                 "de\tOK\tOK\n"                                // not translated
                 "de\tBroken text\tGebr\xff"
                 "chen\n"  // no UTF-8
                 "\n"
                 "fr\tFile not found\tFichier introuvable\r\n"      // 14 and 19 bytes
                 "fr\tFile not found here, as it was removed\tx\n"  // 38 bytes fit, but not 1:4
                 "fr\tFile not found here, as it was removed.\tFichier supprime\n"  // 39 do not
                 "es\tFile not found\tNo existe el fichero\n");
    const std::string text = open()->description();
    EXPECT_THAT(text,
                AllOf(HasSubstr("2 pairs with English for training (1 de, 1 fr)"),
                      HasSubstr("6 pairs left out"),
                      HasSubstr("1 longer than 38 bytes in English or 31 in translation"),
                      HasSubstr("1 not translated"),
                      HasSubstr("1 there already"),
                      HasSubstr("1 in another encoding"),
                      HasSubstr("1 of other languages"),
                      HasSubstr("1 over 4 times as long")));
    // Half of the draws have 14 + 20 + 3 tokens of 72, the others 14 + 19 + 3.
    EXPECT_THAT(text, HasSubstr("50.7 % of the tokens are no padding"));
    EXPECT_THAT(open()->notes(), Contains(HasSubstr("6 pairs left out")));
}

TEST_F(PairData, AreCutIntoPiecesThatTheirTextsMake) {
    write_rows(300, 200);
    scenario.data.pairs.piece_count = 320;
    const auto open_pieces = [&](int vocabulary) {
        return open_data(scenario, small_model(vocabulary));
    };
    if (!TextPieces::knows_models()) {
        EXPECT_EQ(error_of([&] { open_pieces(384); }).kind(), ErrorKind::Unavailable);
        GTEST_SKIP() << "built without SentencePiece";
    }
    const auto data = open_pieces(384);
    const PairVocabulary vocabulary({"de", "fr"}, data->text_pieces());
    EXPECT_EQ(vocabulary.first_language(), 323);
    const Batch batch = data->batch(0, 64);
    for (int sample = 0; sample < batch.samples; ++sample) {
        const std::int32_t* const source = batch.tokens.data() + sample * batch.positions;
        const std::int32_t* const targets = batch.targets.data() + sample * target_context;
        const std::string text = vocabulary.text_of({source + 1, source_context - 1});
        const std::string tail = text.substr(text.find(' '));
        EXPECT_EQ(text, "message" + tail);
        EXPECT_EQ(vocabulary.text_of({targets, target_context}),
                  (source[0] == vocabulary.token_of("de") ? "Satz" : "phrase") + tail);
        EXPECT_LT(batch.lengths[as_index(sample)], 7 + std::ssize(tail));  // "message" is a piece
    }
    // 320 + 3 + 2 tokens, rounded up.
    EXPECT_EQ(error_of([&] { open_pieces(320); }).hint(), "set vocabulary = 384");
    // A model file with these pieces gives the same tokens.
    folder.write("pieces.model", data->text_pieces().model());
    scenario.data.pairs.piece_count = 0;
    scenario.data.pairs.pieces_path = "pieces.model";
    EXPECT_EQ(open_pieces(384)->batch(0, 64).tokens, batch.tokens);
    folder.write("pieces.model", "no model");
    EXPECT_THAT(error_of([&] { open_pieces(384); }).place(), HasSubstr("pieces.model"));
}

TEST_F(PairData, LongerThanTheRoomInPiecesAreLeftOut) {
    std::string table;
    for (int number = 0; number < 200; ++number) {
        table += "de\tOpen the file\t" + fmt::format("Datei {} oeffnen\n", number);
    }
    for (int number = 0; number < 200; ++number) {
        table += fmt::format("de\tOpen the file {}\tDatei {} oeffnen\n", number, number);
    }
    // 41 bytes of a word that comes often are few pieces; 60 different letters are many.
    table += "de\tOpen the file Open the file Open the file\tDatei Datei Datei\n";
    table += "de\tqxzqjxvqkzxjqvxkzjqxvzkqjxzvqkxjzqvkxzjvqk\tDatei mit Buchstaben\n";
    folder.write("pairs.tsv", table);
    scenario.data.pairs.languages = {"de"};
    scenario.data.pairs.piece_count = 340;
    if (!TextPieces::knows_models()) {
        GTEST_SKIP() << "built without SentencePiece";
    }
    EXPECT_THAT(open_data(scenario, small_model(384))->description(),
                HasSubstr("1 longer than 38 pieces in English or 31 in translation"));
}

TEST_F(PairData, MayBeTwoFilesSideBySide) {
    folder.write("a.en", "File not found\nNo such file\n");
    folder.write("a.de", "Datei nicht gefunden\nKeine solche Datei\n");
    scenario.data.path = "a.en";
    scenario.data.pairs.target_path = "a.de";
    scenario.data.pairs.languages = {"de"};
    std::set<std::string> targets;
    for (const Sample& sample : samples_of(open()->batch(0, 2))) {
        targets.insert(sample.target);
    }
    EXPECT_THAT(targets, ElementsAre("Datei nicht gefunden", "Keine solche Datei"));
    folder.write("a.de", "Datei nicht gefunden\n");
    EXPECT_THAT(refusal(), AllOf(HasSubstr("a.de: 1 line, expected 2"), HasSubstr("a.en")));
}

TEST_F(PairData, ThatDoNotFitAreRefused) {
    EXPECT_THAT(error_of([&] { open(); }).place(), HasSubstr("pairs.tsv"));  // no such file
    folder.write("pairs.tsv", "de\tYes\tJa\nde\tNo, Nein\n");
    EXPECT_THAT(refusal(), HasSubstr("pairs.tsv: line 2: 1 tab, expected 2"));
    folder.write("pairs.tsv", "de\tYes\tJa\n");
    EXPECT_THAT(refusal(), HasSubstr("no pair of 'fr' for training among 0 pairs"));
    folder.write("pairs.tsv", "de\tYes\tJa\nfr\tYes\tOui\n");
    EXPECT_THAT(refusal(DataUse::Validation), HasSubstr("no pair for validation among 2 pairs"));
    const Error small = error_of([&] { open_data(scenario, small_model(319)); });
    EXPECT_EQ(small.place(), "model.vocabulary");
    EXPECT_EQ(small.hint(), "set vocabulary = 320");
    const Model one_sequence = gpt_model({.layers = 1,
                                          .d_model = 4,
                                          .heads = 1,
                                          .context = 8,
                                          .vocabulary = 320,
                                          .feed_forward = 4});
    EXPECT_THAT(error_of([&] { open_data(scenario, one_sequence); }).text(),
                HasSubstr("the model reads one sequence"));
}

TEST_F(PairData, HaveAHashThatChangesWithAnyText) {
    const auto content = [&] {
        ContentHash hash;
        open()->add_content(hash);
        return hash.digits();
    };
    write_rows(300, 200);
    const std::string before = content();
    EXPECT_EQ(content(), before);
    write_rows(300, 201);
    EXPECT_NE(content(), before);
}

TEST_F(PairData, OfCataloguesAreReadWithoutTheBrokenOnes) {
    fs::create_directories(folder.path() / "de" / "LC_MESSAGES");
    folder.write("de/LC_MESSAGES/a.mo", mo_file({{"File not found", "Datei nicht gefunden"}}));
    for (const char* const name : {"b", "c", "d", "e"}) {
        folder.write(fmt::format("de/LC_MESSAGES/{}.mo", name), "no catalogue, but long enough");
    }
    scenario.data.kind = DataKind::Gettext;
    scenario.data.path = folder.path();
    scenario.data.pairs.languages = {"de"};
    const auto data = open();
    EXPECT_EQ(sample_of(data->batch(0, 1), 0),
              (Sample{259, "File not found", "Datei nicht gefunden"}));
    EXPECT_THAT(data->description(), HasSubstr("4 broken catalogues left out"));
    EXPECT_THAT(data->notes(),
                AllOf(Contains(HasSubstr("a broken catalogue is left out: ")),
                      Contains(HasSubstr("b.mo: byte 0")),
                      Contains(HasSubstr("1 broken catalogue more"))));
    scenario.data.pairs.languages = {"de", "fr"};
    EXPECT_THAT(refusal(), HasSubstr("no message catalogue of 'fr'"));
}

}  // namespace pair_source_test
}  // namespace pipetwin::exec
