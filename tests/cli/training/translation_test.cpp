// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "exec/data/pairs/pair_corpus.h"
#include "tests/cli/processes/several_processes.h"
#include "tests/cli/support.h"

/// Translation models that learn from a table of pairs, and what they make of texts afterwards.
namespace pipetwin::cli {
namespace translation_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Texts = std::vector<std::pair<std::string, std::string>>;

/// A table of pairs of English and German.
std::string table_of(const Texts& pairs) {
    std::string table;
    for (const auto& [text, translation] : pairs) {
        table += "de\t" + text + '\t' + translation + '\n';
    }
    return table;
}

/// A small model that learns the pairs in "pairs.tsv", in two stages.
constexpr std::string_view small_model = R"([model]
kind = "translation"
layers = 1
d_model = 32
heads = 4
source_context = 10
target_context = 10
[data]
kind = "pairs"
path = "pairs.tsv"
languages = ["de"]
[pipeline]
stages = 2
partition = [6, 4]
micro_batches = 2
channel_capacity = 2
)";

class Translation : public InFolder {
  protected:
    /// A scenario of the small model; returns its path.
    std::string scenario(const Texts& pairs, const std::string& rest) const {
        file("pairs.tsv", table_of(pairs));
        return file("words.toml", std::string(small_model) + rest);
    }

    /// Trains, and returns the run folder.
    std::string trained(const Texts& pairs, const std::string& rest) const {
        const Outcome outcome = pipetwin({"train", scenario(pairs, rest), "--out", path("run")});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return path("run");
    }
};

const Texts words{{"red", "rot"},
                  {"green", "grün"},
                  {"house", "Haus"},
                  {"file", "Datei"},
                  {"tree", "Baum"},
                  {"water", "Wasser"},
                  {"sun", "Sonne"},
                  {"help", "Hilfe"}};

const std::string short_training = R"([training]
batch = 8
steps = 2
[output]
checkpoint_every = 2
)";

TEST_F(Translation, IsWhatTheModelHasLearnedByHeart) {
    const std::string run = trained(words, R"([training]
batch = 16
steps = 250
learning_rate = 0.01
[output]
checkpoint_every = 250
)");
    for (const auto& [text, translation] : words) {
        ASSERT_FALSE(exec::is_held_out(text)) << text << " is not trained with";
        for (const std::string beam : {"1", "3"}) {
            const Outcome outcome = pipetwin({"translate", run, "--text", text, "--beam", beam});
            EXPECT_EQ(outcome.code, 0) << outcome.err;
            EXPECT_EQ(outcome.out, translation + '\n');
            EXPECT_THAT(outcome.err, HasSubstr("weights after 250 steps, from " + run));
        }
    }
    const std::string texts = file("texts.txt", "tree\r\n\nsun\n");
    const Outcome of_file = pipetwin({"translate", run, "--file", texts, "--to", "de"});
    EXPECT_EQ(of_file.out, "Baum\n\nSonne\n");
    const nlohmann::json json =
        pipetwin({"translate", run, "--text", "sun", "--text", "red", "--json"}).json();
    EXPECT_EQ(json["run"], run);
    EXPECT_EQ(json["steps_done"], 250);
    EXPECT_EQ(json["to"], "de");
    EXPECT_EQ(json["beam"], 1);
    EXPECT_EQ(json["translations"],
              nlohmann::json::parse(R"([{"text": "sun", "translation": "Sonne"},
                                        {"text": "red", "translation": "rot"}])"));
}

/// Pairs of numbers, of which one in fifty is held out.
Texts numbers(int count) {
    Texts pairs;
    for (int number = 0; number < count; ++number) {
        pairs.emplace_back("no " + std::to_string(number), "Nr " + std::to_string(number));
    }
    return pairs;
}

TEST_F(Translation, OfHeldOutTextsEndsATraining) {
    const std::string file_of_scenario = scenario(numbers(300), R"([training]
batch = 8
steps = 2
translate = 3
beam = 2
)");
    const Outcome outcome = pipetwin({"train", file_of_scenario, "--out", path("run")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(
        outcome.out,
        AllOf(HasSubstr("chrF of the source"), HasSubstr("  en-de  no "), HasSubstr("(Nr ")));
    const auto report = nlohmann::json::parse(content_of(folder() / "run" / "report.json"));
    const nlohmann::json& found = report["translations"];
    ASSERT_EQ(found["directions"].size(), 1U);
    EXPECT_EQ(found["directions"][0]["direction"], "en-de");
    EXPECT_EQ(found["directions"][0]["texts"], 3);
    // "no 7" and "Nr 7" have no word and no n-gram but the number in common.
    EXPECT_GT(found["directions"][0]["copied_chrf"], 0);
    EXPECT_LT(found["directions"][0]["copied_chrf"], 100);
    ASSERT_EQ(found["texts"].size(), 3U);
    for (const nlohmann::json& text : found["texts"]) {
        const std::string source = text["source"];
        EXPECT_TRUE(exec::is_held_out(source)) << source;
        EXPECT_EQ(text["reference"], "Nr" + source.substr(2));
    }
    EXPECT_THAT(content_of(folder() / "run" / "report.html"),
                HasSubstr("Translations of held-out texts"));
}

class TranslationInProcesses : public SeveralProcesses {};

TEST_F(TranslationInProcesses, GivesTheTextsOfThreads) {
    file("pairs.tsv", table_of(numbers(300)));
    const std::string scenario = file("words.toml", std::string(small_model) + R"([training]
batch = 8
steps = 5
learning_rate = 0.01
translate = 3
beam = 2
)");
    const Outcome threads = pipetwin({"train", scenario, "--out", path("threads")});
    ASSERT_EQ(threads.code, 0) << threads.err;
    const Outcome processes = run({program.string(),
                                   "launch",
                                   "--ranks",
                                   "2",
                                   scenario,
                                   "--profile",
                                   path("threads/profile.json"),
                                   "--out",
                                   path("processes")});
    ASSERT_EQ(processes.code, 0) << processes.err;
    const auto translations = [this](const std::string& run) {
        return nlohmann::json::parse(content_of(folder() / run / "report.json"))["translations"];
    };
    EXPECT_EQ(translations("processes"), translations("threads"));
    EXPECT_EQ(translations("threads")["texts"].size(), 3U);
}

TEST_F(Translation, IsNoPartOfATrainingThatDoesNotAskForIt) {
    trained(words, short_training);
    const auto report = nlohmann::json::parse(content_of(folder() / "run" / "report.json"));
    EXPECT_FALSE(report.contains("translations"));
    EXPECT_THAT(content_of(folder() / "run" / "report.html"), Not(HasSubstr("held-out texts")));
}

TEST_F(Translation, OfDataWithoutTextsIsRefusedBeforeAnythingIsMeasured) {
    const std::string synthetic = file("synthetic.toml", R"(training = {translate = 3}
data = {kind = "synthetic"}
[model]
kind = "translation"
layers = 1
d_model = 32
heads = 4
source_context = 10
target_context = 10
)");
    const Outcome outcome = pipetwin({"train", synthetic, "--out", path("run")});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("training.translate"),
                      HasSubstr("data of kind \"synthetic\" hold no texts with translations")));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Translation, RefusesWhatItCannotTranslate) {
    const std::string run = trained(words, short_training);
    struct Refusal {
        std::vector<std::string> more;
        int code;
        std::string text;
    };
    const std::vector<Refusal> refusals{
        {{}, 2, "there is nothing to translate"},
        {{"--file", file("empty.txt", "")}, 2, "there is nothing to translate"},
        {{"--text", "a", "--to", "fr"}, 2, "--to: fr, expected one of de"},
        {{"--text", "a", "--beam", "0"}, 2, "--beam"},
        {{"--text", "a", "--file", "x"}, 2, "--file"},
        {{"--text", "a", "--set", "model.layers=2"}, 2, "reads no scenario"},
        {{"--text", "house house"}, 3, "--text: a text of 11 bytes, expected at most 8"},
        {{"--file", file("long.txt", "red\nhouse house\n")}, 3, "long.txt:2: a text of 11 bytes"},
        {{"--text", "\xff"}, 3, "--text: the text is not UTF-8"},
        {{"--file", path("missing.txt")}, 6, "missing.txt: cannot open"},
    };
    for (const Refusal& refusal : refusals) {
        const Outcome outcome = pipetwin(joined({"translate", run}, refusal.more));
        EXPECT_EQ(outcome.code, refusal.code) << refusal.text << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(refusal.text));
        EXPECT_EQ(outcome.out, "");
    }
}

TEST_F(Translation, NeedsTheRunOfATranslationModelWithACheckpoint) {
    const auto refusal = [](const std::string& run) {
        const Outcome outcome = pipetwin({"translate", run, "--text", "a"});
        EXPECT_EQ(outcome.code, 3);
        return outcome.err;
    };
    EXPECT_THAT(refusal(path("nowhere")), HasSubstr("expected the run folder of a training run"));
    const std::string run = trained(words, "[training]\nbatch = 8\nsteps = 1\n");
    EXPECT_THAT(refusal(run), HasSubstr("no checkpoint"));
    EXPECT_THAT(refusal(file("a.toml", "[model]\nkind = \"mlp\"\nsizes = [2, 2]\n")),
                HasSubstr("expected the run folder of a training run"));
    file("run/scenario.toml", "[model]\nkind = \"mlp\"\nsizes = [2, 2]\n");
    EXPECT_THAT(refusal(run), HasSubstr("model.kind = \"mlp\", expected \"translation\""));
}

}  // namespace translation_test
}  // namespace pipetwin::cli
