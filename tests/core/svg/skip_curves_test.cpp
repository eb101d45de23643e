// SPDX-License-Identifier: Apache-2.0
#include "core/svg/skip_curves.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/edge.h"
#include "core/svg/svg.h"
#include "tests/support/spans.h"

namespace pipetwin {
namespace skip_curves_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// A compute action.
Span compute(Op op, int stage, int micro_batch, int begin_ms, int end_ms) {
    return testing::span({.op = op, .stage = stage, .micro_batch = micro_batch}, begin_ms, end_ms);
}

/// A send or receive that waits all its time.
Span message(const Action& action, int begin_ms, int end_ms) {
    Span result = testing::span(action, begin_ms, end_ms);
    result.ready = result.end;
    return result;
}

const Action output{.op = Op::SendForward, .stage = 0, .micro_batch = 5, .hop = 1};
const Action gradient{.op = Op::SendBackward, .stage = 2, .micro_batch = 5, .hop = 1};

/// Three ranks; an output of stage 0 goes to stage 2, its gradient back.
Timeline past_rank_1() {
    return testing::timeline_of(
        {{compute(Op::Forward, 0, 5, 0, 20),
          message(output, 20, 30),
          message(other_end(gradient), 30, 90)},
         {compute(Op::Forward, 1, 5, 20, 40), compute(Op::Backward, 1, 5, 80, 100)},
         {message(other_end(output), 0, 40),
          compute(Op::Forward, 2, 5, 40, 60),
          compute(Op::Backward, 2, 5, 60, 70),
          message(gradient, 70, 80)}});
}

struct DrawnCurve {
    std::string send;
    svg::Point begin;
    svg::Point end;
};

constexpr const char* coordinate = "(-?[0-9.]+)";

/// The curves of a picture, by the titles that only they have.
std::vector<DrawnCurve> curves_in(const std::string& picture) {
    const std::string c = coordinate;
    const std::regex pattern("<path d=\"M" + c + " " + c + "C(?:[^ ]+ ){4}" + c + " " + c +
                             "m[^>]*><title>([^:]*): handed over");
    std::vector<DrawnCurve> curves;
    for (std::sregex_iterator at(picture.begin(), picture.end(), pattern), end; at != end; ++at) {
        const auto place = [&](std::size_t x) {
            return svg::Point{std::stod((*at)[x].str()), std::stod((*at)[x + 1].str())};
        };
        curves.push_back({.send = (*at)[5].str(), .begin = place(1), .end = place(3)});
    }
    return curves;
}

struct Rectangle {
    double left = 0;
    double top = 0;
    double right = 0;
    double bottom = 0;
};

/// The rectangle of an action, or of the time it waits.
Rectangle rectangle_of(const std::string& picture, const std::string& title) {
    const std::string c = coordinate;
    const std::regex pattern("<title>" + title + ": [^<]*</title><rect x=\"" + c + "\" y=\"" + c +
                             "\" width=\"" + c + "\" height=\"" + c + "\"");
    std::smatch found;
    if (!std::regex_search(picture, found, pattern)) {
        ADD_FAILURE() << "no rectangle of " << title;
        return {};
    }
    const auto number = [&found](std::size_t at) { return std::stod(found[at].str()); };
    return {number(1), number(2), number(1) + number(3), number(2) + number(4)};
}

constexpr double hair = 0.75;  // of background between neighbours, and two decimals

// The '<' of a receive's name once stood in the picture as it is, and no browser opened it.
TEST(SkipCurves, LeadFromTheEndOfTheSendToTheEndOfTheReceive) {
    const std::string picture = render_svg(past_rank_1(), {});
    const std::vector<DrawnCurve> curves = curves_in(picture);
    ASSERT_THAT(curves, SizeIs(2));
    const DrawnCurve& down = curves[0].send == "0SEND_F5&gt;2" ? curves[0] : curves[1];
    const DrawnCurve& up = curves[0].send == "0SEND_F5&gt;2" ? curves[1] : curves[0];
    ASSERT_EQ(up.send, "2SEND_B5&gt;0");
    const Rectangle sent = rectangle_of(picture, "0SEND_F5&gt;2 waits");
    const Rectangle taken = rectangle_of(picture, "2RECV_F5&lt;0 waits");
    EXPECT_NEAR(down.begin.x, sent.right, hair);
    EXPECT_NEAR(down.begin.y, sent.bottom, 0.01);
    EXPECT_NEAR(down.end.x, taken.right, hair);
    EXPECT_NEAR(down.end.y, taken.top, 0.01);
    const Rectangle sent_back = rectangle_of(picture, "2SEND_B5&gt;0 waits");
    const Rectangle taken_back = rectangle_of(picture, "0RECV_B5&lt;2 waits");
    EXPECT_NEAR(up.begin.x, sent_back.right, hair);
    EXPECT_NEAR(up.begin.y, sent_back.top, 0.01);
    EXPECT_NEAR(up.end.x, taken_back.right, hair);
    EXPECT_NEAR(up.end.y, taken_back.bottom, 0.01);
}

TEST(SkipCurves, OutputsAndGradientsDifferInColourAndDashes) {
    const std::string picture = render_svg(past_rank_1(), {});
    const auto stroke_of = [&picture](const std::string& send) {
        const std::size_t title = picture.find("<title>" + send + ": handed");
        const std::size_t begin = picture.rfind("<path", title);
        return picture.substr(begin, title - begin);
    };
    EXPECT_THAT(stroke_of("0SEND_F5&gt;2"), HasSubstr(std::string(svg::skip_ink)));
    EXPECT_THAT(stroke_of("0SEND_F5&gt;2"), Not(HasSubstr("dasharray")));
    EXPECT_THAT(stroke_of("2SEND_B5&gt;0"), HasSubstr(std::string(svg::skip_gradient_ink)));
    EXPECT_THAT(stroke_of("2SEND_B5&gt;0"), HasSubstr("dasharray"));
}

TEST(SkipCurves, LieBelowTheNamesOfTheActions) {
    const std::string picture = render_svg(past_rank_1(), {});
    const std::size_t last_curve = picture.rfind(": handed over");
    ASSERT_NE(last_curve, std::string::npos);
    for (const char* const name : {">F5</text>", ">B5</text>"}) {
        ASSERT_NE(picture.find(name), std::string::npos);
        EXPECT_GT(picture.find(name), last_curve) << name;
    }
    EXPECT_LT(picture.rfind("<g><title>"), picture.find(": handed over")) << "over the rectangles";
}

TEST(SkipCurves, StandInTheLegendWhereThereAreSome) {
    const std::string both = render_svg(past_rank_1(), {});
    EXPECT_THAT(both, HasSubstr(">skip message</text>"));
    EXPECT_THAT(both, HasSubstr(">gradient of one</text>"));
    EXPECT_THAT(both, Not(HasSubstr("skip messages drawn")));
    Timeline outputs = past_rank_1();
    outputs.ranks[2].pop_back();
    EXPECT_THAT(render_svg(outputs, {}), HasSubstr(">skip message</text>"));
    EXPECT_THAT(render_svg(outputs, {}), Not(HasSubstr("gradient of one")));
}

/// Pictures of models without branches are what they were.
TEST(SkipCurves, OfNeighboursThereAreNone) {
    Timeline neighbours = past_rank_1();
    std::erase_if(neighbours.ranks[1], [](const Span&) { return true; });
    std::swap(neighbours.ranks[1], neighbours.ranks[2]);
    for (auto& row : neighbours.ranks) {
        for (Span& span : row) {
            span.action.stage = std::min(span.action.stage, 1);
            span.action.hop = 0;
        }
    }
    const std::string picture = render_svg(neighbours, {});
    EXPECT_THAT(curves_in(picture), IsEmpty());
    EXPECT_THAT(picture, Not(HasSubstr("skip message")));
    EXPECT_THAT(picture, Not(HasSubstr(std::string(svg::skip_gradient_ink))));
    EXPECT_THAT(picture, Not(HasSubstr("pointer-events")));
}

TEST(SkipCurves, NeedBothEndsInThePicture) {
    Timeline cut = past_rank_1();
    cut.ranks[2].erase(cut.ranks[2].begin());
    EXPECT_THAT(curves_in(render_svg(cut, {})), SizeIs(1));
    SvgOptions early;
    early.span = std::chrono::milliseconds(50);
    EXPECT_THAT(curves_in(render_svg(past_rank_1(), early)), SizeIs(1)) << "the gradient is later";
    early.span = std::chrono::milliseconds(35);
    const std::string nothing = render_svg(past_rank_1(), early);
    EXPECT_THAT(curves_in(nothing), IsEmpty());
    EXPECT_THAT(nothing, Not(HasSubstr("skip message")));
}

TEST(SkipCurves, OfAPairStayWithinTheirSide) {
    Timeline measured = past_rank_1();
    measured.origin = Origin::Measured;
    const std::string picture = render_svg_pair(past_rank_1(), measured, {});
    const std::vector<DrawnCurve> curves = curves_in(picture);
    ASSERT_THAT(curves, SizeIs(4));
    std::set<double> starts;
    for (const DrawnCurve& curve : curves) {
        starts.insert(curve.begin.y);
    }
    EXPECT_THAT(starts, SizeIs(4)) << "each side's ranks 0 and 2";
    EXPECT_NEAR(std::abs(curves[0].begin.y - curves[0].end.y),
                std::abs(curves[2].begin.y - curves[2].end.y),
                0.02);
}

/// Two ranks, between which stages 0 and 2 send each other an output and a gradient for each
/// micro-batch, one every 4 ms.
Timeline crowd(int micro_batches) {
    std::vector<Span> first;
    std::vector<Span> second;
    for (int m = 0; m < micro_batches; ++m) {
        const int begin = 4 * m;
        Action send = output;
        Action back = gradient;
        send.micro_batch = back.micro_batch = m;
        first.push_back(compute(Op::Forward, 0, m, begin, begin + 1));
        first.push_back(message(send, begin + 1, begin + 1));
        first.push_back(message(other_end(back), begin + 1, begin + 3));
        second.push_back(message(other_end(send), begin, begin + 2));
        second.push_back(message(back, begin + 3, begin + 3));
    }
    return testing::timeline_of({first, second});
}

TEST(SkipCurves, AreAsManyAsTheSkipMessages) {
    for (const int micro_batches : {1, 7, 150}) {
        EXPECT_THAT(curves_in(render_svg(crowd(micro_batches), {})), SizeIs(2 * micro_batches));
    }
}

TEST(SkipCurves, OfMoreThanCanBeToldApartTheLegendSaysHowManyAreDrawn) {
    const std::string picture = render_svg(crowd(5'000), {});
    const std::size_t drawn = curves_in(picture).size();
    EXPECT_LE(drawn, svg::most_curves);
    EXPECT_GE(drawn, svg::most_curves / 4);
    EXPECT_THAT(picture, HasSubstr(">" + std::to_string(drawn) + " of 10000 skip messages drawn"));
}

/// Curves between random places of a few rows.
std::vector<svg::SkipCurve> random_curves(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<svg::SkipCurve> curves;
    for (std::size_t i = 0; i < count; ++i) {
        const double x = static_cast<double>(random() % 9'000) / 10;
        const double to = x + static_cast<double>(random() % 200) / 10;
        const bool back = random() % 2 == 0;
        const double y = 30.0 * static_cast<double>(random() % 3);
        curves.push_back(
            {.begin = {x, back ? y + 90 : y}, .end = {to, back ? y : y + 90}, .gradient = back});
    }
    return curves;
}

TEST(CurvesApart, AreAllWhereTheyAreFew) {
    const auto curves = random_curves(5, 1);
    EXPECT_THAT(svg::curves_apart(curves, 5), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(svg::curves_apart({}, 5), IsEmpty());
}

TEST(CurvesApart, AreAtMostAsManyAsWantedAndOfEveryPairOfRows) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
        const auto curves = random_curves(200 * seed, seed);
        const auto shown = svg::curves_apart(curves, 100);
        EXPECT_LE(shown.size(), 100U);
        EXPECT_TRUE(std::ranges::is_sorted(shown));
        std::set<std::pair<double, double>> pairs;
        for (const std::size_t at : shown) {
            pairs.emplace(curves[at].begin.y, curves[at].end.y);
        }
        EXPECT_THAT(pairs, SizeIs(6)) << "three pairs of rows, both ways";
    }
}

TEST(CurvesApart, LeaveOutCopiesFirst) {
    std::vector<svg::SkipCurve> curves;
    for (int i = 0; i < 40; ++i) {
        const double x = 100.0 * (i % 20);
        curves.push_back({.begin = {x, 0}, .end = {x + 10, 60}});
    }
    EXPECT_THAT(svg::curves_apart(curves, 30), SizeIs(20));
}

/// As of hundreds of ranks that all send to each other.
TEST(CurvesApart, OfMorePairsOfRowsThanWantedAreStillFew) {
    std::vector<svg::SkipCurve> curves;
    for (int i = 0; i < 1'000; ++i) {
        curves.push_back({.begin = {10, 10.0 * i}, .end = {20, 10.0 * i + 30}});
    }
    const auto shown = svg::curves_apart(curves, 300);
    EXPECT_LE(shown.size(), 300U);
    EXPECT_GE(shown.size(), 150U);
}

}  // namespace skip_curves_test
}  // namespace pipetwin
