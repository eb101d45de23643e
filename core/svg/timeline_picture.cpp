// SPDX-License-Identifier: Apache-2.0
#include "core/svg/timeline_picture.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/svg/paper.h"

namespace pipetwin::svg {

namespace {

constexpr PictureSizes screen_sizes{.margin = 12,
                                    .axis_height = 24,
                                    .legend_line = 20,
                                    .bar_inset = 3,
                                    .thinnest = 2,
                                    .text = 11,
                                    .small = 10,
                                    .tick_pitch = 80,
                                    .gap = 2,
                                    .swatch_width = 20,
                                    .swatch_height = 14};
constexpr PictureSizes paper_sizes{.margin = 1,
                                   .axis_height = 20,
                                   .legend_line = 11,
                                   .bar_inset = 0.5,
                                   .thinnest = 0.8,
                                   .text = paper_text,
                                   .small = paper_text,
                                   .tick_pitch = 30,
                                   .gap = 1,
                                   .swatch_width = 11,
                                   .swatch_height = 8};
constexpr double paper_row = 10.5;

/// By the place of a stage on its rank, where it is not the first.
constexpr std::array<std::string_view, most_lines> stage_words{
    "second stage of the rank", "third stage of the rank", "fourth stage of the rank or later"};

/// The stages that a row computes, ascending.
std::vector<int> stages_of(const std::vector<Span>& row) {
    std::set<int> stages;
    for (const Span& span : row) {
        if (is_compute(span.action.op)) {
            stages.insert(span.action.stage);
        }
    }
    return {stages.begin(), stages.end()};
}

/// Names of an action, the one to be preferred first: "F12" and "12"; "RG"; "OPT".
std::vector<std::string> names_of(const Action& action, const Style& style) {
    const std::string letter(style.letter);
    if (has_micro_batch(action.op)) {
        const std::string digits = std::to_string(action.micro_batch);
        return {letter + digits, digits};
    }
    return {action.op == Op::ReduceGradient ? letter : std::string(op_text(action.op))};
}

}  // namespace

int most_stages(const Timeline& timeline) {
    std::size_t most = 1;
    for (const auto& row : timeline.ranks) {
        most = std::max(most, stages_of(row).size());
    }
    return static_cast<int>(most);
}

TimelinePicture::TimelinePicture(const SvgOptions& options, const Setting& setting)
    : options_(options),
      sizes_(options.figure.is_paper() ? paper_sizes : screen_sizes),
      has_curves_(setting.curves),
      places_(std::clamp(setting.places, 1, most_lines + 1)),
      left_(sizes_.margin + setting.label_width),
      right_(is_paper() ? options.figure.width - 6
                        : static_cast<double>(options.width) - sizes_.margin - 8),
      span_(std::max(setting.span, Duration{1})),
      y_(sizes_.margin),
      top_(sizes_.margin) {}

double TimelinePicture::row_height() const {
    return is_paper() ? paper_row : options_.row_height;
}

void TimelinePicture::header(std::string_view facts, std::string_view origin) {
    if (is_paper()) {
        axis_words_ = fmt::format("{}{}time (ms)", origin, origin.empty() ? "" : " ");
        const std::string title = options_.figure.title.value_or("");
        for (const std::string& line :
             wrapped(title, paper_title, options_.figure.width - 2 * sizes_.margin)) {
            body_ +=
                text_at(sizes_.margin, y_ + paper_title, line, {.size = paper_title, .bold = true});
            y_ += paper_line + 2;
        }
        top_ = y_;
        return;
    }
    constexpr double title_size = 14;
    const std::string& title = options_.figure.title.value_or(options_.title);
    const double title_width = text_width(title, title_size);
    if (!title.empty()) {
        body_ += text_at(sizes_.margin, y_ + 16, title, {.size = title_size, .bold = true});
        y_ += sizes_.margin + title_width + 20 > right_ - text_width(facts, 11) ? 20 : 0;
    }
    body_ += text_at(right_, y_ + 16, facts, {.anchor = Anchor::End, .fill = pale_ink});
    y_ += 30;
    top_ = y_;
}

void TimelinePicture::background(double height) {
    if (!is_paper()) {
        back_ += rect({left_ - 4, y_, right_ - left_ + 8, height}, group_fill, " rx=\"4\"") + "\n";
    }
}

void TimelinePicture::label(double x,
                            double height,
                            std::string_view text,
                            const TextStyle& style) {
    TextStyle sized = style;
    if (is_paper()) {
        sized.size = paper_text;
    }
    body_ += text_at(x, y_ + height / 2 + sized.size * 0.36, text, sized);
}

void TimelinePicture::name(std::string_view text) {
    if (!is_paper()) {
        constexpr double name_height = 20;
        label(sizes_.margin, name_height, text, {.bold = true});
        skip(name_height);
        return;
    }
    const double room = options_.figure.width - 2 * sizes_.margin;
    for (const std::string& line : wrapped(text, paper_text, room)) {
        // The lines of the axis end at the name.
        body_ += rect({sizes_.margin, y_, room, paper_line}, "#FFFFFF", "") + "\n";
        label(sizes_.margin, paper_line, line, {.bold = true});
        skip(paper_line);
    }
    skip(1);
}

void TimelinePicture::row(const Timeline& timeline, std::size_t rank, int side) {
    const std::vector<Span>& spans = timeline.ranks[rank];
    const std::vector<Duration> in_groups =
        timeline.in_groups.empty() ? std::vector<Duration>() : timeline.in_groups[rank];
    Thin thin;
    const std::vector<int> stages = stages_of(spans);
    Duration drawn{};
    body_ += fmt::format("<g font-size=\"{}\" text-anchor=\"middle\">\n", number(name_size()));
    for (std::size_t cell = 0; cell < spans.size(); ++cell) {
        const Span& span = spans[cell];
        add_curve_end(span, side);
        Piece piece = piece_of(span);
        piece.in_groups = cell < in_groups.size() ? in_groups[cell] : Duration{};
        if (piece.end > piece.begin) {
            add_gap(thin, drawn, piece.begin);
            add(thin, piece, place_of(span.action, stages));
            drawn = piece.end;
        }
    }
    add_gap(thin, drawn, step_time(timeline));
    flush(thin);
    body_ += "</g>\n";
    y_ += row_height();
}

std::string TimelinePicture::finish() {
    body_ += curves_.draw();
    if (!names_.empty()) {
        body_ += fmt::format(
            "<g font-size=\"{}\" text-anchor=\"middle\" pointer-events=\"none\">\n{}</g>\n",
            number(name_size()),
            names_);
    }
    axis();
    if (is_paper() ? options_.figure.legend : options_.legend) {
        legend();
    }
    if (is_paper()) {
        return fmt::format("{}{}{}</svg>\n",
                           paper_head(options_.figure.width, y_ + 1, paper_definitions()),
                           back_,
                           body_);
    }
    const double height = y_ + sizes_.margin / 2;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 "
        "{0} {1}\" "
        "font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n"
        "{2}<rect width=\"{0}\" height=\"{1}\" fill=\"#FFFFFF\"/>\n{3}{4}</svg>\n",
        options_.width,
        number(height),
        definitions(),
        back_,
        body_);
}

double TimelinePicture::x_of(Duration time) const {
    return left_ + (right_ - left_) * static_cast<double>(time.count()) /
                       static_cast<double>(span_.count());
}

/// An end of a skip message; none of a time behind those that are shown.
void TimelinePicture::add_curve_end(const Span& span, int side) {
    if (span.action.hop != 0 && span.end <= span_) {
        const Box box = bar_box(0, 0);
        curves_.add(side, span, {.x = x_of(span.end), .top = box.y, .bottom = box.y + box.height});
    }
}

Box TimelinePicture::bar_box(double x0, double x1) const {
    return {x0, y_ + sizes_.bar_inset, x1 - x0, row_height() - 2 * sizes_.bar_inset};
}

double TimelinePicture::name_size() const {
    return is_paper() ? paper_text : std::min(11.0, row_height() * 0.44);
}

/// A send or a receive is drawn for as long as it waits, any other action without its wait.
TimelinePicture::Piece TimelinePicture::piece_of(const Span& span) {
    const Look look = look_of(span.action.op);
    return is_idle(look) ? Piece{look, span.begin, span.ready, &span.action}
                         : Piece{look, span.ready, span.end, &span.action};
}

/// Idle time between what is drawn, of which a hair between two bars is not shown.
void TimelinePicture::add_gap(Thin& thin, Duration begin, Duration end) {
    if (x_of(end) - x_of(begin) >= sizes_.thinnest || !thin.empty()) {
        add(thin, {.look = Look::Idle, .begin = begin, .end = end}, 0);
    }
}

/// A rectangle of its own, or a part of one where it is too thin.
void TimelinePicture::add(Thin& thin, Piece piece, int place) {
    piece.end = std::min(piece.end, span_);
    if (piece.end <= piece.begin) {
        return;
    }
    const Extent x{x_of(piece.begin), x_of(piece.end)};
    looks_.insert(piece.look);
    if (x.end - x.begin < sizes_.thinnest) {
        add_thin(thin, x.begin, x.end, piece.look);
    } else {
        flush(thin);
        bar(piece, place, x);
    }
}

void TimelinePicture::add_thin(Thin& thin, double x0, double x1, Look look) {
    if (!thin.empty() && (x0 - thin.end >= 0.5 || thin.end - thin.begin >= 3)) {
        flush(thin);
    }
    if (thin.empty()) {
        thin.begin = x0;
    }
    thin.end = x1;
    thin.width.at(as_index(look)) += x1 - x0;
}

void TimelinePicture::flush(Thin& thin) {
    if (!thin.empty()) {
        const double total = std::accumulate(thin.width.begin(), thin.width.end(), 0.0);
        Box box = bar_box(thin.begin, std::max(thin.end, thin.begin + 0.5));
        const double height = box.height;
        for (std::size_t look = 0; look < look_count; ++look) {
            if (thin.width.at(look) > 0) {
                box.height = height * thin.width.at(look) / total;
                body_ += drawn_swatch(box, static_cast<Look>(look), 0) + "\n";
                box.y += box.height;
            }
        }
    }
    thin = {};
}

/// Place of the action's stage among those of its rank, the last of which share one.
int TimelinePicture::place_of(const Action& action, const std::vector<int>& stages) {
    if (!is_compute(action.op)) {
        return 0;
    }
    const auto before = std::ranges::lower_bound(stages, action.stage) - stages.begin();
    const int place = std::min(static_cast<int>(before), most_lines);
    most_place_ = std::max(most_place_, place);
    return place;
}

/// A box of the legend: on a screen lines in it show the place of the stage on its rank, on paper
/// its shade does.
std::string TimelinePicture::drawn_swatch(const Box& box, Look look, int place) const {
    return is_paper() ? paper_swatch(box, look, place, places_)
                      : swatch(box, look) + stage_lines(box, place, style_of(look).ink);
}

/// A rectangle of its own: a hair of background between neighbours, its name where that fits,
/// and a tooltip.
void TimelinePicture::bar(const Piece& piece, int place, const Extent& x) {
    const double gap = !is_paper() && x.end - x.begin > 3 ? 0.7 : 0;
    const bool idle = is_idle(piece.look);
    const std::string who = piece.action == nullptr ? "idle" : to_string(*piece.action);
    const bool in_groups = piece.in_groups > Duration{};
    body_ += fmt::format(
        "<g><title>{}{}: {:.3f} to {:.3f} ms, {}{}</title>",
        escaped(who),
        idle && piece.action != nullptr ? " waits" : "",
        to_milliseconds(piece.begin),
        to_milliseconds(piece.end),
        format_duration(piece.end - piece.begin),
        in_groups ? ", of it in messages of groups " + format_duration(piece.in_groups) : "");
    const Box box = bar_box(x.begin, x.end - gap);
    body_ += drawn_swatch(box, piece.look, place);
    if (in_groups) {
        const double share = static_cast<double>(piece.in_groups.count()) /
                             static_cast<double>((piece.end - piece.begin).count());
        body_ += groups_strip(box, std::min(1.0, share));
        has_groups_ = true;
    }
    if (!idle) {
        add_name(box, *piece.action, place, piece.look);
    }
    body_ += "</g>\n";
}

/// At the lower edge of a bar, as wide as the share of its time in messages of groups.
std::string TimelinePicture::groups_strip(const Box& box, double share) const {
    const double height = std::max(is_paper() ? 1.2 : 2.0, box.height / 6);
    return rect({box.x, box.y + box.height - height, box.width * share, height}, "#FFFFFF", "") +
           rect({box.x, box.y + box.height - height, box.width * share, height / 2}, ink, "");
}

/// The name of an action in its rectangle, where it fits; on a screen smaller where that lets it
/// keep its letter; over curves with an edge in the colour of its rectangle.
void TimelinePicture::add_name(const Box& box, const Action& action, int place, Look look) {
    const Style& style = style_of(look);
    const double smallest = is_paper() ? paper_text : std::min(7.0, name_size());
    const double room = box.width - (is_paper() ? 1 : 2);
    for (const std::string& name : names_of(action, style)) {
        const double size = std::min(name_size(), room / text_width(name, 1));
        if (size >= smallest) {
            const Shade shade = is_paper() ? paper_shade(look, place, places_)
                                           : Shade{std::string(style.fill), style.ink};
            add_text(box.x + box.width / 2, name, size, shade);
            return;
        }
    }
}

void TimelinePicture::add_text(double x, std::string_view name, double size, const Shade& shade) {
    const double y = y_ + row_height() / 2 + size * 0.36;
    const bool is_smaller = size < name_size();
    const auto text_of = [&](std::string_view colour) {
        const std::string text = text_in_group(x, y, name, colour);
        return is_smaller ? fmt::format("<g font-size=\"{}\">{}</g>", number(size), text) : text;
    };
    if (!has_curves_) {
        body_ += text_of(shade.ink);
        return;
    }
    names_ +=
        fmt::format("<g stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\">{}</g>{}\n",
                    shade.fill,
                    is_paper() ? "1.5" : "3",
                    text_of(shade.fill),
                    text_of(shade.ink));
}

void TimelinePicture::axis() {
    const double span_ms = to_milliseconds(span_);
    const int most_ticks = std::max(1, static_cast<int>((right_ - left_) / sizes_.tick_pitch));
    const double step = tick_step(span_ms / most_ticks, 1e-9);
    const int decimals = tick_decimals(step);
    const double drop = is_paper() ? 8.5 : 17;
    double taken = 0;  // up to here by the label before
    std::string lines;
    for (int tick = 0; tick * step <= span_ms * (1 + 1e-9); ++tick) {
        const double x = left_ + (right_ - left_) * tick * step / span_ms;
        lines += fmt::format("<path d=\"M{0} {1}V{2}\" stroke=\"{3}\" stroke-width=\"{4}\"/>\n",
                             number(x),
                             number(top_ - (is_paper() ? 0 : 2)),
                             number(y_ + (is_paper() ? 1.5 : 4)),
                             grid_ink,
                             is_paper() ? "0.5" : "1");
        std::string label = fmt::format("{:.{}f}", tick * step, decimals);
        label += tick == 0 && !is_paper() ? " ms" : "";
        const double half = text_width(label, sizes_.text) / 2;
        if (is_paper() && (x - half < taken || x + half > options_.figure.width)) {
            continue;
        }
        taken = x + half + 2;
        body_ += text_at(
            x,
            y_ + drop,
            label,
            {.size = sizes_.text, .anchor = Anchor::Middle, .fill = is_paper() ? ink : pale_ink});
    }
    back_ += lines;
    if (is_paper()) {
        body_ += text_at((left_ + right_) / 2,
                         y_ + drop + paper_line,
                         axis_words_,
                         {.size = paper_text, .anchor = Anchor::Middle});
    }
    y_ += sizes_.axis_height;
}

void TimelinePicture::legend() {
    y_ += is_paper() ? 2 : 6;
    double x = legend_left();
    for (const Look look : looks_) {
        const Style& style = style_of(look);
        const Box box = legend_box(x, style.words);
        body_ += is_paper() ? paper_swatch(box, look, 0, places_) : swatch(box, look);
        const bool has_room = !is_paper() || text_width(style.letter, paper_text) < box.width;
        body_ += has_room
                     ? text_at(box.x + box.width / 2,
                               box.y + (is_paper() ? 6.5 : 11),
                               style.letter,
                               {.size = sizes_.small,
                                .anchor = Anchor::Middle,
                                .fill = is_paper() ? paper_shade(look, 0, places_).ink : style.ink})
                     : "";
    }
    for (int place = 1; place <= most_place_; ++place) {
        const Box box = legend_box(x, stage_words.at(as_index(place - 1)));
        body_ += is_paper()
                     ? stage_swatch(box, place)
                     : rect(box, grid_ink, " rx=\"2\"") + stage_lines(box, place, ink) + "\n";
    }
    if (has_groups_) {
        const Box box = legend_box(x, "share in messages of groups");
        body_ += rect(box, grid_ink, " rx=\"2\"") + groups_strip(box, 0.5) + "\n";
    }
    curve_legend(x);
    y_ += sizes_.legend_line;
}

/// The shades of a place, one beside the other for each kind of compute in the picture.
std::string TimelinePicture::stage_swatch(const Box& box, int place) const {
    std::vector<Look> kinds;
    std::ranges::copy_if(
        looks_, std::back_inserter(kinds), [](Look look) { return look < Look::Recompute; });
    std::string text;
    const double width = box.width / static_cast<double>(kinds.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        text += paper_swatch({box.x + width * static_cast<double>(i), box.y, width, box.height},
                             kinds[i],
                             place,
                             places_);
    }
    return text + "\n";
}

/// What the curves are: those of outputs fall, those of gradients rise, as between the rows.
void TimelinePicture::curve_legend(double& x) {
    const double inset = is_paper() ? 2 : 3;
    for (const bool gradient : {false, true}) {
        if (curves_.any(gradient)) {
            const Box box = legend_box(x, gradient ? "gradient of one" : "skip message");
            const Point upper{box.x + (gradient ? box.width - inset : inset), box.y};
            const Point lower{box.x + (gradient ? inset : box.width - inset), box.y + box.height};
            const SkipCurve curve{.begin = gradient ? lower : upper,
                                  .end = gradient ? upper : lower,
                                  .gradient = gradient};
            body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke-width=\"1.3\"{}/>\n",
                                 curve_path(curve),
                                 curve_stroke(gradient));
        }
    }
    const std::string words = curves_.left_out_words();
    if (!words.empty() && !is_paper()) {
        legend_box(x, words);
    } else if (!words.empty()) {
        const double width = options_.figure.width - 2 * sizes_.margin;
        for (const std::string& line : wrapped(words, paper_text, width)) {
            y_ += sizes_.legend_line;
            body_ += text_at(sizes_.margin, y_ + 6.5, line, {.size = paper_text});
        }
    }
}

/// Place of the swatch of the next entry, with its words beside it; moves `x` behind them.
Box TimelinePicture::legend_box(double& x, std::string_view words) {
    const double indent = sizes_.swatch_width + (is_paper() ? 2.5 : 6);
    const double needed = indent + text_width(words, sizes_.text) + (is_paper() ? 6 : 14);
    if (x > legend_left() && x + needed > right_ + (is_paper() ? 12 : 0)) {
        x = legend_left();
        y_ += sizes_.legend_line;
    }
    const Box box{x, y_, sizes_.swatch_width, sizes_.swatch_height};
    body_ += text_at(x + indent,
                     y_ + (is_paper() ? 6.5 : 11),
                     words,
                     {.size = sizes_.text, .fill = is_paper() ? ink : pale_ink});
    x += needed;
    return box;
}

}  // namespace pipetwin::svg
