// SPDX-License-Identifier: Apache-2.0
#include <clocale>
#include <cstdio>
#include <sstream>

#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "core/text/json_number.h"
#include "tests/cli/readers/readers.h"
#include "tests/support/locales.h"

namespace pipetwin::cli {
namespace locale_test {

using tests::BuiltLocales;
using tests::UnderLocale;

/// A locale, and how much of it is in force.
struct Chosen {
    const char* name;
    int category;
};

constexpr Chosen chosen[] = {{"de_DE", LC_ALL}, {"tr_TR", LC_ALL}, {"de_DE", LC_NUMERIC}};

class Locales : public Readers {
  protected:
    void SetUp() override {
        if (!locales().are_there()) {
            GTEST_SKIP() << "locales cannot be built here (localedef, Debian's package locales)";
        }
        Readers::SetUp();
    }

    static bool is_training(const Reader& reader) { return reader.args.front() == "train"; }

    /// Loss and norm of every step that a training wrote, and not how long it took.
    std::vector<std::string> series(const std::string& run) const {
        std::istringstream metrics(content_of(folder() / run / run_file::metrics));
        std::vector<std::string> steps;
        for (std::string line; std::getline(metrics, line);) {
            const auto step = nlohmann::json::parse(line);
            steps.push_back(nlohmann::json{step["step"], step["loss"], step["grad_norm"]}.dump());
        }
        return steps;
    }

    /// Built once: it takes seconds.
    static const BuiltLocales& locales() {
        static const BuiltLocales built;
        return built;
    }
};

/// Without this the other tests here would show nothing.
TEST_F(Locales, PutACommaIntoWhatTheCLibraryAndStreamsWrite) {
    for (const Chosen& one : chosen) {
        const UnderLocale under(locales(), one.name, one.category);
        ASSERT_TRUE(under.is_set());
        char text[16];
        std::snprintf(text, sizeof(text), "%.1f", 1.5);
        EXPECT_STREQ(text, "1,5");
        std::ostringstream stream;
        stream << 1234.5;
        EXPECT_EQ(stream.str(), "1.234,5");
    }
}

TEST_F(Locales, ChangeNothingThatAnyReaderReadsAndAnyCommandWrites) {
    for (const Reader& reader : readers()) {
        if (is_training(reader)) {
            continue;
        }
        SCOPED_TRACE(reader.name);
        const Outcome plain = run(reader);
        const std::string file = written(reader);
        for (const Chosen& one : chosen) {
            const UnderLocale under(locales(), one.name, one.category);
            ASSERT_TRUE(under.is_set());
            const Outcome outcome = run(reader);
            EXPECT_EQ(outcome.code, plain.code) << outcome.err;
            EXPECT_EQ(outcome.out, plain.out);
            EXPECT_EQ(outcome.err, plain.err);
            EXPECT_EQ(written(reader), file);
        }
    }
}

TEST_F(Locales, ChangeNoTraining) {
    for (const char* const scenario : {"text.toml", "tokens.toml", "images.toml"}) {
        const std::vector<std::string> args{"train", path(scenario), "--force", "--out"};
        ASSERT_EQ(pipetwin(joined(args, {path("plain")})).code, 0);
        for (const Chosen& one : chosen) {
            const UnderLocale under(locales(), one.name, one.category);
            ASSERT_TRUE(under.is_set());
            const Outcome outcome = pipetwin(joined(args, {path("other")}));
            ASSERT_EQ(outcome.code, 0) << outcome.err;
            EXPECT_EQ(series("other"), series("plain"));
            EXPECT_EQ(content_of(path("other/scenario.toml")),
                      content_of(path("plain/scenario.toml")));
            // What it wrote is read again, in both ways.
            EXPECT_EQ(pipetwin({"compare", path("other")}).code, 0);
        }
        EXPECT_EQ(pipetwin({"compare", path("other")}).code, 0);
    }
}

TEST_F(Locales, ChangeNoMeasuredCosts) {
    for (const Chosen& one : chosen) {
        const UnderLocale under(locales(), one.name, one.category);
        const Outcome outcome = pipetwin(
            {"profile", path("small.toml"), "--force", "--out", path("measured.profile.json")});
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_NO_THROW(nlohmann::json::parse(content_of(path("measured.profile.json"))));
        EXPECT_EQ(
            pipetwin({"simulate", path("small.toml"), "--profile", path("measured.profile.json")})
                .code,
            0);
    }
}

TEST_F(Locales, ChangeNoPlainNumbersOfACommandLine) {
    const auto simulated = [] {
        return pipetwin(joined(simulate_args({.stages = 2, .micro_batches = 3, .forward = "1.5"}),
                               {"--latency-ms", "0.25", "--jitter", "0.05", "--json"}));
    };
    const Outcome plain = simulated();
    ASSERT_EQ(plain.code, 0) << plain.err;
    for (const Chosen& one : chosen) {
        const UnderLocale under(locales(), one.name, one.category);
        const Outcome outcome = simulated();
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_EQ(outcome.out, plain.out);
    }
}

/// In Turkish, the C library's tolower has no answer for 'I' in one byte.
TEST_F(Locales, ChangeNoNamesOfSchedules) {
    for (const Chosen& one : chosen) {
        const UnderLocale under(locales(), one.name, one.category);
        for (const char* const name : {"INTERLEAVED-1F1B", "Gpipe", "GPIPE", "gpipe"}) {
            const bool has_chunks = std::string_view(name).starts_with("INTER");
            const Outcome outcome =
                pipetwin(joined(simulate_args({.stages = 2, .micro_batches = 4}),
                                {"--schedule", name, "--chunks", has_chunks ? "2" : "1"}));
            EXPECT_EQ(outcome.code, 0) << outcome.err;
        }
    }
}

/// nlohmann's parser hands on "1,5" under a German locale, and reads it right.
TEST(JsonNumbers, AreReadWithTheDecimalPointOfAnyLocale) {
    for (const char* const token : {"1.5",
                                    "1,5",
                                    "1\xd9"
                                    "5"}) {
        const JsonNumber number = json_number(token[1] == '\xd9' ? 1 : 1.5, token);
        EXPECT_EQ(number.value, 1.5);
        EXPECT_EQ(number.digits, "1.5");
    }
    EXPECT_EQ(json_number(-2.5e-3, "-2,5e-3").digits, "-2.5e-3");
    EXPECT_EQ(json_number(12, "12").digits, "12");
}

}  // namespace locale_test
}  // namespace pipetwin::cli
