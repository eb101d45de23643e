// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/places.h"

// Pictures of commands as SVG, PDF and PNG, read by the programs of poppler-utils.

namespace pipetwin::cli {
namespace figures_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

bool has_program(const char* name) {
    return std::system(fmt::format("command -v {} >/dev/null 2>&1", name).c_str()) == 0;
}

/// What a program prints.
std::string printed(const std::string& command) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                               ::pclose);
    std::string text;
    std::array<char, 4096> part{};
    for (std::size_t read = 1; read > 0;) {
        read = std::fread(part.data(), 1, part.size(), pipe.get());
        text.append(part.data(), read);
    }
    return text;
}

const std::vector<std::string> plan{"simulate",
                                    "--schedule",
                                    "interleaved-1f1b",
                                    "--chunks",
                                    "2",
                                    "--stages",
                                    "4",
                                    "--micro-batches",
                                    "4",
                                    "--forward-ms",
                                    "1",
                                    "--backward-ms",
                                    "2"};

class Figures : public InFolder {
  protected:
    Figures() { ::setenv("PIPETWIN_MODULE_PATH", places::program_folder().c_str(), 1); }
    ~Figures() override { ::unsetenv("PIPETWIN_MODULE_PATH"); }

    static bool has_module() {
        return std::filesystem::exists(places::program_folder() + "/pipetwin_figures.so");
    }
    /// The command writes a PDF and a PNG of 84 mm.
    std::vector<std::string> in_a_column(std::vector<std::string> args) const {
        return joined(std::move(args),
                      {"--pdf", path("x.pdf"), "--png", path("x.png"), "--width", "84mm"});
    }
};

TEST_F(Figures, TextOfAPdfStaysTextInFontsThatItHolds) {
    if (!has_module()) {
        GTEST_SKIP() << "pipetwin_figures was not built: librsvg2-dev was not there";
    }
    if (!has_program("pdftotext") || !has_program("pdffonts")) {
        GTEST_SKIP() << "pdftotext and pdffonts of poppler-utils are not installed";
    }
    const Outcome outcome = pipetwin(
        joined(in_a_column(plan), {"--legend", "--title", "Two stages of each rank: a <title>"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string text = printed(fmt::format("pdftotext -layout {} -", path("x.pdf")));
    EXPECT_THAT(text,
                AllOf(HasSubstr("Two stages of each rank: a <title>"),
                      HasSubstr("rank 3"),
                      HasSubstr("predicted time (ms)"),
                      HasSubstr("second stage of the rank")));
    const std::string fonts = printed(fmt::format("pdffonts {}", path("x.pdf")));
    EXPECT_THAT(fonts, AllOf(HasSubstr(" yes "), Not(HasSubstr("Type 3"))));
    const std::string info = printed(fmt::format("pdfinfo {}", path("x.pdf")));
    std::smatch size;
    ASSERT_TRUE(std::regex_search(info, size, std::regex("Page size: *([0-9.]+) x ([0-9.]+) pts")));
    EXPECT_NEAR(std::stod(size[1]), 84 * 72 / 25.4, 0.1);
    EXPECT_THAT(info, HasSubstr("Pages:           1"));
    EXPECT_THAT(info, HasSubstr("pipetwin "));
    // Lines and areas are no dots.
    EXPECT_EQ(printed(fmt::format("pdfimages -list {} | tail -n +3", path("x.pdf"))), "");
}

TEST_F(Figures, APngHasThreeHundredDotsPerInch) {
    if (!has_module()) {
        GTEST_SKIP() << "pipetwin_figures was not built: librsvg2-dev was not there";
    }
    ASSERT_EQ(pipetwin(in_a_column(plan)).code, 0);
    const std::string png = content_of(path("x.png"));
    ASSERT_THAT(png, StartsWith("\x89PNG"));
    int width = 0;  // in the header, from its 17th byte on
    for (std::size_t byte = 16; byte < 20; ++byte) {
        width = width * 256 + static_cast<unsigned char>(png.at(byte));
    }
    EXPECT_NEAR(width, 84 / 25.4 * 300, 1);
}

TEST_F(Figures, EveryCommandThatDrawsWritesThem) {
    if (!has_module()) {
        GTEST_SKIP() << "pipetwin_figures was not built: librsvg2-dev was not there";
    }
    const std::string scenario = file("small.toml", small_scenario);
    const std::string costs = file("small.costs.csv", small_profile);
    const std::vector<std::vector<std::string>> commands{
        {"simulate", scenario, "--profile", costs},
        {"sweep", scenario, "--profile", costs, "--schedule", "gpipe,1f1b"},
        {"model", scenario, "--profile", costs}};
    for (const auto& command : commands) {
        SCOPED_TRACE(command.front());
        const Outcome outcome =
            pipetwin(joined(in_a_column(command), {"--svg", path("x.svg"), "--force"}));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("picture: " + path("x.pdf")));
        EXPECT_THAT(content_of(path("x.svg")), HasSubstr("width=\"84mm\""));
        EXPECT_THAT(content_of(path("x.pdf")), StartsWith("%PDF-"));
        EXPECT_THAT(content_of(path("x.png")), StartsWith("\x89PNG"));
    }
    for (const char* const format : {"pdf", "png"}) {
        const std::string out = path(fmt::format("export.{}", format));
        const Outcome outcome = pipetwin({"export", format, scenario, "--out", out, "--json"});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_EQ(outcome.json()["format"], format);
        EXPECT_THAT(content_of(out),
                    StartsWith(format == std::string("pdf") ? "%PDF-" : "\x89PNG"));
    }
}

TEST_F(Figures, AreRefusedByNameWhereTheModuleIsMissing) {
    ::unsetenv("PIPETWIN_MODULE_PATH");  // the tests' own folder has none
    const std::string scenario = file("small.toml", small_scenario);
    for (const std::vector<std::string>& args :
         {joined(plan, {"--pdf", path("x.pdf")}),
          {"export", "pdf", scenario, "--out", path("x.pdf")}}) {
        const Outcome outcome = pipetwin(args);
        EXPECT_EQ(outcome.code, 5) << outcome.err;
        EXPECT_THAT(outcome.err,
                    AllOf(HasSubstr("PDF: "), HasSubstr("librsvg2-dev"), HasSubstr("an SVG")));
        EXPECT_FALSE(std::filesystem::exists(path("x.pdf")));
    }
}

TEST_F(Figures, AWidthChangesAnSvgWithoutTheModule) {
    const std::string wide = path("wide.svg");
    const std::string narrow = path("narrow.svg");
    ASSERT_EQ(pipetwin(joined(plan, {"--svg", wide})).code, 0);
    ASSERT_EQ(pipetwin(joined(plan, {"--svg", narrow, "--width", "8.4cm"})).code, 0);
    EXPECT_THAT(content_of(wide),
                AllOf(HasSubstr("width=\"960\""), HasSubstr("interleaved-1f1b, 4 ranks")));
    EXPECT_THAT(content_of(narrow),
                AllOf(HasSubstr("width=\"84mm\""), Not(HasSubstr("interleaved-1f1b, 4 ranks"))));
}

}  // namespace figures_test
}  // namespace pipetwin::cli
