// SPDX-License-Identifier: Apache-2.0
#include "core/svg/model_svg.h"

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin {
namespace model_svg_test {

using ::testing::HasSubstr;
using ::testing::Not;

int count_of(const std::string& text, std::string_view part) {
    int count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

/// Layers 0 to 4; 1 and 2 read 0, 3 joins them, 4 reads 3 and 0.
ModelPicture branches() {
    return {.title = "a <b>",
            .units = {{.name = "stem"},
                      {.name = "left", .inputs = {0}},
                      {.name = "right", .inputs = {0}},
                      {.name = "join", .inputs = {1, 2}, .joins = true},
                      {.name = "loss", .inputs = {3, 0}}}};
}

TEST(ModelSvg, HasABoxForEachLayerAndAnArrowForEachInput) {
    const std::string svg = render_model(branches());
    for (const char* const name : {"stem", "left", "right", "join", "loss"}) {
        EXPECT_THAT(svg, HasSubstr(fmt::format(">{}</text>", name)));
    }
    EXPECT_EQ(count_of(svg, "marker-end"), 6);
    EXPECT_THAT(svg, HasSubstr("<title>stem to right</title>"));
    EXPECT_THAT(svg, HasSubstr("a &lt;b&gt;"));
    EXPECT_THAT(svg, Not(HasSubstr("past the stages between")));
}

TEST(ModelSvg, TellsArrowsToTheNextStageFromThoseThatGoPastOne) {
    ModelPicture picture = branches();
    for (int unit = 0; unit < 5; ++unit) {
        picture.units[static_cast<std::size_t>(unit)].stage = unit / 2;
    }
    picture.stages = {"stage 0", "stage 1", "stage 2"};
    const std::string svg = render_model(picture);
    // 0 -> 1 stays, 0 -> 2, 1 -> 3 and 3 -> 4 cross a cut, 2 -> 3 stays, 0 -> 4 goes past stage 1.
    EXPECT_EQ(count_of(svg, "url(#tip0)"), 2);
    EXPECT_EQ(count_of(svg, "url(#tip1)"), 3);
    EXPECT_EQ(count_of(svg, "url(#tip2)"), 1);
    EXPECT_THAT(svg, HasSubstr(">stage 2</text>"));
    EXPECT_THAT(svg, HasSubstr(">past the stages between</text>"));
}

TEST(ModelSvg, DrawsLongRunsOfALargeModelAsOneBox) {
    ModelPicture picture;
    for (int unit = 0; unit < 200; ++unit) {
        picture.units.push_back({.name = fmt::format("layer{}", unit)});
        if (unit > 0) {
            picture.units.back().inputs = {unit - 1};
        }
    }
    picture.units[150].inputs.push_back(50);
    const std::string svg = render_model(picture);
    EXPECT_THAT(svg, HasSubstr(">layer1 ... layer49</text>"));
    EXPECT_THAT(svg, HasSubstr(">49 layers</text>"));
    EXPECT_THAT(svg, HasSubstr(">layer50</text>"));
    EXPECT_THAT(svg, HasSubstr("<title>layer50 to layer150</title>"));
    EXPECT_THAT(svg, Not(HasSubstr(">layer100</text>")));
}

}  // namespace model_svg_test
}  // namespace pipetwin
