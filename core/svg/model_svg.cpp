// SPDX-License-Identifier: Apache-2.0
#include "core/svg/model_svg.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin {

namespace {

constexpr double graph_margin = 16;
constexpr double graph_top = 44;
constexpr double row_pitch = 38;  ///< from box to box
constexpr double box_height = 26;
constexpr double box_padding = 10;
constexpr double lane_pitch = 12;  ///< from arc to arc
constexpr double text_size = 12;
constexpr double detail_size = 11;
constexpr double key_height = 34;

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
};

constexpr std::array<EdgeLook, 3> edge_looks{
    {{svg::pale_ink, "", "within a stage"},
     {"#0072B2", R"( stroke-width="2")", "to the next stage"},
     {"#D55E00", R"( stroke-width="2" stroke-dasharray="7 3")", "past the stages between"}}};

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
    explicit ModelDrawing(const ModelPicture& picture)
        : picture_(picture), rows_(rows_of(picture.units)), edges_(edges_of(picture.units, rows_)) {
        for (const std::string& stage : picture.stages) {
            left_ = std::max(left_, svg::text_width(stage, text_size) + 3 * graph_margin);
        }
        for (const DrawnRow& row : rows_) {
            box_width_ = std::max(box_width_,
                                  svg::text_width(name_of(row), text_size) + 4 * box_padding +
                                      svg::text_width(detail_of(row), detail_size));
        }
        int lanes = 0;
        for (const DrawnEdge& edge : edges_) {
            lanes = std::max(lanes, edge.lane + 1);
        }
        width_ = left_ + box_width_ + (lanes + 2) * lane_pitch + graph_margin;
        width_ = std::max(width_, svg::text_width(picture.title, 15) + 2 * graph_margin);
        if (has_stages()) {
            width_ = std::max(width_, key_width());
        }
        height_ = graph_top + static_cast<double>(rows_.size()) * row_pitch + graph_margin +
                  (has_stages() ? key_height : 0);
    }

    std::string text() const {
        std::string text = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 "
            "{0} {1}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n",
            svg::number(width_),
            svg::number(height_));
        text += heads();
        text += svg::rect({0, 0, width_, height_}, "#FFFFFF", "");
        text += svg::text_at(graph_margin, 26, picture_.title, {.size = 15, .bold = true});
        text += bands();
        for (const DrawnEdge& edge : edges_) {
            text += arrow(edge);
        }
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            text += box(row);
        }
        return text + (has_stages() ? key() : "") + "</svg>\n";
    }

  private:
    bool has_stages() const { return !picture_.stages.empty(); }
    const ModelPicture::Unit& unit(std::size_t index) const { return picture_.units[index]; }
    double top_of(std::size_t row) const {
        return graph_top + static_cast<double>(row) * row_pitch + (row_pitch - box_height) / 2;
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
    static std::string heads() {
        std::string text = "<defs>";
        for (std::size_t look = 0; look < edge_looks.size(); ++look) {
            text += fmt::format(
                R"(<marker id="tip{}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{}"/></marker>)",
                look,
                edge_looks.at(look).colour);
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
            const double y = graph_top + static_cast<double>(begin) * row_pitch;
            const double height = static_cast<double>(row - begin) * row_pitch;
            text += svg::rect({0, y, width_, height},
                              stage % 2 == 0 ? svg::group_fill : std::string_view("#FFFFFF"),
                              R"( stroke="#DDE2E8" stroke-width="1")");
            text += svg::text_at(graph_margin,
                                 y + height / 2 + 4,
                                 picture_.stages.at(as_index(stage)),
                                 {.size = text_size, .bold = true});
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
                               svg::number(top_of(edge.from) + box_height),
                               svg::number(top_of(edge.to)));
        } else {
            constexpr double corner = 6;
            const double x = right + (edge.lane + 1.5) * lane_pitch;
            const double y = top_of(edge.from) + box_height * 0.7;
            const double end = top_of(edge.to) + box_height * 0.3;
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
            look.more,
            std::min(edge.stages, 2));
    }

    std::string box(std::size_t index) const {
        const DrawnRow& row = rows_[index];
        const double y = top_of(index);
        std::string text = "<g>";
        if (!row.is_run() && !unit(row.first).tooltip.empty()) {
            text += fmt::format("<title>{}</title>", svg::escaped(unit(row.first).tooltip));
        }
        text += svg::rect({left_, y, box_width_, box_height},
                          unit(row.first).joins ? "#F6E7C1" : "#FFFFFF",
                          row.is_run() ? R"( stroke="#5B6673" stroke-dasharray="3 3" rx="4")"
                                       : R"( stroke="#5B6673" rx="4")");
        text += svg::text_at(left_ + box_padding,
                             y + box_height / 2 + 4,
                             name_of(row),
                             {.size = text_size, .bold = true});
        text +=
            svg::text_at(left_ + box_width_ - box_padding,
                         y + box_height / 2 + 4,
                         detail_of(row),
                         {.size = detail_size, .anchor = svg::Anchor::End, .fill = svg::pale_ink});
        return text + "</g>\n";
    }

    static constexpr double key_line = 26;

    static double key_width() {
        double width = graph_margin;
        for (const EdgeLook& look : edge_looks) {
            width += key_line + svg::text_width(look.words, detail_size) + 2 * graph_margin;
        }
        return width;
    }

    /// What the arrows mean.
    std::string key() const {
        std::string text;
        double x = graph_margin;
        const double y = height_ - graph_margin;
        for (const EdgeLook& look : edge_looks) {
            text += fmt::format("<path d=\"M{} {} h{}\" stroke=\"{}\"{}/>\n",
                                svg::number(x),
                                svg::number(y - 4),
                                svg::number(key_line - 6),
                                look.colour,
                                look.more);
            text += svg::text_at(
                x + key_line, y, look.words, {.size = detail_size, .fill = svg::pale_ink});
            x += key_line + svg::text_width(look.words, detail_size) + 2 * graph_margin;
        }
        return text;
    }

    const ModelPicture& picture_;
    std::vector<DrawnRow> rows_;
    std::vector<DrawnEdge> edges_;
    double left_ = graph_margin;
    double box_width_ = 160;
    double width_ = 0;
    double height_ = 0;
};

}  // namespace

std::string render_model(const ModelPicture& picture) {
    for (const ModelPicture::Unit& unit : picture.units) {
        PIPETWIN_EXPECT(
            picture.stages.empty() || (unit.stage >= 0 && unit.stage < std::ssize(picture.stages)),
            "every layer is in a stage of the picture");
    }
    return ModelDrawing(picture).text();
}

}  // namespace pipetwin
