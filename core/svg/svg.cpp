// SPDX-License-Identifier: Apache-2.0
#include "core/svg/svg.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/svg/paper.h"
#include "core/svg/skip_curves.h"
#include "core/svg/svg_pieces.h"
#include "core/svg/timeline_picture.h"

namespace pipetwin {

namespace {

using namespace svg;

std::string rank_label(std::size_t rank) {
    return fmt::format("rank {}", rank);
}

/// The origin in words, and the time: "predicted 428.000 ms". A picture of an emulated timeline
/// must say that it is one.
std::string facts_of(const Timeline& timeline) {
    return fmt::format("{}{} {}",
                       to_string(timeline.origin),
                       timeline.origin == Origin::Emulated ? " (paced device or links)" : "",
                       format_duration(step_time(timeline)));
}

/// Width of the column with the names of ranks, of a figure or a screen.
double rank_column(const SvgOptions& options, std::size_t ranks) {
    constexpr double of_screen = 54;
    return options.figure.is_paper()
               ? text_width(rank_label(std::max<std::size_t>(ranks, 1) - 1), paper_text) + 3
               : of_screen;
}

void draw_rows(const Timeline& timeline, TimelinePicture& picture) {
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        picture.background(picture.row_height());
        picture.label(picture.sizes().margin, picture.row_height(), rank_label(rank), {});
        picture.row(timeline, rank);
        picture.skip(picture.sizes().gap);
    }
}

Duration shown_span(const SvgOptions& options, Duration longest) {
    return options.span > Duration{} ? options.span : longest;
}

}  // namespace

std::string render_svg(const Timeline& timeline, const SvgOptions& options) {
    const Timeline shown = aligned(timeline);
    TimelinePicture picture(options,
                            {.span = shown_span(options, step_time(shown)),
                             .label_width = rank_column(options, shown.ranks.size()),
                             .curves = has_skip_messages(shown),
                             .places = most_stages(shown)});
    picture.header(facts_of(shown), to_string(shown.origin));
    draw_rows(shown, picture);
    return picture.finish();
}

std::string render_svg_pair(const Timeline& predicted,
                            const Timeline& measured,
                            const SvgOptions& options) {
    const std::array<Timeline, 2> sides{aligned(predicted), aligned(measured)};
    const std::size_t ranks = std::max(sides[0].ranks.size(), sides[1].ranks.size());
    double label_width = 116;
    if (options.figure.is_paper()) {
        label_width = rank_column(options, ranks) + 3;
        label_width += std::max(text_width(to_string(sides[0].origin), paper_text),
                                text_width(to_string(sides[1].origin), paper_text));
    }
    TimelinePicture picture(
        options,
        {.span = shown_span(options, std::max(step_time(sides[0]), step_time(sides[1]))),
         .label_width = label_width,
         .curves = has_skip_messages(sides[0]) || has_skip_messages(sides[1]),
         .places = std::max(most_stages(sides[0]), most_stages(sides[1]))});
    picture.header(facts_of(sides[0]) + ",  " + facts_of(sides[1]), "");
    const double row = picture.row_height();
    const double gap = picture.sizes().gap;
    const double left = picture.left() - (picture.is_paper() ? 3 : 10);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        picture.background(2 * row + 2 * gap);
        picture.label(picture.sizes().margin, 2 * row + 2 * gap, rank_label(rank), {});
        picture.skip(gap);
        for (int which = 0; which < 2; ++which) {
            const Timeline& side = sides.at(as_index(which));
            picture.label(left,
                          row,
                          to_string(side.origin),
                          {.size = 10, .anchor = Anchor::End, .fill = pale_ink});
            if (rank < side.ranks.size()) {
                picture.row(side, rank, which);
            } else {
                picture.skip(row);
            }
        }
        picture.skip(picture.is_paper() ? 3 : 8);
    }
    return picture.finish();
}

std::string render_svg_list(const std::vector<NamedTimeline>& timelines,
                            const SvgOptions& options) {
    std::vector<Timeline> shown;
    TimelinePicture::Setting setting;
    std::size_t ranks = 1;
    for (const NamedTimeline& named : timelines) {
        shown.push_back(aligned(*named.timeline));
        setting.span = std::max(setting.span, step_time(shown.back()));
        setting.curves = setting.curves || has_skip_messages(shown.back());
        setting.places = std::max(setting.places, most_stages(shown.back()));
        ranks = std::max(ranks, shown.back().ranks.size());
    }
    setting.span = shown_span(options, setting.span);
    setting.label_width = rank_column(options, ranks);
    TimelinePicture picture(options, setting);
    const std::string_view origin = shown.empty() ? "" : to_string(shown.front().origin);
    picture.header(origin, origin);
    for (std::size_t i = 0; i < shown.size(); ++i) {
        picture.name(timelines[i].name);
        draw_rows(shown[i], picture);
        picture.skip(picture.is_paper() ? 4 : 8);
    }
    return picture.finish();
}

}  // namespace pipetwin
