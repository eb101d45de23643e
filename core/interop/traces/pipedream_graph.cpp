// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/pipedream_graph.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr string_view separator = " -- ";
constexpr string_view node_form =
    "node1 -- description -- forward_compute_time=1.5, backward_compute_time=3.0, "
    "activation_size=1024, parameter_size=0";
constexpr string_view edge_form = R"(a TAB and two nodes, as in "\tnode1 -- node2")";
constexpr std::array keys{string_view{"forward_compute_time"},
                          string_view{"backward_compute_time"},
                          string_view{"activation_size"},
                          string_view{"parameter_size"}};
enum Key { ForwardTime, BackwardTime, ActivationSize, ParameterSize };
constexpr double largest_graph_number = 9007199254740992;  // 2^53

/// A part of a line, and where it begins.
struct GraphPart {
    string_view text;
    std::size_t column = 1;
};

std::vector<GraphPart> split(GraphPart whole, string_view at) {
    std::vector<GraphPart> parts;
    for (;;) {
        const std::size_t end = std::min(whole.text.find(at), whole.text.size());
        parts.push_back({whole.text.substr(0, end), whole.column});
        if (end == whole.text.size()) {
            return parts;
        }
        whole.text.remove_prefix(end + at.size());
        whole.column += end + at.size();
    }
}

/// One line of the file and what to call it in an error.
struct Line {
    string_view file;
    int number = 1;

    [[noreturn]] void refuse(std::size_t column, std::string what, Hint hint = {}) const {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}:{}", file, number, column),
                    std::move(what),
                    std::move(hint));
    }
};

string_view shortened(string_view text) {
    return text.substr(0, 60);
}

double number(const Line& line, GraphPart value, string_view key, string_view expected) {
    double result = 0;
    const char* const end = value.text.data() + value.text.size();
    const auto [rest, status] = std::from_chars(value.text.data(), end, result);
    const bool whole = status == std::errc{} && rest == end;
    if (!whole || !std::isfinite(result) || result < 0 || result > largest_graph_number) {
        line.refuse(value.column,
                    fmt::format("{} = '{}', expected {}", key, shortened(value.text), expected));
    }
    return result;
}

/// "1024", or "[1024; 512]" for their sum.
Bytes size(const Line& line, GraphPart value, string_view key) {
    double sum = 0;
    const bool is_list = value.text.starts_with('[') && value.text.ends_with(']');
    if (is_list) {
        value.text = value.text.substr(1, value.text.size() - 2);
        ++value.column;
    }
    for (const GraphPart& entry : split(value, is_list ? "; " : "\n")) {
        sum += number(line, entry, key, "a number of bytes, not negative, or [a; b; c]");
    }
    if (sum > largest_graph_number) {
        line.refuse(value.column, fmt::format("{} above 2^53 bytes", key));
    }
    return Bytes{std::llround(sum)};
}

struct Node {
    std::string name;
    std::string kind;
    bool is_model_input = false;
    Duration forward{};
    Duration backward{};
    Bytes activation{};
    Bytes parameters{};
    std::optional<int> stage{};
    std::vector<std::size_t> inputs{};
    std::vector<std::size_t> outputs{};
};

/// An edge line, kept until all nodes are known.
struct Edge {
    Line line;
    GraphPart from;
    GraphPart to;
};

class Reader {
  public:
    Reader(string_view text, string_view place) {
        Line line{.file = place};
        for (; !text.empty(); ++line.number) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            string_view content = text.substr(0, end);
            text.remove_prefix(std::min(end + 1, text.size()));
            while (content.ends_with('\r') || content.ends_with(' ')) {
                content.remove_suffix(1);
            }
            if (!content.empty()) {
                read(line, content);
            }
        }
        for (const Edge& edge : edges_) {
            connect(edge);
        }
    }

    std::vector<Node> take() { return std::move(nodes_); }

  private:
    void read(const Line& line, string_view content) {
        if (!is_utf8(content)) {
            line.refuse(1, "bytes that are not UTF-8 text", "is this a graph.txt?");
        }
        if (content.starts_with('\t')) {
            const std::vector<GraphPart> ends = split({content.substr(1), 2}, separator);
            if (ends.size() != 2) {
                line.refuse(2,
                            fmt::format("'{}' is not an edge, expected {}",
                                        shortened(content.substr(1)),
                                        edge_form));
            }
            edges_.push_back({line, ends[0], ends[1]});
            return;
        }
        const std::vector<GraphPart> parts = split({content, 1}, separator);
        if (parts.size() != 3 && parts.size() != 4) {
            line.refuse(1,
                        fmt::format("{} between \" -- \", expected the 3 or 4 of a node: {}",
                                    counted(parts.size(), "part"),
                                    node_form),
                        parts.size() == 2 ? "an edge begins with a TAB" : "");
        }
        Node node{.name = std::string(parts[0].text), .kind = kind_of(parts[1].text)};
        node.is_model_input = parts[1].text.starts_with("Input");
        if (node.name.empty()) {
            line.refuse(1, "a node without a name, expected one as in node1");
        }
        read_values(line, parts[2], node);
        if (parts.size() == 4) {
            node.stage = stage_of(line, parts[3]);
        }
        if (!index_.emplace(node.name, nodes_.size()).second) {
            line.refuse(1,
                        fmt::format("node '{}' a second time, expected each node once",
                                    shortened(node.name)));
        }
        nodes_.push_back(std::move(node));
    }

    /// "Conv2d" of "Conv2d(3, 64, kernel_size=(7, 7))".
    static std::string kind_of(string_view description) {
        return std::string(description.substr(0, description.find('(')));
    }

    static void read_values(const Line& line, GraphPart part, Node& node) {
        std::array<bool, keys.size()> seen{};
        for (const GraphPart& entry : split(part, ", ")) {
            const std::size_t equals = entry.text.find('=');
            const string_view word = entry.text.substr(0, equals);
            const auto known = std::ranges::find(keys, word);
            if (known == keys.end() || equals == string_view::npos) {
                line.refuse(entry.column,
                            fmt::format("'{}', expected KEY=NUMBER", shortened(entry.text)),
                            suggestion(word, keys));
            }
            const auto key = static_cast<std::size_t>(known - keys.begin());
            if (std::exchange(seen.at(key), true)) {
                line.refuse(entry.column, fmt::format("{} a second time", word));
            }
            set(line,
                static_cast<Key>(key),
                {entry.text.substr(equals + 1), entry.column + equals + 1},
                node);
        }
        for (std::size_t key = 0; key < keys.size(); ++key) {
            if (!seen.at(key)) {
                line.refuse(part.column,
                            fmt::format("no {}, expected {}", keys.at(key), fmt::join(keys, ", ")));
            }
        }
    }

    static void set(const Line& line, Key key, GraphPart value, Node& node) {
        const string_view word = keys.at(key);
        switch (key) {
            case ForwardTime:
            case BackwardTime: {
                constexpr string_view expected = "a number of milliseconds, not negative";
                const double milliseconds = number(line, value, word, expected);
                constexpr double most = largest_graph_number / 1e6;
                if (milliseconds > most) {
                    line.refuse(value.column, fmt::format("{} above {} ms", word, most));
                }
                const Duration time{std::llround(milliseconds * 1e6)};
                (key == ForwardTime ? node.forward : node.backward) = time;
                return;
            }
            case ActivationSize:
                node.activation = size(line, value, word);
                return;
            case ParameterSize:
                node.parameters = size(line, value, word);
                return;
        }
    }

    static int stage_of(const Line& line, GraphPart part) {
        constexpr string_view key = "stage_id=";
        int stage = -1;
        if (part.text.starts_with(key)) {
            const string_view digits = part.text.substr(key.size());
            const char* const end = digits.data() + digits.size();
            const auto [rest, status] = std::from_chars(digits.data(), end, stage);
            if (status != std::errc{} || rest != end) {
                stage = -1;
            }
        }
        if (stage < 0) {
            line.refuse(
                part.column,
                fmt::format("'{}', expected stage_id=0 or another stage", shortened(part.text)));
        }
        return stage;
    }

    std::size_t find(const Line& line, GraphPart name) const {
        const auto found = index_.find(name.text);
        if (found == index_.end()) {
            std::vector<string_view> known;
            known.reserve(nodes_.size());
            for (const Node& node : nodes_) {
                known.push_back(node.name);
            }
            const string_view near = nearest_word(name.text, known);
            line.refuse(name.column,
                        fmt::format("no line describes node '{}'", shortened(name.text)),
                        near.empty() ? "every end of an edge needs a line of its own, as in " +
                                           std::string(node_form)
                                     : fmt::format("did you mean '{}'?", near));
        }
        return found->second;
    }

    /// An edge that is there twice (x + x) says no more than once.
    void connect(const Edge& edge) {
        const std::size_t from = find(edge.line, edge.from);
        const std::size_t to = find(edge.line, edge.to);
        std::vector<std::size_t>& inputs = nodes_[to].inputs;
        if (std::ranges::find(inputs, from) == inputs.end()) {
            inputs.push_back(from);
            nodes_[from].outputs.push_back(to);
            nodes_[to].is_model_input = false;  // a layer whose class is called Input...
        }
    }

    std::vector<Node> nodes_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::vector<Edge> edges_;
};

/// Each node after those it reads: of those that are next, the one of the lowest stage, then the
/// one that the file names first.
std::vector<std::size_t> ordered(const std::vector<Node>& nodes, string_view place) {
    std::vector<std::size_t> waits_for(nodes.size());
    std::set<std::pair<int, std::size_t>> next;
    const auto ready = [&](std::size_t node) { next.emplace(nodes[node].stage.value_or(0), node); };
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        waits_for[node] = nodes[node].inputs.size();
        if (waits_for[node] == 0) {
            ready(node);
        }
    }
    std::vector<std::size_t> order;
    while (!next.empty()) {
        const std::size_t node = next.extract(next.begin()).value().second;
        order.push_back(node);
        for (const std::size_t reader : nodes[node].outputs) {
            if (--waits_for[reader] == 0) {
                ready(reader);
            }
        }
    }
    if (order.size() == nodes.size()) {
        return order;
    }
    // A node that still waits is on a cycle or behind one: going back from it ends on the cycle.
    std::size_t at = static_cast<std::size_t>(
        std::ranges::find_if(waits_for, [](std::size_t count) { return count > 0; }) -
        waits_for.begin());
    std::vector<std::size_t> path;
    while (std::ranges::find(path, at) == path.end()) {
        path.push_back(at);
        at = *std::ranges::find_if(nodes[at].inputs,
                                   [&](std::size_t input) { return waits_for[input] > 0; });
    }
    path.erase(path.begin(), std::ranges::find(path, at));
    path.push_back(at);
    std::ranges::reverse(path);  // it was found against the edges
    std::vector<string_view> cycle(path.size());
    std::ranges::transform(
        path, cycle.begin(), [&](std::size_t node) -> string_view { return nodes[node].name; });
    throw Error(ErrorKind::BadInput,
                std::string(place),
                fmt::format("the edges make a cycle: {}", fmt::join(cycle, " -- ")),
                "a model's layers read only what was computed before: take one of these edges out");
}

/// Layers of the profile from nodes.
class Layers {
  public:
    Layers(const std::vector<Node>& nodes, int mini_batch_size)
        : nodes_(nodes), mini_batch_size_(mini_batch_size) {}

    PipeDreamGraph make(const std::vector<std::size_t>& order) {
        for (const std::size_t i : order) {
            if (nodes_[i].is_model_input) {
                graph_.model_inputs.push_back(nodes_[i].name);
            }
        }
        const auto is_source = [this](std::size_t i) {
            return !nodes_[i].is_model_input && layer_inputs(i).empty();
        };
        if (std::ranges::count_if(order, is_source) > 1) {
            add_common_input();
        }
        std::string before;
        for (const std::size_t i : order) {
            if (!nodes_[i].is_model_input) {
                before = add(i, before);
                count_stage(nodes_[i]);
            }
        }
        graph_.profile.source = CostSource::Imported;
        if (!stages_in_order_) {
            graph_.partition.clear();
        }
        return std::move(graph_);
    }

  private:
    std::vector<std::string> layer_inputs(std::size_t node) const {
        std::vector<std::string> names;
        for (const std::size_t input : nodes_[node].inputs) {
            if (!nodes_[input].is_model_input) {
                names.push_back(nodes_[input].name);
            }
        }
        return names;
    }

    /// Bytes of the model's own input that the layer reads.
    Bytes model_input(std::size_t node) const {
        Bytes sum;
        for (const std::size_t input : nodes_[node].inputs) {
            sum += nodes_[input].is_model_input ? nodes_[input].activation : Bytes{};
        }
        return sum;
    }

    /// A profile has one first layer: it stands for the model's input.
    void add_common_input() {
        common_input_ = "input";
        LayerSample sample{.micro_batch_size = mini_batch_size_};
        for (const Node& node : nodes_) {
            sample.output += node.is_model_input ? node.activation : Bytes{};
        }
        graph_.profile.layers.push_back(
            {.name = common_input_, .kind = "Input", .samples = {sample}});
        graph_.partition.push_back(1);
    }

    /// Adds the layer of a node behind the layer `before`; returns its name.
    std::string add(std::size_t i, const std::string& before) {
        const Node& node = nodes_[i];
        LayerCost layer{.name = node.name, .kind = node.kind, .parameter_bytes = node.parameters};
        layer.inputs = layer_inputs(i);
        const Bytes from_outside = model_input(i);
        const bool reads_input = layer.inputs.empty() || from_outside > Bytes{};
        if (reads_input && !common_input_.empty()) {
            layer.inputs.push_back(common_input_);
        }
        LayerSample sample{.micro_batch_size = mini_batch_size_, .forward = node.forward};
        sample.backward_input = node.parameters == Bytes{} ? node.backward : node.backward / 2;
        sample.backward_weight = node.backward - sample.backward_input;
        sample.output = node.activation;
        sample.input = layer.inputs.empty() ? from_outside : Bytes{};
        for (const std::size_t input : node.inputs) {
            sample.saved += nodes_[input].activation;
        }
        layer.samples.push_back(sample);
        if (layer.inputs == std::vector{before}) {
            layer.inputs.clear();  // the layer before is what is meant
        }
        graph_.profile.layers.push_back(std::move(layer));
        return node.name;
    }

    void count_stage(const Node& node) {
        const int current = static_cast<int>(stages_seen_) - 1;
        if (!node.stage || *node.stage < current || *node.stage > current + 1) {
            stages_in_order_ = false;
            return;
        }
        if (*node.stage > current) {
            ++stages_seen_;
            const bool input_is_counted = stages_seen_ == 1 && !graph_.partition.empty();
            if (!input_is_counted) {
                graph_.partition.push_back(0);
            }
        }
        ++graph_.partition.back();
    }

    const std::vector<Node>& nodes_;
    int mini_batch_size_;
    PipeDreamGraph graph_;
    std::string common_input_;
    std::size_t stages_seen_ = 0;
    bool stages_in_order_ = true;
};

}  // namespace

PipeDreamGraph parse_pipedream_graph(string_view text, string_view place, int mini_batch_size) {
    const std::vector<Node> nodes = Reader(text, place).take();
    PipeDreamGraph graph = Layers(nodes, mini_batch_size).make(ordered(nodes, place));
    if (graph.profile.layers.empty()) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    "no node but the model's input, expected layers",
                    fmt::format("a line of a layer is {}", node_form));
    }
    check_profile(graph.profile, place);
    return graph;
}

}  // namespace pipetwin
