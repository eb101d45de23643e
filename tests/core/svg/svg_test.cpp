// SPDX-License-Identifier: Apache-2.0
#include "core/svg/svg.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/spans.h"

namespace pipetwin {
namespace svg_test {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

Span span(Op op, int micro_batch, int begin_ms, int end_ms) {
    return testing::span({.op = op, .micro_batch = micro_batch}, begin_ms, end_ms);
}

Span wait(Op op, int begin_ms, int end_ms) {
    Span result = span(op, 0, begin_ms, end_ms);
    result.ready = result.end;
    return result;
}

Timeline timeline_of(Origin origin, std::vector<std::vector<Span>> ranks) {
    Timeline timeline = testing::timeline_of(std::move(ranks));
    timeline.origin = origin;
    return timeline;
}

/// Two ranks with every kind of span.
Timeline every_kind(Origin origin = Origin::Predicted) {
    return timeline_of(origin,
                       {{span(Op::Forward, 12, 0, 20),
                         wait(Op::SendForward, 20, 30),
                         span(Op::Recompute, 12, 30, 50),
                         wait(Op::RecvBackward, 50, 80),
                         span(Op::Backward, 12, 80, 99),
                         span(Op::Optimizer, 0, 99, 110)},
                        {wait(Op::RecvForward, 0, 20),
                         span(Op::Forward, 12, 20, 40),
                         span(Op::BackwardInput, 12, 40, 60),
                         span(Op::BackwardWeight, 12, 60, 80),
                         span(Op::ReduceGradient, 0, 80, 90)}});
}

/// Whether every & begins one of the names that XML knows by itself.
bool is_escaped(const std::string& xml) {
    for (auto at = xml.find('&'); at != std::string::npos; at = xml.find('&', at + 1)) {
        const std::string name = xml.substr(at + 1, xml.find(';', at) - at - 1);
        if (name != "lt" && name != "gt" && name != "amp" && name != "quot") {
            return false;
        }
    }
    return true;
}

/// Follows one tag with the stack of those that are open.
bool nests(const std::string& tag, std::vector<std::string>& open) {
    if (tag.front() == '/') {
        const bool closes = !open.empty() && open.back() == tag.substr(1);
        if (closes) {
            open.pop_back();
        }
        return closes;
    }
    if (tag.back() != '/') {
        open.push_back(tag.substr(0, tag.find(' ')));
    }
    return std::count(tag.begin(), tag.end(), '"') % 2 == 0 && tag.find('<') == std::string::npos;
}

/// Tags nest, attributes are quoted, text is escaped: enough XML for what a program writes.
::testing::AssertionResult is_well_formed(const std::string& xml) {
    if (!is_escaped(xml)) {
        return ::testing::AssertionFailure() << "a bare &";
    }
    std::vector<std::string> open;
    for (auto at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
        const auto end = xml.find('>', at);
        const std::string tag = xml.substr(at + 1, end - at - 1);
        if (end == std::string::npos || !nests(tag, open)) {
            return ::testing::AssertionFailure() << "a broken tag: <" << tag.substr(0, 80);
        }
        at = end;
    }
    if (!open.empty()) {
        return ::testing::AssertionFailure() << "<" << open.back() << "> stays open";
    }
    return ::testing::AssertionSuccess();
}

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
        ++found;
    }
    return found;
}

/// The number that begins at this place.
double number_in(const std::string& text, std::size_t at) {
    double number = 0;
    std::from_chars(text.data() + at, text.data() + text.size(), number);
    return number;
}

TEST(Svg, IsWellFormed) {
    SvgOptions options;
    options.title = "a < b & \"c\"\x01";
    EXPECT_TRUE(is_well_formed(render_svg(every_kind(), options)));
    EXPECT_TRUE(
        is_well_formed(render_svg_pair(every_kind(), every_kind(Origin::Emulated), options)));
    EXPECT_TRUE(is_well_formed(render_svg(Timeline{}, options)));
}

TEST(Svg, NeedsNothingFromOutside) {
    const std::string svg = render_svg(every_kind(), {});
    EXPECT_EQ(count(svg, "http"), 1U);  // the namespace
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_THAT(svg, Not(HasSubstr("href")));
}

TEST(Svg, NamesKindAndMicroBatchWhereTheyFit) {
    EXPECT_THAT(render_svg(every_kind(), {}), HasSubstr(">F12</text>"));
    SvgOptions narrow;
    narrow.width = 150;
    const std::string svg = render_svg(every_kind(), narrow);
    EXPECT_THAT(svg, Not(HasSubstr(">F12</text>")));
    EXPECT_THAT(svg, HasSubstr(">12</text>"));
}

TEST(Svg, LegendTellsTheKindsThatOccurAndNoOthers) {
    const std::string svg = render_svg(every_kind(), {});
    for (const char* const words : {"forward",
                                    "backward",
                                    "input gradient",
                                    "weight gradient",
                                    "recompute",
                                    "reduction",
                                    "optimizer",
                                    "idle",
                                    "waits for room"}) {
        EXPECT_THAT(svg, HasSubstr(std::string(">") + words + "</text>"));
    }
    const std::string forward_only =
        render_svg(timeline_of(Origin::Predicted, {{span(Op::Forward, 0, 0, 5)}}), {});
    EXPECT_THAT(forward_only, HasSubstr(">forward</text>"));
    EXPECT_THAT(forward_only, Not(HasSubstr(">backward</text>")));
    SvgOptions without;
    without.legend = false;
    EXPECT_THAT(render_svg(every_kind(), without), Not(HasSubstr(">forward</text>")));
}

Span on_stage(int stage, int begin_ms) {
    Span result = span(Op::Forward, 3, begin_ms, begin_ms + 10);
    result.action.stage = stage;
    return result;
}

std::size_t lines(const std::string& svg) {
    return count(svg, "stroke-width=\"1.4\"");
}

TEST(Svg, LinesTellTheStagesOfARankApart) {
    SvgOptions without_legend;
    without_legend.legend = false;
    const Timeline two = timeline_of(
        Origin::Predicted, {{on_stage(0, 0), on_stage(3, 10)}, {on_stage(1, 0), on_stage(2, 10)}});
    EXPECT_EQ(lines(render_svg(two, without_legend)), 2U);  // of stages 3 and 2
    EXPECT_THAT(render_svg(two, {}), HasSubstr(">second stage of the rank</text>"));
    EXPECT_THAT(render_svg(two, {}), Not(HasSubstr("third stage")));
    const Timeline one = timeline_of(Origin::Predicted, {{on_stage(4, 0), on_stage(4, 10)}});
    EXPECT_EQ(lines(render_svg(one, {})), 0U);
    EXPECT_THAT(render_svg(one, {}), Not(HasSubstr("stage of the rank")));
}

TEST(Svg, TheFourthStageOfARankAndTheNextLookAlike) {
    std::vector<Span> row;
    for (int stage = 0; stage < 6; ++stage) {
        row.push_back(on_stage(stage, 10 * stage));
    }
    const std::string svg = render_svg(timeline_of(Origin::Predicted, {row}), {});
    EXPECT_EQ(lines(svg), 5U + 3U);  // bars and legend
    EXPECT_THAT(svg, HasSubstr(">fourth stage of the rank or later</text>"));
    EXPECT_TRUE(is_well_formed(svg));
}

TEST(Svg, EveryOriginStandsInThePicture) {
    EXPECT_THAT(render_svg(every_kind(), {}), HasSubstr("predicted 110.000 ms"));
    EXPECT_THAT(render_svg(every_kind(Origin::Emulated), {}),
                HasSubstr("emulated (paced device or links) 110.000 ms"));
    const std::string pair = render_svg_pair(every_kind(), every_kind(Origin::Measured), {});
    EXPECT_EQ(count(pair, ">predicted</text>"), 2U);
    EXPECT_EQ(count(pair, ">measured</text>"), 2U);
}

TEST(Svg, AxisHasRoundTicks) {
    const std::string svg = render_svg(every_kind(), {});
    for (const char* const tick : {">0 ms<", ">20<", ">40<", ">60<", ">80<", ">100<"}) {
        EXPECT_THAT(svg, HasSubstr(tick));
    }
    const std::string microseconds = render_svg(
        timeline_of(
            Origin::Predicted,
            {{{.action = {.op = Op::Forward}, .begin = {}, .ready = {}, .end = Duration{1100}}}}),
        {});
    EXPECT_THAT(microseconds, HasSubstr(">0.0002<"));
}

TEST(Svg, AGivenSpanCutsWhatLiesBehindIt) {
    SvgOptions options;
    options.span = milliseconds(20);
    const std::string svg = render_svg(every_kind(), options);
    EXPECT_THAT(svg, HasSubstr("0F12"));
    EXPECT_THAT(svg, Not(HasSubstr("0B12")));
}

/// Rank 0 waits for a message and then has nothing left to do; both are idle time.
TEST(Svg, AllIdleTimeIsHatchedAndCalledSo) {
    const std::string svg = render_svg(timeline_of(Origin::Predicted,
                                                   {{span(Op::Forward, 0, 0, 20),
                                                     wait(Op::RecvBackward, 20, 40),
                                                     span(Op::Backward, 0, 50, 60)},
                                                    {span(Op::Forward, 0, 0, 100)}}),
                                       {});
    EXPECT_THAT(svg, HasSubstr("0RECV_B0 waits: 20.000 to 40.000 ms"));
    EXPECT_THAT(svg, HasSubstr("idle: 40.000 to 50.000 ms"));
    EXPECT_THAT(svg, HasSubstr("idle: 60.000 to 100.000 ms"));
    EXPECT_THAT(svg, HasSubstr(">idle</text>"));
    EXPECT_THAT(svg, Not(HasSubstr("waits for")));
}

/// A wide letter beside narrow ones must not vanish: a W without it looks like an F.
TEST(Svg, AWideLetterIsDrawnSmallerWhereItDoesNotFit) {
    const std::string svg = render_svg(timeline_of(Origin::Predicted,
                                                   {{span(Op::Forward, 1, 0, 20),
                                                     span(Op::BackwardWeight, 1, 20, 40),
                                                     span(Op::Backward, 2, 40, 1000)}}),
                                       {});
    EXPECT_THAT(svg, HasSubstr(">W1</text>"));
}

/// Names without a micro-batch ran over their rectangles, as capitals counted as small letters.
/// Widths of Helvetica, in thousandths of the size: RG 722 + 778, OPT 778 + 667 + 611, NORM 722 +
/// 778 + 722 + 833.
TEST(Svg, NamesWithoutAMicroBatchAreWrittenOnlyWhereTheyFit) {
    struct Case {
        Op op;
        std::string name;
        double width;
    };
    for (const Case& one : {Case{Op::ReduceGradient, "RG", 1.5},
                            Case{Op::Optimizer, "OPT", 2.056},
                            Case{Op::GradientNorm, "NORM", 3.055}}) {
        int named = 0;
        for (int length = 1; length <= 60; ++length) {
            SvgOptions without_legend;
            without_legend.legend = false;
            const std::string svg = render_svg(
                timeline_of(Origin::Predicted,
                            {{span(Op::Forward, 1, 0, 500), span(one.op, 0, 500, 500 + length)}}),
                without_legend);
            EXPECT_THAT(svg, Not(HasSubstr(">REDUCE_GRAD<")));
            const auto name = svg.find(">" + one.name + "</text>");
            if (name == std::string::npos) {
                continue;
            }
            ++named;
            const auto number_before = [&svg](std::string_view key, std::size_t at) {
                return number_in(svg, svg.rfind(key, at) + key.size());
            };
            EXPECT_LE(one.width * number_before("font-size=\"", name),
                      number_before(" width=\"", name))
                << one.name << " in " << length << " ms";
        }
        EXPECT_GT(named, 30) << one.name;
        EXPECT_LT(named, 60) << one.name;
    }
}

TEST(Svg, TheLegendHasTheShortNameOfAReduction) {
    EXPECT_EQ(count(render_svg(every_kind(), {}), ">RG</text>"), 2U);  // bar and legend
}

TEST(Svg, BarsTooThinToBeSeenAreDrawnTogether) {
    std::vector<Span> row;
    for (int i = 0; i < 100'000; ++i) {
        row.push_back(span(i % 2 == 0 ? Op::Forward : Op::Backward, i, i, i + 1));
    }
    const std::string svg = render_svg(timeline_of(Origin::Predicted, {row}), {});
    EXPECT_LT(svg.size(), 200'000U);
    EXPECT_TRUE(is_well_formed(svg));
}

}  // namespace svg_test
}  // namespace pipetwin
