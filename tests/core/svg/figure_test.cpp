// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/svg/heat_map_svg.h"
#include "core/svg/model_svg.h"
#include "core/svg/paper.h"
#include "core/svg/svg.h"
#include "tests/support/error_of.h"
#include "tests/support/spans.h"

// Figures of papers: their size, their texts, and that ink and grey tell apart what colours do.

namespace pipetwin {
namespace figure_test {

using svg::Look;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double column = 84 * 72 / 25.4;  // points
constexpr std::array kinds{Look::Forward,
                           Look::Backward,
                           Look::BackwardInput,
                           Look::BackwardWeight,
                           Look::Recompute,
                           Look::Reduction,
                           Look::Optimizer};
/// Kinds without a pattern.
constexpr std::array plain_kinds{
    Look::Forward, Look::BackwardInput, Look::Backward, Look::BackwardWeight};

/// A rank that computes two stages, `count` micro-batches of `step` ms.
Timeline two_stages(int count, int step) {
    std::vector<Span> row;
    int now = 0;
    for (const Op op : {Op::Forward, Op::Backward}) {
        for (int i = 0; i < 2 * count; ++i) {
            row.push_back(
                testing::span({.op = op, .stage = i % 2, .micro_batch = i / 2}, now, now + step));
            now += step;
        }
        now += step;
    }
    return testing::timeline_of({row});
}

SvgOptions figure(const FigureLook& look) {
    return {.title = "of a screen", .figure = look};
}

/// All numbers that a pattern's group finds.
std::vector<double> numbers(const std::string& text, const std::string& pattern) {
    std::vector<double> found;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
        found.push_back(std::stod((*at)[1]));
    }
    return found;
}

HeatMapPicture heat_map() {
    return {.title = "of a screen",
            .row_axis = "stages",
            .column_axis = "micro-batches",
            .rows = {"2", "4"},
            .columns = {"8", "16", "a name that is much too long for its column"},
            .cells = {{{.value = 1.0, .lines = {"1", "10 %"}},
                       {.value = 2.0, .lines = {"2", "a line that is too long for its cell"}},
                       {}},
                      {{.value = 3.0, .lines = {"3"}, .best = true}, {.lines = {"-"}}, {}}},
            .legend = "Darker is faster, and this is what the lines of a cell mean."};
}

ModelPicture model() {
    return {
        .title = "of a screen",
        .units = {{.name = "stem", .detail = "linear"},
                  {.name = std::string(60, 'n'), .detail = "linear", .inputs = {0}},
                  {.name = "end", .detail = std::string(60, 'd'), .inputs = {1, 0}, .stage = 1}},
        .stages = {"stage 0: 2 units", "stage 1: 1 unit"}};
}

/// All kinds of pictures in one look.
std::map<std::string, std::string> every_picture(const FigureLook& look) {
    const Timeline timeline = two_stages(6, 3);
    Timeline measured = timeline;
    measured.origin = Origin::Measured;
    return {{"timeline", render_svg(timeline, figure(look))},
            {"pair", render_svg_pair(timeline, measured, figure(look))},
            {"list",
             render_svg_list({{std::string(30, 'a') + " " + std::string(30, 'b'), &timeline},
                              {"other", &measured}},
                             figure(look))},
            {"heat map", render_heat_map(heat_map(), look)},
            {"model", render_model(model(), look)}};
}

TEST(Figure, AWidthHasAUnit) {
    EXPECT_NEAR(figure_width("84mm", "--width"), 238.11, 0.01);
    EXPECT_NEAR(figure_width("8.4 cm", "--width"), 238.11, 0.01);
    EXPECT_DOUBLE_EQ(figure_width("3.5in", "--width"), 252);
    EXPECT_DOUBLE_EQ(figure_width("240pt", "--width"), 240);
    for (const char* const wrong : {"", "84", "mm", "84px", "84mmm", "-84mm", "nanmm", "infmm"}) {
        EXPECT_THROW(figure_width(wrong, "--width"), Error) << wrong;
    }
    EXPECT_THAT(std::string(testing::error_of([] { figure_width("84", "--width"); }).what()),
                HasSubstr("84mm"));
    EXPECT_THAT(std::string(testing::error_of([] { figure_width("3mm", "--width"); }).what()),
                HasSubstr("20mm"));
}

TEST(Figure, HasItsWidthInMillimetresAndPoints) {
    for (const auto& [name, svg] : every_picture({.width = column})) {
        SCOPED_TRACE(name);
        EXPECT_THAT(svg, HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"84mm\""));
        EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 238.11 "));
    }
}

TEST(Figure, NoTextIsSmallerThanSevenPoints) {
    for (const FigureLook& look : {FigureLook{.width = column, .legend = true, .title = "A title"},
                                   FigureLook{.width = FigureLook::narrowest}}) {
        for (const auto& [name, svg] : every_picture(look)) {
            SCOPED_TRACE(name);
            EXPECT_THAT(numbers(svg, "font-size=\"([0-9.]+)\""), Each(Ge(FigureLook::least_text)));
            EXPECT_EQ(svg.find("transform=\"scale"), std::string::npos);
        }
    }
}

TEST(Figure, NothingLiesOutsideOfIt) {
    for (const auto& [name, svg] :
         every_picture({.width = column, .legend = true, .title = "A title"})) {
        SCOPED_TRACE(name);
        EXPECT_THAT(numbers(svg, "<(?:text|rect) x=\"([-0-9.]+)\""),
                    Each(AllOf(Ge(0), Le(column))));
        const double height = numbers(svg, "viewBox=\"0 0 238.11 ([0-9.]+)\"").front();
        EXPECT_THAT(numbers(svg, "<text x=\"[-0-9.]+\" y=\"([-0-9.]+)\""),
                    Each(AllOf(Ge(FigureLook::least_text / 2), Le(height))));
    }
}

TEST(Figure, LegendAndTitleAreDrawnOnRequest) {
    for (const auto& [name, svg] : every_picture({.width = column})) {
        SCOPED_TRACE(name);
        EXPECT_THAT(svg, Not(HasSubstr("of a screen")));
        EXPECT_THAT(svg, Not(HasSubstr(">backward</text>")));
        EXPECT_THAT(svg, Not(HasSubstr("Darker")));
        EXPECT_THAT(svg, Not(HasSubstr(">to the next stage</text>")));
    }
    const auto asked = every_picture({.width = column, .legend = true, .title = "A <title>"});
    for (const auto& [name, svg] : asked) {
        EXPECT_THAT(svg, HasSubstr(">A &lt;title&gt;</text>")) << name;
    }
    EXPECT_THAT(
        asked.at("timeline"),
        AllOf(HasSubstr(">backward</text>"), HasSubstr(">second stage of the rank</text>")));
    EXPECT_THAT(asked.at("heat map"), HasSubstr(">Darker is faster"));
    EXPECT_THAT(asked.at("model"), HasSubstr(">to the next stage</text>"));
}

TEST(Figure, ATitleReplacesThatOfAScreen) {
    const FigureLook look{.title = "mine"};
    EXPECT_THAT(
        every_picture(look),
        Each(::testing::Pair(::testing::_,
                             AllOf(HasSubstr(">mine</text>"), Not(HasSubstr("of a screen"))))));
}

TEST(Figure, SaysWhetherItsTimesArePredictedOrMeasured) {
    Timeline timeline = two_stages(2, 3);
    EXPECT_THAT(render_svg(timeline, figure({.width = column})),
                HasSubstr(">predicted time (ms)</text>"));
    timeline.origin = Origin::Emulated;
    EXPECT_THAT(render_svg(timeline, figure({.width = column})),
                HasSubstr(">emulated time (ms)</text>"));
}

TEST(Figure, NamesThatDoNotFitAreLeftOut) {
    // 84 mm are 238 points: 8 spans and 2 gaps have 20 points each, 80 spans a tenth of it.
    const std::string wide = render_svg(two_stages(2, 3), figure({.width = column}));
    EXPECT_THAT(wide, AllOf(HasSubstr(">F1</text>"), HasSubstr(">B1</text>")));
    const std::string narrow = render_svg(two_stages(20, 3), figure({.width = column}));
    EXPECT_THAT(narrow, AllOf(Not(HasSubstr(">F1</text>")), Not(HasSubstr(">1</text>"))));
    EXPECT_THAT(narrow, HasSubstr("F1: "));

    const std::string map = render_heat_map(heat_map(), {.width = column});
    EXPECT_THAT(map, AllOf(HasSubstr(">16</text>"), Not(HasSubstr("too long"))));
    const std::string graph = render_model(model(), {.width = column});
    EXPECT_THAT(graph,
                AllOf(HasSubstr(">end</text>"),
                      Not(HasSubstr("nnn</text>")),
                      Not(HasSubstr("ddd</text>")),
                      HasSubstr(">stage 0</text>")));
}

TEST(Figure, EveryStageOfARankHasAShadeOfItsOwn) {
    const std::string drawn = render_svg(two_stages(2, 3), figure({.width = column}));
    for (const Look look : {Look::Forward, Look::Backward}) {
        for (const int place : {0, 1}) {
            EXPECT_THAT(
                drawn,
                HasSubstr(fmt::format("fill=\"{}\"", svg::paper_shade(look, place, 2).fill)));
        }
    }
}

TEST(Figure, GreyTellsKindsAndStagesApart) {
    for (int places = 1; places <= 4; ++places) {
        for (int one = 0; one < places; ++one) {
            for (std::size_t kind = 0; kind < plain_kinds.size(); ++kind) {
                const double here =
                    svg::lightness(svg::paper_shade(plain_kinds.at(kind), one, places).fill);
                for (std::size_t lighter = kind + 1; lighter < plain_kinds.size(); ++lighter) {
                    for (int other = 0; other < places; ++other) {
                        const double there = svg::lightness(
                            svg::paper_shade(plain_kinds.at(lighter), other, places).fill);
                        EXPECT_GE(there - here, 8) << kind << " and " << lighter;
                    }
                }
                if (one > 0) {
                    const double before = svg::lightness(
                        svg::paper_shade(plain_kinds.at(kind), one - 1, places).fill);
                    EXPECT_GE(here - before, 7.5 / (places - 1)) << kind << ", " << places;
                }
            }
        }
    }
}

TEST(Figure, EveryTextStandsOutFromItsGround) {
    for (const Look look : kinds) {
        for (int place = 0; place < 4; ++place) {
            const svg::Shade shade = svg::paper_shade(look, place, 4);
            EXPECT_GE(svg::contrast(shade.fill, shade.ink), 4.5) << svg::style_of(look).words;
        }
    }
    // Patterns are white: under black text they only widen the distance.
    for (const Look look : {Look::Recompute, Look::Reduction, Look::Optimizer}) {
        EXPECT_EQ(svg::paper_shade(look, 0, 1).ink, "#000000");
    }
    EXPECT_GE(svg::contrast(svg::ink, "#FFFFFF"), 4.5);
    EXPECT_GE(svg::contrast(svg::pale_ink, "#FFFFFF"), 4.5);
    EXPECT_GE(svg::contrast(svg::pale_ink, svg::group_fill), 4.5);
    HeatMapPicture six{.rows = {"1"}, .columns = std::vector<std::string>(6, "c"), .cells = {{}}};
    for (int value = 0; value < 6; ++value) {
        six.cells.front().push_back({.value = value, .lines = {"x"}});
    }
    const std::string map =
        render_heat_map(six, {.width = column}) + render_heat_map(six);  // a screen's, too
    const std::regex cell("fill=\"(#[0-9A-F]{6})\" stroke[^>]*/><text[^>]*fill=\"(#[0-9A-F]{6})\"");
    int cells = 0;
    for (std::sregex_iterator at(map.begin(), map.end(), cell), end; at != end; ++at, ++cells) {
        EXPECT_GE(svg::contrast((*at)[1].str(), (*at)[2].str()), 4.5) << at->str();
    }
    EXPECT_EQ(cells, 12);
}

TEST(Figure, LightnessAndContrastAreThoseOfTheStandards) {
    EXPECT_NEAR(svg::lightness("#000000"), 0, 1e-9);
    EXPECT_NEAR(svg::lightness("#FFFFFF"), 100, 1e-9);
    EXPECT_NEAR(svg::lightness("#777777"), 50.03, 0.01);  // sRGB's middle grey
    EXPECT_NEAR(svg::contrast("#FFFFFF", "#000000"), 21, 1e-9);
    EXPECT_NEAR(svg::contrast("#777777", "#FFFFFF"), 4.48, 0.005);  // WCAG's best known near miss
}

}  // namespace figure_test
}  // namespace pipetwin
