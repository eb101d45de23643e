// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/svg/skip_curves.h"
#include "core/svg/svg.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin::svg {

struct Shade;

/// Sizes of a picture's parts: pixels of a screen, or points of a figure.
struct PictureSizes {
    double margin = 0;
    double axis_height = 0;
    double legend_line = 0;
    double bar_inset = 0;  ///< of a bar in its row
    double thinnest = 0;   ///< of a bar of its own
    double text = 0;
    double small = 0;       ///< texts beside a row, letters of the legend
    double tick_pitch = 0;  ///< least distance of the axis's ticks
    double gap = 0;         ///< between rows
    double swatch_width = 0;
    double swatch_height = 0;
};

/// The most stages that a rank of the timeline computes, at least 1.
int most_stages(const Timeline& timeline);

/// A picture of timelines that is drawn row by row, from the top down.
class TimelinePicture {
  public:
    /// What is known of the timelines before the first row.
    struct Setting {
        Duration span{};         ///< time shown
        double label_width = 0;  ///< of the column left of the rows
        bool curves = false;     ///< there are skip messages: names of actions lie over them
        int places = 1;          ///< most stages of a rank
    };

    TimelinePicture(const SvgOptions& options, const Setting& setting);

    bool is_paper() const { return options_.figure.is_paper(); }
    double y() const { return y_; }
    double left() const { return left_; }
    double row_height() const;
    const PictureSizes& sizes() const { return sizes_; }
    void skip(double height) { y_ += height; }

    /// The title, and what is said beside it or, where the two do not fit into one line, below it.
    /// A figure has its title alone, in as many lines as it takes, and `origin` at its axis.
    void header(std::string_view facts, std::string_view origin);
    /// The area behind rows of this height; a figure has none.
    void background(double height);
    /// A text at half the height.
    void label(double x, double height, std::string_view text, const TextStyle& style);
    /// The name of a timeline above its rows; moves down by its height.
    void name(std::string_view text);
    /// One row of a side, 0 or 1; moves down by its height.
    void row(const Timeline& timeline, std::size_t rank, int side = 0);
    /// The document.
    std::string finish();

  private:
    /// Consecutive spans too thin to be seen alone, drawn as one; its height is shared out among
    /// their kinds.
    struct Thin {
        double begin = 0;
        double end = 0;
        std::array<double, look_count> width{};

        bool empty() const { return end <= begin; }
    };
    /// A part of a row that has one look, and the action that it belongs to.
    struct Piece {
        Look look{};
        Duration begin{};
        Duration end{};
        const Action* action = nullptr;
        Duration in_groups{};  ///< Timeline::in_groups
    };
    struct Extent {
        double begin = 0;
        double end = 0;
    };

    double x_of(Duration time) const;
    Box bar_box(double x0, double x1) const;
    double name_size() const;
    static Piece piece_of(const Span& span);
    void add_curve_end(const Span& span, int side);
    void add_gap(Thin& thin, Duration begin, Duration end);
    void add(Thin& thin, Piece piece, int place);
    void add_thin(Thin& thin, double x0, double x1, Look look);
    void flush(Thin& thin);
    int place_of(const Action& action, const std::vector<int>& stages);
    std::string drawn_swatch(const Box& box, Look look, int place) const;
    void bar(const Piece& piece, int place, const Extent& x);
    std::string groups_strip(const Box& box, double share) const;
    void add_name(const Box& box, const Action& action, int place, Look look);
    void add_text(double x, std::string_view name, double size, const Shade& shade);
    void axis();
    void legend();
    std::string stage_swatch(const Box& box, int place) const;
    void curve_legend(double& x);
    double legend_left() const { return is_paper() ? sizes_.margin : left_; }
    Box legend_box(double& x, std::string_view words);

    const SvgOptions& options_;
    PictureSizes sizes_;
    bool has_curves_;
    int places_;
    double left_;
    double right_;
    Duration span_;
    double y_;
    double top_;
    std::string axis_words_{};  ///< of a figure
    std::string back_{};        ///< behind the bars
    std::string body_{};
    std::string names_{};  ///< over the curves, where there are some
    SkipCurves curves_{};
    std::set<Look> looks_{};  ///< what occurs, for the legend
    int most_place_ = 0;      ///< of a bar: 0 is the first stage of its rank
    bool has_groups_ = false;
};

}  // namespace pipetwin::svg
