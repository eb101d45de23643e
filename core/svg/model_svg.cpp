// SPDX-License-Identifier: Apache-2.0
#include "core/svg/model_svg.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/svg/paper.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin {

namespace {

/// Sizes of a graph, in pixels or points.
struct GraphSizes {
    double margin = 0;
    double top = 0;
    double row_pitch = 0;  ///< from box to box
    double box_height = 0;
    double box_padding = 0;
    double lane_pitch = 0;  ///< from arc to arc
    double text = 0;
    double detail = 0;
    double key_height = 0;
    double key_line = 0;  ///< of an arrow in the key, with the blank behind it
    double corner = 0;    ///< radius of an arc
    double drop = 0;      ///< of a text's line below the middle of its box
};
constexpr GraphSizes screen_graph{.margin = 16,
                                  .top = 44,
                                  .row_pitch = 38,
                                  .box_height = 26,
                                  .box_padding = 10,
                                  .lane_pitch = 12,
                                  .text = 12,
                                  .detail = 11,
                                  .key_height = 34,
                                  .key_line = 26,
                                  .corner = 6,
                                  .drop = 4};
constexpr GraphSizes paper_graph{.margin = 2,
                                 .top = 2,
                                 .row_pitch = 15,
                                 .box_height = 10.5,
                                 .box_padding = 2.5,
                                 .lane_pitch = 5,
                                 .text = svg::paper_text,
                                 .detail = svg::paper_text,
                                 .key_height = 0,
                                 .key_line = 16,
                                 .corner = 2.5,
                                 .drop = 2.5};

/// A layer, or a run of layers that is drawn as one box.
struct DrawnRow {
    std::size_t first = 0;
    std::size_t last = 0;  ///< included

    bool is_run() const { return last > first; }
};

/// An arrow from a row to one further down.
struct DrawnEdge {
    std::size_t from = 0;
    std::size_t to = 0;
    int stages = 0;  ///< cuts that it crosses
    int lane = -1;   ///< of its arc; -1: to the row below
};

/// Colour, width and dashes of an arrow.
struct EdgeLook {
    std::string_view colour;
    std::string_view more;
    std::string_view words;
    std::string_view paper;  ///< in place of `more`, in a figure
};

constexpr std::array<EdgeLook, 3> edge_looks{
    {{svg::pale_ink, "", "within a stage", R"( stroke-width="0.6")"},
     {"#0072B2", R"( stroke-width="2")", "to the next stage", R"( stroke-width="1")"},
     {"#D55E00",
      R"( stroke-width="2" stroke-dasharray="7 3")",
      "past the stages between",
      R"( stroke-width="1" stroke-dasharray="3.5 1.5")"}}};

const EdgeLook& look_of_edge(int stages) {
    return edge_looks.at(as_index(std::min(stages, 2)));
}

/// [unit]: reads the one before it alone, and is read by the next one alone, in the same stage.
std::vector<bool> middles_of_runs(const std::vector<ModelPicture::Unit>& units) {
    std::vector<int> readers(units.size());
    for (const ModelPicture::Unit& unit : units) {
        for (const int input : unit.inputs) {
            ++readers[as_index(input)];
        }
    }
    const auto follows = [&](std::size_t unit) {
        return unit > 0 && unit < units.size() && units[unit].inputs.size() == 1 &&
               as_index(units[unit].inputs.front()) + 1 == unit && readers[unit - 1] == 1 &&
               units[unit].stage == units[unit - 1].stage;
    };
    std::vector<bool> middles;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        middles.push_back(follows(unit) && follows(unit + 1));
    }
    return middles;
}

std::vector<DrawnRow> rows_of(const std::vector<ModelPicture::Unit>& units) {
    constexpr std::size_t most_unfolded = 100;
    constexpr std::size_t least_run = 3;
    std::vector<DrawnRow> rows;
    const std::vector<bool> middles =
        units.size() > most_unfolded ? middles_of_runs(units) : std::vector<bool>(units.size());
    for (std::size_t unit = 0; unit < units.size();) {
        std::size_t end = unit;
        while (end < units.size() && middles[end]) {
            ++end;
        }
        if (end >= unit + least_run) {
            rows.push_back({unit, end - 1});
            unit = end;
        } else {
            rows.push_back({unit, unit});
            ++unit;
        }
    }
    return rows;
}

/// The arrows, each once, with arcs in lanes so that no two lie on each other: short ones inside.
std::vector<DrawnEdge> edges_of(const std::vector<ModelPicture::Unit>& units,
                                const std::vector<DrawnRow>& rows) {
    std::vector<std::size_t> row_of(units.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
        std::fill(row_of.begin() + static_cast<std::ptrdiff_t>(rows[row].first),
                  row_of.begin() + static_cast<std::ptrdiff_t>(rows[row].last) + 1,
                  row);
    }
    std::vector<DrawnEdge> edges;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        for (const int input : units[unit].inputs) {
            const std::size_t from = row_of[as_index(input)];
            if (from != row_of[unit]) {
                edges.push_back(
                    {from, row_of[unit], units[unit].stage - units[as_index(input)].stage});
            }
        }
    }
    std::ranges::stable_sort(edges, {}, [](const DrawnEdge& edge) { return edge.to - edge.from; });
    std::vector<std::vector<DrawnEdge>> lanes;
    for (DrawnEdge& edge : edges) {
        if (edge.to == edge.from + 1) {
            continue;
        }
        const auto meets = [&edge](const DrawnEdge& other) {
            return other.from < edge.to && edge.from < other.to;
        };
        const auto free = std::ranges::find_if(
            lanes, [&](const auto& lane) { return std::ranges::none_of(lane, meets); });
        edge.lane = static_cast<int>(free - lanes.begin());
        if (free == lanes.end()) {
            lanes.emplace_back();
        }
        lanes[as_index(edge.lane)].push_back(edge);
    }
    return edges;
}

/// Draws one picture.
class ModelDrawing {
  public:
    ModelDrawing(const ModelPicture& picture, const FigureLook& look)
        : picture_(picture),
          look_(look),
          sizes_(look.is_paper() ? paper_graph : screen_graph),
          rows_(rows_of(picture.units)),
          edges_(edges_of(picture.units, rows_)) {
        int lanes = 0;
        for (const DrawnEdge& edge : edges_) {
            lanes = std::max(lanes, edge.lane + 1);
        }
        if (look.is_paper()) {
            lay_out_figure(lanes);
        } else {
            lay_out_screen(lanes);
        }
    }

    std::string text() const {
        std::string text =
            look_.is_paper()
                ? svg::paper_head(width_, height_, heads())
                : fmt::format(
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" "
                      "height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"DejaVu Sans, "
                      "Helvetica, Arial, sans-serif\">\n",
                      svg::number(width_),
                      svg::number(height_)) +
                      heads() + svg::rect({0, 0, width_, height_}, "#FFFFFF", "");
        text += look_.is_paper() ? figure_title()
                                 : svg::text_at(sizes_.margin,
                                                26,
                                                look_.title.value_or(picture_.title),
                                                {.size = 15, .bold = true});
        text += bands();
        for (const DrawnEdge& edge : edges_) {
            text += arrow(edge);
        }
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            text += box(row);
        }
        return text + (has_key() ? key() : "") + "</svg>\n";
    }

  private:
    void lay_out_screen(int lanes) {
        for (const std::string& stage : picture_.stages) {
            left_ = std::max(left_, svg::text_width(stage, sizes_.text) + 3 * sizes_.margin);
        }
        for (const DrawnRow& row : rows_) {
            box_width_ =
                std::max(box_width_,
                         svg::text_width(name_of(row), sizes_.text) + 4 * sizes_.box_padding +
                             svg::text_width(detail_of(row), sizes_.detail));
        }
        width_ = left_ + box_width_ + (lanes + 2) * sizes_.lane_pitch + sizes_.margin;
        width_ = std::max(
            width_, svg::text_width(look_.title.value_or(picture_.title), 15) + 2 * sizes_.margin);
        if (has_stages()) {
            width_ = std::max(width_, key_width());
        }
        height_ = sizes_.top + static_cast<double>(rows_.size()) * sizes_.row_pitch +
                  sizes_.margin + (has_stages() ? sizes_.key_height : 0);
    }

    void lay_out_figure(int lanes) {
        width_ = look_.width;
        sizes_.lane_pitch = std::min(sizes_.lane_pitch, width_ * 0.3 / (lanes + 1));
        left_ = sizes_.margin;
        if (has_stages()) {
            left_ +=
                svg::text_width(fmt::format("stage {}", picture_.stages.size() - 1), sizes_.text) +
                4 * sizes_.margin;
        }
        box_width_ = width_ - left_ - (lanes + 1) * sizes_.lane_pitch - sizes_.margin;
        title_ =
            svg::wrapped(look_.title.value_or(""), svg::paper_title, width_ - 2 * sizes_.margin);
        sizes_.top += static_cast<double>(title_.size()) * (svg::paper_line + 2);
        sizes_.key_height = has_key() ? 3 * svg::paper_line : 0;
        height_ = sizes_.top + static_cast<double>(rows_.size()) * sizes_.row_pitch +
                  sizes_.margin + sizes_.key_height;
    }

    std::string figure_title() const {
        std::string text;
        double y = sizes_.margin;
        for (const std::string& line : title_) {
            text += svg::text_at(sizes_.margin,
                                 y + svg::paper_title,
                                 line,
                                 {.size = svg::paper_title, .bold = true});
            y += svg::paper_line + 2;
        }
        return text;
    }

    bool has_stages() const { return !picture_.stages.empty(); }
    bool has_key() const { return has_stages() && (!look_.is_paper() || look_.legend); }
    const ModelPicture::Unit& unit(std::size_t index) const { return picture_.units[index]; }
    double top_of(std::size_t row) const {
        return sizes_.top + static_cast<double>(row) * sizes_.row_pitch +
               (sizes_.row_pitch - sizes_.box_height) / 2;
    }

    std::string name_of(const DrawnRow& row) const {
        return row.is_run() ? fmt::format("{} ... {}", unit(row.first).name, unit(row.last).name)
                            : unit(row.first).name;
    }
    std::string detail_of(const DrawnRow& row) const {
        return row.is_run() ? fmt::format("{} layers", row.last - row.first + 1)
                            : unit(row.first).detail;
    }

    /// The tips of arrows.
    std::string heads() const {
        std::string text = "<defs>";
        for (std::size_t look = 0; look < edge_looks.size(); ++look) {
            text += fmt::format(
                R"(<marker id="tip{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{2}" markerHeight="{2}" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{1}"/></marker>)",
                look,
                edge_looks.at(look).colour,
                look_.is_paper() ? 4 : 8);
        }
        return text + "</defs>\n";
    }

    std::string bands() const {
        std::string text;
        for (std::size_t row = 0; has_stages() && row < rows_.size();) {
            const int stage = unit(rows_[row].first).stage;
            const std::size_t begin = row;
            while (row < rows_.size() && unit(rows_[row].first).stage == stage) {
                ++row;
            }
            const double y = sizes_.top + static_cast<double>(begin) * sizes_.row_pitch;
            const double height = static_cast<double>(row - begin) * sizes_.row_pitch;
            text += svg::rect({0, y, width_, height},
                              stage % 2 == 0 ? svg::group_fill : std::string_view("#FFFFFF"),
                              R"( stroke="#DDE2E8" stroke-width="1")");
            text += stage_label(picture_.stages.at(as_index(stage)), y, height);
        }
        return text;
    }

    /// The line about a stage, in the middle of its band; in a figure in as many lines as its
    /// column is wide for and its band is high for.
    std::string stage_label(std::string_view words, double y, double height) const {
        if (!look_.is_paper()) {
            return svg::text_at(
                sizes_.margin, y + height / 2 + 4, words, {.size = sizes_.text, .bold = true});
        }
        std::vector<std::string> lines =
            svg::wrapped(words.substr(0, words.find(':')), sizes_.text, left_ - sizes_.margin);
        lines.resize(std::min(lines.size(), as_index(height / svg::paper_line)));
        double line_y = y + height / 2 + sizes_.drop -
                        (static_cast<double>(lines.size()) - 1) * svg::paper_line / 2;
        std::string text;
        for (const std::string& line : lines) {
            text += svg::text_at(sizes_.margin, line_y, line, {.size = sizes_.text, .bold = true});
            line_y += svg::paper_line;
        }
        return text;
    }

    std::string arrow(const DrawnEdge& edge) const {
        const EdgeLook& look = look_of_edge(edge.stages);
        const double right = left_ + box_width_;
        std::string path;
        if (edge.lane < 0) {
            path = fmt::format("M{} {} V{}",
                               svg::number(left_ + box_width_ / 2),
                               svg::number(top_of(edge.from) + sizes_.box_height),
                               svg::number(top_of(edge.to)));
        } else {
            const double corner = sizes_.corner;
            const double x = right + (edge.lane + 1.5) * sizes_.lane_pitch;
            const double y = top_of(edge.from) + sizes_.box_height * 0.7;
            const double end = top_of(edge.to) + sizes_.box_height * 0.3;
            path = fmt::format("M{0} {1} H{2} Q{3} {1} {3} {4} V{5} Q{3} {6} {2} {6} H{0}",
                               svg::number(right),
                               svg::number(y),
                               svg::number(x - corner),
                               svg::number(x),
                               svg::number(y + corner),
                               svg::number(end - corner),
                               svg::number(end));
        }
        return fmt::format(
            "<g><title>{} to {}</title><path d=\"{}\" fill=\"none\" stroke=\"{}\"{} "
            "marker-end=\"url(#tip{})\"/></g>\n",
            svg::escaped(name_of(rows_[edge.from])),
            svg::escaped(name_of(rows_[edge.to])),
            path,
            look.colour,
            arrow_more(look),
            std::min(edge.stages, 2));
    }

    /// Thinner in a figure.
    std::string_view arrow_more(const EdgeLook& look) const {
        return look_.is_paper() ? look.paper : look.more;
    }

    std::string box(std::size_t index) const {
        const DrawnRow& row = rows_[index];
        const double y = top_of(index);
        std::string text = "<g>";
        if (!row.is_run() && !unit(row.first).tooltip.empty()) {
            text += fmt::format("<title>{}</title>", svg::escaped(unit(row.first).tooltip));
        }
        const std::string_view thin = look_.is_paper() ? R"( stroke-width="0.5")" : "";
        text += svg::rect(
            {left_, y, box_width_, sizes_.box_height},
            unit(row.first).joins ? "#F6E7C1" : "#FFFFFF",
            fmt::format("{}{}",
                        row.is_run() ? R"( stroke="#5B6673" stroke-dasharray="3 3" rx="4")"
                                     : R"( stroke="#5B6673" rx="4")",
                        thin));
        const double room = box_width_ - 2 * sizes_.box_padding;
        const double name = svg::text_width(name_of(row), sizes_.text);
        const double detail = svg::text_width(detail_of(row), sizes_.detail);
        const double text_y = y + sizes_.box_height / 2 + sizes_.drop;
        if (!look_.is_paper() || name <= room) {
            text += svg::text_at(left_ + sizes_.box_padding,
                                 text_y,
                                 name_of(row),
                                 {.size = sizes_.text, .bold = true});
        }
        if (!look_.is_paper() || name + detail + 2 * sizes_.box_padding <= room) {
            text += svg::text_at(
                left_ + box_width_ - sizes_.box_padding,
                text_y,
                detail_of(row),
                {.size = sizes_.detail, .anchor = svg::Anchor::End, .fill = svg::pale_ink});
        }
        return text + "</g>\n";
    }

    double key_width() const {
        double width = sizes_.margin;
        for (const EdgeLook& look : edge_looks) {
            width +=
                sizes_.key_line + svg::text_width(look.words, sizes_.detail) + 2 * sizes_.margin;
        }
        return width;
    }

    /// What the arrows mean: side by side, in a figure below each other.
    std::string key() const {
        std::string text;
        double x = sizes_.margin;
        double y = look_.is_paper() ? height_ - sizes_.key_height + svg::paper_line - 2
                                    : height_ - sizes_.margin;
        const double rise = look_.is_paper() ? 2.5 : 4;
        for (const EdgeLook& look : edge_looks) {
            text += fmt::format("<path d=\"M{} {} h{}\" stroke=\"{}\"{}/>\n",
                                svg::number(x),
                                svg::number(y - rise),
                                svg::number(sizes_.key_line - (look_.is_paper() ? 3 : 6)),
                                look.colour,
                                arrow_more(look));
            text += svg::text_at(
                x + sizes_.key_line, y, look.words, {.size = sizes_.detail, .fill = svg::pale_ink});
            if (look_.is_paper()) {
                y += svg::paper_line;
            } else {
                x += sizes_.key_line + svg::text_width(look.words, sizes_.detail) +
                     2 * sizes_.margin;
            }
        }
        return text;
    }

    const ModelPicture& picture_;
    const FigureLook& look_;
    GraphSizes sizes_;
    std::vector<DrawnRow> rows_;
    std::vector<DrawnEdge> edges_;
    double left_ = sizes_.margin;
    std::vector<std::string> title_{};
    double box_width_ = 160;
    double width_ = 0;
    double height_ = 0;
};

}  // namespace

std::string render_model(const ModelPicture& picture, const FigureLook& look) {
    for (const ModelPicture::Unit& unit : picture.units) {
        PIPETWIN_EXPECT(
            picture.stages.empty() || (unit.stage >= 0 && unit.stage < std::ssize(picture.stages)),
            "every layer is in a stage of the picture");
    }
    return ModelDrawing(picture, look).text();
}

}  // namespace pipetwin
