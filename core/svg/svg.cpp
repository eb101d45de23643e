// SPDX-License-Identifier: Apache-2.0
#include "core/svg/svg.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/svg/skip_curves.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin {

namespace {

using namespace svg;

constexpr double margin = 12;
constexpr double axis_height = 24;
constexpr double legend_line = 20;
constexpr double bar_inset = 3;
constexpr double thinnest = 2;  ///< of a bar of its own

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

/// Consecutive spans too thin to be seen alone, drawn as one; its height is shared out among their
/// kinds.
struct Thin {
    double begin = 0;
    double end = 0;
    std::array<double, look_count> width{};

    bool empty() const { return end <= begin; }
};

class Picture {
  public:
    /// With `curves` the names of actions lie over the curves of skip messages.
    Picture(const SvgOptions& options, Duration span, double label_width, bool curves)
        : options_(options),
          has_curves_(curves),
          left_(margin + label_width),
          right_(static_cast<double>(options.width) - margin - 8),
          span_(std::max(span, Duration{1})) {}

    double y() const { return y_; }
    void skip(double height) { y_ += height; }
    double row_height() const { return options_.row_height; }

    /// The title, and what is said beside it or, where the two do not fit into one line, below it.
    void header(std::string_view facts) {
        constexpr double title_size = 14;
        const double title_width = text_width(options_.title, title_size);
        if (!options_.title.empty()) {
            body_ += text_at(margin, y_ + 16, options_.title, {.size = title_size, .bold = true});
            y_ += margin + title_width + 20 > right_ - text_width(facts, 11) ? 20 : 0;
        }
        body_ += text_at(right_, y_ + 16, facts, {.anchor = Anchor::End, .fill = pale_ink});
        y_ += 30;
        top_ = y_;
    }

    void background(double height) {
        back_ += rect({left_ - 4, y_, right_ - left_ + 8, height}, group_fill, " rx=\"4\"") + "\n";
    }

    void label(double x, double height, std::string_view text, const TextStyle& style) {
        body_ += text_at(x, y_ + height / 2 + style.size * 0.36, text, style);
    }

    /// One row of a side, 0 or 1; moves down by its height.
    void row(const Timeline& timeline, std::size_t rank, int side = 0) {
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
                add(thin, piece, lines_of(span.action, stages));
                drawn = piece.end;
            }
        }
        add_gap(thin, drawn, step_time(timeline));
        flush(thin);
        body_ += "</g>\n";
        y_ += row_height();
    }

    std::string finish() {
        body_ += curves_.draw();
        if (!names_.empty()) {
            body_ += fmt::format(
                "<g font-size=\"{}\" text-anchor=\"middle\" pointer-events=\"none\">\n{}</g>\n",
                number(name_size()),
                names_);
        }
        axis();
        if (options_.legend) {
            legend();
        }
        const double height = y_ + margin / 2;
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

    double left() const { return left_; }

  private:
    double x_of(Duration time) const {
        return left_ + (right_ - left_) * static_cast<double>(time.count()) /
                           static_cast<double>(span_.count());
    }

    /// An end of a skip message; none of a time behind those that are shown.
    void add_curve_end(const Span& span, int side) {
        if (span.action.hop != 0 && span.end <= span_) {
            const Box box = bar_box(0, 0);
            curves_.add(
                side, span, {.x = x_of(span.end), .top = box.y, .bottom = box.y + box.height});
        }
    }

    Box bar_box(double x0, double x1) const {
        return {x0, y_ + bar_inset, x1 - x0, row_height() - 2 * bar_inset};
    }

    /// A part of a row that has one look, and the action that it belongs to.
    struct Piece {
        Look look{};
        Duration begin{};
        Duration end{};
        const Action* action = nullptr;
        Duration in_groups{};  ///< Timeline::in_groups
    };

    /// A send or a receive is drawn for as long as it waits, any other action without its wait.
    static Piece piece_of(const Span& span) {
        const Look look = look_of(span.action.op);
        return is_idle(look) ? Piece{look, span.begin, span.ready, &span.action}
                             : Piece{look, span.ready, span.end, &span.action};
    }

    /// Idle time between what is drawn, of which a hair between two bars is not shown.
    void add_gap(Thin& thin, Duration begin, Duration end) {
        if (x_of(end) - x_of(begin) >= thinnest || !thin.empty()) {
            add(thin, {.look = Look::Idle, .begin = begin, .end = end}, 0);
        }
    }

    /// A rectangle of its own, or a part of one where it is too thin.
    void add(Thin& thin, Piece piece, int lines) {
        piece.end = std::min(piece.end, span_);
        if (piece.end <= piece.begin) {
            return;
        }
        const Extent x{x_of(piece.begin), x_of(piece.end)};
        looks_.insert(piece.look);
        if (x.end - x.begin < thinnest) {
            add_thin(thin, x.begin, x.end, piece.look);
        } else {
            flush(thin);
            bar(piece, lines, x);
        }
    }

    void add_thin(Thin& thin, double x0, double x1, Look look) {
        if (!thin.empty() && (x0 - thin.end >= 0.5 || thin.end - thin.begin >= 3)) {
            flush(thin);
        }
        if (thin.empty()) {
            thin.begin = x0;
        }
        thin.end = x1;
        thin.width.at(as_index(look)) += x1 - x0;
    }

    void flush(Thin& thin) {
        if (!thin.empty()) {
            const double total = std::accumulate(thin.width.begin(), thin.width.end(), 0.0);
            Box box = bar_box(thin.begin, std::max(thin.end, thin.begin + 0.5));
            const double height = box.height;
            for (std::size_t look = 0; look < look_count; ++look) {
                if (thin.width.at(look) > 0) {
                    box.height = height * thin.width.at(look) / total;
                    body_ += swatch(box, static_cast<Look>(look)) + "\n";
                    box.y += box.height;
                }
            }
        }
        thin = {};
    }

    /// Number of lines that tell the action's stage from the first of its rank.
    int lines_of(const Action& action, const std::vector<int>& stages) {
        if (!is_compute(action.op)) {
            return 0;
        }
        const auto before = std::ranges::lower_bound(stages, action.stage) - stages.begin();
        const int lines = std::min(static_cast<int>(before), most_lines);
        lines_ = std::max(lines_, lines);
        return lines;
    }

    struct Extent {
        double begin = 0;
        double end = 0;
    };

    /// A rectangle of its own: a hair of background between neighbours, its name where that fits,
    /// and a tooltip.
    void bar(const Piece& piece, int lines, const Extent& x) {
        const double gap = x.end - x.begin > 3 ? 0.7 : 0;
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
        const Style& style = style_of(piece.look);
        body_ += swatch(box, piece.look) + stage_lines(box, lines, style.ink);
        if (in_groups) {
            const double share = static_cast<double>(piece.in_groups.count()) /
                                 static_cast<double>((piece.end - piece.begin).count());
            body_ += groups_strip(box, std::min(1.0, share));
            has_groups_ = true;
        }
        if (!idle) {
            add_name(box, *piece.action, style);
        }
        body_ += "</g>\n";
    }

    /// At the lower edge of a bar, as wide as the share of its time in messages of groups.
    static std::string groups_strip(const Box& box, double share) {
        const double height = std::max(2.0, box.height / 6);
        return rect(
                   {box.x, box.y + box.height - height, box.width * share, height}, "#FFFFFF", "") +
               rect({box.x, box.y + box.height - height, box.width * share, height / 2}, ink, "");
    }

    /// Names of an action, the one to be preferred first: "F12" and "12"; "RG"; "OPT".
    static std::vector<std::string> names_of(const Action& action, const Style& style) {
        const std::string letter(style.letter);
        if (has_micro_batch(action.op)) {
            const std::string digits = std::to_string(action.micro_batch);
            return {letter + digits, digits};
        }
        return {action.op == Op::ReduceGradient ? letter : std::string(op_text(action.op))};
    }

    /// The name of an action in its rectangle, where it fits, smaller where that lets it keep its
    /// letter; over curves with an edge in the colour of its rectangle.
    void add_name(const Box& box, const Action& action, const Style& style) {
        const double smallest = std::min(7.0, name_size());
        for (const std::string& name : names_of(action, style)) {
            const double size = std::min(name_size(), (box.width - 2) / text_width(name, 1));
            if (size >= smallest) {
                add_text(box.x + box.width / 2, name, size, style);
                return;
            }
        }
    }

    void add_text(double x, std::string_view name, double size, const Style& style) {
        const double y = y_ + row_height() / 2 + size * 0.36;
        const bool is_smaller = size < name_size();
        const auto text_of = [&](std::string_view fill) {
            const std::string text = text_in_group(x, y, name, fill);
            return is_smaller ? fmt::format("<g font-size=\"{}\">{}</g>", number(size), text)
                              : text;
        };
        if (!has_curves_) {
            body_ += text_of(style.ink);
            return;
        }
        names_ +=
            fmt::format("<g stroke=\"{}\" stroke-width=\"3\" stroke-linejoin=\"round\">{}</g>{}\n",
                        style.fill,
                        text_of(style.fill),
                        text_of(style.ink));
    }

    double name_size() const { return std::min(11.0, row_height() * 0.44); }

    void axis() {
        const double span_ms = to_milliseconds(span_);
        const int most_ticks = std::max(1, static_cast<int>((right_ - left_) / 80));
        const double step = tick_step(span_ms / most_ticks, 1e-9);
        const int decimals = tick_decimals(step);
        std::string lines;
        for (int tick = 0; tick * step <= span_ms * (1 + 1e-9); ++tick) {
            const double x = left_ + (right_ - left_) * tick * step / span_ms;
            lines += fmt::format("<path d=\"M{0} {1}V{2}\" stroke=\"{3}\" stroke-width=\"1\"/>\n",
                                 number(x),
                                 number(top_ - 2),
                                 number(y_ + 4),
                                 grid_ink);
            std::string label = fmt::format("{:.{}f}", tick * step, decimals);
            label += tick == 0 ? " ms" : "";
            body_ += text_at(x, y_ + 17, label, {.anchor = Anchor::Middle, .fill = pale_ink});
        }
        back_ += lines;
        y_ += axis_height;
    }

    void legend() {
        y_ += 6;
        double x = left_;
        for (const Look look : looks_) {
            const Style& style = style_of(look);
            const Box box = legend_box(x, style.words);
            body_ += swatch(box, look);
            body_ += text_at(box.x + box.width / 2,
                             box.y + 11,
                             style.letter,
                             {.size = 10, .anchor = Anchor::Middle, .fill = style.ink});
        }
        for (int lines = 1; lines <= lines_; ++lines) {
            const Box box = legend_box(x, stage_words.at(as_index(lines - 1)));
            body_ += rect(box, grid_ink, " rx=\"2\"") + stage_lines(box, lines, ink) + "\n";
        }
        if (has_groups_) {
            const Box box = legend_box(x, "share in messages of groups");
            body_ += rect(box, grid_ink, " rx=\"2\"") + groups_strip(box, 0.5) + "\n";
        }
        curve_legend(x);
        y_ += legend_line;
    }

    /// What the curves are: those of outputs fall, those of gradients rise, as between the rows.
    void curve_legend(double& x) {
        for (const bool gradient : {false, true}) {
            if (curves_.any(gradient)) {
                const Box box = legend_box(x, gradient ? "gradient of one" : "skip message");
                const Point upper{box.x + (gradient ? box.width - 3 : 3), box.y};
                const Point lower{box.x + (gradient ? 3 : box.width - 3), box.y + box.height};
                const SkipCurve curve{.begin = gradient ? lower : upper,
                                      .end = gradient ? upper : lower,
                                      .gradient = gradient};
                body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke-width=\"1.3\"{}/>\n",
                                     curve_path(curve),
                                     curve_stroke(gradient));
            }
        }
        if (const std::string words = curves_.left_out_words(); !words.empty()) {
            legend_box(x, words);
        }
    }

    /// Place of the swatch of the next entry, with its words beside it; moves `x` behind them.
    Box legend_box(double& x, std::string_view words) {
        const double needed = 26 + text_width(words, 11) + 14;
        if (x > left_ && x + needed > right_) {
            x = left_;
            y_ += legend_line;
        }
        const Box box{x, y_, 20, 14};
        body_ += text_at(x + 26, y_ + 11, words, {.fill = pale_ink});
        x += needed;
        return box;
    }

    const SvgOptions& options_;
    bool has_curves_;
    double left_;
    double right_;
    Duration span_;
    double y_ = margin;
    double top_ = margin;
    std::string back_;  ///< behind the bars
    std::string body_;
    std::string names_;  ///< over the curves, where there are some
    SkipCurves curves_;
    std::set<Look> looks_;  ///< what occurs, for the legend
    int lines_ = 0;         ///< most lines across a bar
    bool has_groups_ = false;
};

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

}  // namespace

std::string render_svg(const Timeline& timeline, const SvgOptions& options) {
    const Timeline shown = aligned(timeline);
    const Duration span = options.span > Duration{} ? options.span : step_time(shown);
    Picture picture(options, span, 54, has_skip_messages(shown));
    picture.header(facts_of(shown));
    for (std::size_t rank = 0; rank < shown.ranks.size(); ++rank) {
        picture.background(picture.row_height());
        picture.label(margin, picture.row_height(), rank_label(rank), {});
        picture.row(shown, rank);
        picture.skip(2);
    }
    return picture.finish();
}

std::string render_svg_pair(const Timeline& predicted,
                            const Timeline& measured,
                            const SvgOptions& options) {
    const std::array<Timeline, 2> sides{aligned(predicted), aligned(measured)};
    const Duration longest = std::max(step_time(sides[0]), step_time(sides[1]));
    Picture picture(options,
                    options.span > Duration{} ? options.span : longest,
                    116,
                    has_skip_messages(sides[0]) || has_skip_messages(sides[1]));
    picture.header(facts_of(sides[0]) + ",  " + facts_of(sides[1]));
    const double row = picture.row_height();
    const std::size_t ranks = std::max(sides[0].ranks.size(), sides[1].ranks.size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        picture.background(2 * row + 4);
        picture.label(margin, 2 * row + 4, rank_label(rank), {});
        picture.skip(2);
        for (int which = 0; which < 2; ++which) {
            const Timeline& side = sides.at(as_index(which));
            picture.label(picture.left() - 10,
                          row,
                          to_string(side.origin),
                          {.size = 10, .anchor = Anchor::End, .fill = pale_ink});
            if (rank < side.ranks.size()) {
                picture.row(side, rank, which);
            } else {
                picture.skip(row);
            }
        }
        picture.skip(8);
    }
    return picture.finish();
}

std::string render_svg_list(const std::vector<NamedTimeline>& timelines,
                            const SvgOptions& options) {
    std::vector<Timeline> shown;
    Duration longest{};
    bool has_skips = false;
    for (const NamedTimeline& named : timelines) {
        shown.push_back(aligned(*named.timeline));
        longest = std::max(longest, step_time(shown.back()));
        has_skips = has_skips || has_skip_messages(shown.back());
    }
    Picture picture(options, options.span > Duration{} ? options.span : longest, 54, has_skips);
    picture.header(shown.empty() ? "" : to_string(shown.front().origin));
    constexpr double name_height = 20;
    for (std::size_t i = 0; i < shown.size(); ++i) {
        picture.label(margin, name_height, timelines[i].name, {.bold = true});
        picture.skip(name_height);
        for (std::size_t rank = 0; rank < shown[i].ranks.size(); ++rank) {
            picture.background(picture.row_height());
            picture.label(margin, picture.row_height(), rank_label(rank), {});
            picture.row(shown[i], rank);
            picture.skip(2);
        }
        picture.skip(8);
    }
    return picture.finish();
}

}  // namespace pipetwin
