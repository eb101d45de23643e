// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "exec/data/pairs/text_pieces.h"
#include "tests/cli/support.h"
#include "tests/support/mo_file.h"

namespace pipetwin::cli {
namespace pair_training_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view scenario = R"toml([model]
kind = "translation"
layers = 1
d_model = 8
heads = 2
feed_forward = 8
source_context = 40
target_context = 40
[data]
kind = "gettext"
path = "locale"
languages = ["de", "fr"]
[training]
batch = 4
steps = 4
[pipeline]
stages = 2
micro_batches = 2
)toml";

/// Trains on catalogues of its own.
class PairTraining : public InFolder {
  protected:
    void put(const std::string& language, const std::string& name, const std::string& bytes) const {
        fs::create_directories(folder() / "locale" / language / "LC_MESSAGES");
        file("locale/" + language + "/LC_MESSAGES/" + name, bytes);
    }

    /// Catalogues of both languages.
    void put_catalogues() const {
        put("de", "a.mo", tests::mo_file({{"File not found", "Datei nicht gefunden"}}));
        put("fr", "a.mo", tests::mo_file({{"File not found", "Fichier introuvable"}}));
    }

    Outcome train(const std::string& run, const std::vector<std::string>& settings = {}) const {
        std::vector<std::string> args{
            "train", file("translate.toml", scenario), "--out", path(run)};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", setting});
        }
        return pipetwin(args);
    }

    std::string losses(const std::string& run) const {
        std::string all;
        for (const auto& line : lines_of(content_of(folder() / run / run_file::metrics))) {
            all += nlohmann::json::parse(line).at("loss").dump() + " ";
        }
        return all;
    }

    static std::vector<std::string> lines_of(const std::string& text) {
        std::vector<std::string> lines;
        std::size_t begin = 0;
        for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
             begin = end + 1) {
            lines.push_back(text.substr(begin, end - begin));
        }
        return lines;
    }
};

TEST_F(PairTraining, SaysWhatWasReadAndWhatWasLeftOut) {
    put_catalogues();
    put("de", "b.mo", "no catalogue, but long enough");
    put("de",
        "c.mo",
        tests::mo_file({{"Yes", "Ja"},
                        {"Latin text",
                         "Gr\xfc\xdf"
                         "e"}}));
    const Outcome outcome = train("run");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("data: gettext, 2 pairs with English for training (1 de, 1 fr)"),
                      HasSubstr("of the tokens are no padding"),
                      HasSubstr("data: 2 pairs left out: 1 shorter than 8 bytes, 1 in another "
                                "encoding than their file's"),
                      HasSubstr("b.mo: byte 0")));
}

TEST_F(PairTraining, HasTheSameLossesForEveryCutAndAfterAStop) {
    put_catalogues();
    ASSERT_EQ(train("two").code, 0);
    const std::string two = losses("two");
    ASSERT_EQ(train("one", {"pipeline.stages=1"}).code, 0);
    EXPECT_EQ(losses("one"), two);
    ASSERT_EQ(train("part", {"training.steps=2"}).code, 0);
    const Outcome rest =
        pipetwin({"train", path("translate.toml"), "--out", path("part"), "--resume"});
    ASSERT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(losses("part"), two);
}

TEST_F(PairTraining, ReadsPiecesAndTranslatesWithThem) {
    put("de",
        "a.mo",
        tests::mo_file({{"File not found", "Datei nicht gefunden"},
                        {"Folder not found", "Ordner nicht gefunden"},
                        {"Open the file", "Datei oeffnen"}}));
    const std::vector<std::string> settings{
        "data.languages=[\"de\"]", "data.pieces=300", "output.checkpoint_every=4"};
    const Outcome outcome = train("run", settings);
    if (!exec::TextPieces::knows_models()) {
        EXPECT_EQ(outcome.code, 5) << outcome.err;
        GTEST_SKIP() << "built without SentencePiece";
    }
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("3 pairs with English for training (3 de)"));
    const std::vector<std::string> translate{
        "translate", path("run"), "--text", "File not found", "--json"};
    const Outcome translated = pipetwin(translate);
    ASSERT_EQ(translated.code, 0) << translated.err;
    EXPECT_EQ(translated.json().at("translations").size(), 1);
    // 40 tokens hold these 66 bytes in pieces, but not as bytes.
    EXPECT_EQ(pipetwin({"translate",
                        path("run"),
                        "--text",
                        "File not found File not found File not found File not found not found "})
                  .code,
              0);
    file("run/pieces.model", "no model");
    const Outcome damaged = pipetwin(translate);
    EXPECT_EQ(damaged.code, 3);
    EXPECT_THAT(damaged.err, HasSubstr("pieces.model: no SentencePiece model"));
    fs::remove(path("run") + "/pieces.model");
    const Outcome missing = pipetwin(translate);
    EXPECT_EQ(missing.code, 6);
    EXPECT_THAT(missing.err, HasSubstr("pieces.model"));
}

TEST_F(PairTraining, RefusesWhatHasNoPairs) {
    const Outcome no_folder = train("run");
    EXPECT_EQ(no_folder.code, 3);
    put("de", "a.mo", tests::mo_file({{"File not found", "Datei nicht gefunden"}}));
    const Outcome no_language = train("run");
    EXPECT_EQ(no_language.code, 3);
    EXPECT_THAT(no_language.err,
                AllOf(HasSubstr("no message catalogue of 'fr'"), HasSubstr("path-exclude")));
    put("fr", "a.mo", tests::mo_file({}));
    const Outcome no_pair = train("run");
    EXPECT_EQ(no_pair.code, 3);
    EXPECT_THAT(no_pair.err, HasSubstr("no pair for training in 1 catalogue"));
    put("fr", "a.mo", "no catalogue, but long enough");
    const Outcome broken = train("run");
    EXPECT_EQ(broken.code, 3);
    EXPECT_THAT(broken.err, AllOf(HasSubstr("no pair for training"), HasSubstr("a.mo: byte 0")));
    const Outcome no_validation =
        train("run", {"data.languages=[\"de\"]", "training.validate_every=2"});
    EXPECT_EQ(no_validation.code, 3);
    EXPECT_THAT(no_validation.err, HasSubstr("no pair for validation among 1 pair"));
    const Outcome small = train("run", {"data.languages=[\"de\"]", "model.vocabulary=300"});
    EXPECT_EQ(small.code, 3);
    EXPECT_THAT(small.err, HasSubstr("model.vocabulary: 300, expected at least 320"));
    EXPECT_FALSE(fs::exists(path("run")));
}

}  // namespace pair_training_test
}  // namespace pipetwin::cli
