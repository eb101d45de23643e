// SPDX-License-Identifier: Apache-2.0
#include "cli/text/model_text.h"

#include <array>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/text/text_output.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/costs/layer_estimate.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "exec/executor/backend.h"
#include "exec/layers/make_layer.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view unknown = "-";

/// Bytes of a sample of a layer whose costs are known, from those of its smallest micro-batch.
Bytes of_one_sample(const LayerSample& sample, Bytes LayerSample::*size) {
    return Bytes{(sample.*size).count / sample.micro_batch_size};
}

void take_costs(const LayerCost& cost, ModelUnit& unit) {
    unit.type = cost.kind.empty() ? "opaque" : cost.kind;
    if (cost.parameter_count > 0 || cost.parameter_bytes == Bytes{}) {
        unit.parameters = cost.parameter_count;
    }
    const LayerSample& sample = cost.samples.front();
    unit.output_bytes = of_one_sample(sample, &LayerSample::output);
    unit.saved_bytes = of_one_sample(sample, &LayerSample::saved);
    unit.operations = cost.operations;
}

/// `bytes`: those of the layer as the backend keeps it.
void take_layer(const Layer& layer, const exec::LayerBytes& bytes, ModelUnit& unit) {
    unit.type = std::string(to_string(layer.spec.type));
    if (layer.output.width > 0) {
        unit.output = layer.output;
    }
    unit.parameters = layer.parameter_count;
    unit.output_bytes = bytes.output;
    unit.saved_bytes = bytes.saved;
    unit.operations = forward_operations(layer).all;
}

/// The number with a blank between groups of three digits: "1 327 104".
std::string grouped(std::int64_t number) {
    std::string text = fmt::to_string(number);
    for (std::ptrdiff_t at = std::ssize(text) - 3; at > 0; at -= 3) {
        text.insert(as_index(at), 1, ' ');
    }
    return text;
}

std::string shape_text(const ModelUnit& unit) {
    return unit.output ? to_string(*unit.output) : std::string(unknown);
}

template <class Value, class Text>
std::string or_unknown(const std::optional<Value>& value, const Text& text) {
    return value ? text(*value) : std::string(unknown);
}

/// "1.3 M", of operations.
std::string operations_text(double operations) {
    constexpr std::array<std::string_view, 6> prefixes{"", " k", " M", " G", " T", " P"};
    std::size_t prefix = 0;
    while (operations >= 999.5 && prefix + 1 < prefixes.size()) {
        operations /= 1000;
        ++prefix;
    }
    return fmt::format("{:.3g}{}", operations, prefixes.at(prefix));
}

/// The sum over all units; none if one of them does not say.
template <class Value>
std::optional<Value> total(const ModelUnits& units, std::optional<Value> ModelUnit::*part) {
    Value sum{};
    for (const ModelUnit& unit : units.units) {
        if (!(unit.*part)) {
            return std::nullopt;
        }
        sum += *(unit.*part);
    }
    return sum;
}

std::optional<std::int64_t> parameter_total(const ModelUnits& units) {
    const std::optional<std::int64_t> sum = total(units, &ModelUnit::parameters);
    return sum ? std::optional(*sum - units.shared_parameters) : std::nullopt;
}

std::string inputs_text(const ModelUnit& unit) {
    return unit.inputs.empty() ? "the input" : fmt::format("{}", fmt::join(unit.inputs, ", "));
}

std::vector<std::string> row_of(const ModelUnit& unit, bool with_stage) {
    std::vector<std::string> row{unit.name, unit.type, inputs_text(unit), shape_text(unit)};
    if (with_stage) {
        row.insert(row.begin() + 1, fmt::format("{}", unit.stage.value_or(0)));
    }
    row.push_back(or_unknown(unit.parameters, grouped));
    row.push_back(or_unknown(unit.output_bytes, format_bytes));
    row.push_back(or_unknown(unit.saved_bytes, format_bytes));
    row.push_back(or_unknown(unit.operations, operations_text));
    return row;
}

template <class Value, class Number>
Json or_null(const std::optional<Value>& value, const Number& number) {
    return value ? Json(number(*value)) : Json(nullptr);
}

Json shape_json(const SampleShape& shape) {
    return {{"positions", shape.positions},
            {"width", shape.token_ids ? Json(nullptr) : Json(shape.width)},
            {"token_ids", shape.token_ids}};
}

Json unit_json(const ModelUnit& unit) {
    const auto count = [](Bytes bytes) { return bytes.count; };
    const auto itself = [](auto number) { return number; };
    return {{"name", unit.name},
            {"type", unit.type},
            {"inputs", unit.inputs},
            {"output", or_null(unit.output, shape_json)},
            {"parameters", or_null(unit.parameters, itself)},
            {"output_bytes", or_null(unit.output_bytes, count)},
            {"saved_bytes", or_null(unit.saved_bytes, count)},
            {"operations", or_null(unit.operations, itself)},
            {"stage", or_null(unit.stage, itself)}};
}

}  // namespace

ModelUnits model_units(const Scenario& scenario, const Model& model, const Profile* profile) {
    const bool has_layers = model.is_executable();
    ModelUnits units{.scenario = scenario.file.filename().string(),
                     .precision = has_layers || profile == nullptr
                                      ? std::string(to_string(scenario.training.precision))
                                      : profile->precision,
                     .shared_parameters = has_layers ? model.tied_count() : 0};
    if (has_layers) {
        units.input = model.layer(0).input;
    }
    const exec::NumberFormat format =
        exec::number_format(scenario.training.precision, scenario.cluster.backend);
    const Model kept = exec::model_on(scenario.cluster.backend, model);
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        ModelUnit& unit = units.units.emplace_back();
        unit.name = model.layer(layer).spec.name;
        for (const int input : model.operands_of(layer)) {
            unit.inputs.push_back(model.layer(input).spec.name);
        }
        if (has_layers) {
            take_layer(model.layer(layer), exec::layer_bytes(kept, layer, 1, format), unit);
        } else if (profile != nullptr) {
            take_costs(profile->layers.at(as_index(layer)), unit);
        }
    }
    return units;
}

void cut(ModelUnits& units, const Partition& partition) {
    units.stages = partition.stage_count();
    for (std::size_t unit = 0; unit < units.units.size(); ++unit) {
        units.units[unit].stage = partition.stage_of_layer(static_cast<int>(unit));
    }
}

std::string model_text(const ModelUnits& units) {
    const bool with_stage = units.stages > 0;
    std::vector<std::vector<std::string>> rows{
        {"unit", "type", "reads", "shape", "parameters", "output", "saved", "operations"}};
    if (with_stage) {
        rows.front().insert(rows.front().begin() + 1, "stage");
    }
    for (const ModelUnit& unit : units.units) {
        rows.push_back(row_of(unit, with_stage));
    }
    std::vector<std::string> all(with_stage ? 5 : 4);
    all.front() = "all";
    all.push_back(or_unknown(parameter_total(units), grouped));
    all.emplace_back("");
    all.push_back(or_unknown(total(units, &ModelUnit::saved_bytes), format_bytes));
    all.push_back(or_unknown(total(units, &ModelUnit::operations), operations_text));
    rows.push_back(std::move(all));
    std::string text = fmt::format("{}: {}", units.scenario, counted(units.units.size(), "unit"));
    text += with_stage ? fmt::format(" in {}", counted(units.stages, "stage")) : "";
    text += units.input ? fmt::format(", one sample is {}\n", to_string(*units.input)) : "\n";
    text += text_table(rows);
    text += fmt::format(
        "  bytes ({}) and operations (of the forward, two for a multiply-add) are those of one "
        "sample\n",
        units.precision);
    if (units.shared_parameters > 0) {
        text +=
            fmt::format("  {} parameters of the last unit are the first one's, too: counted once\n",
                        grouped(units.shared_parameters));
    }
    return text;
}

Json model_json(const ModelUnits& units) {
    const auto itself = [](auto number) { return number; };
    Json json = json_head();
    json["scenario"] = units.scenario;
    json["precision"] = units.precision;
    json["input"] = or_null(units.input, shape_json);
    json["parameters"] = or_null(parameter_total(units), itself);
    json["operations"] = or_null(total(units, &ModelUnit::operations), itself);
    json["stages"] = units.stages > 0 ? Json(units.stages) : Json(nullptr);
    json["units"] = Json::array();
    for (const ModelUnit& unit : units.units) {
        json["units"].push_back(unit_json(unit));
    }
    return json;
}

namespace {

/// "stage 1: 3 units, 12 345 parameters"
std::string stage_text(const ModelUnits& units, int stage) {
    int count = 0;
    std::optional<std::int64_t> parameters = 0;
    for (const ModelUnit& unit : units.units) {
        if (unit.stage == stage) {
            ++count;
            parameters = parameters && unit.parameters
                             ? std::optional(*parameters + *unit.parameters)
                             : std::nullopt;
        }
    }
    return fmt::format("stage {}: {}{}",
                       stage,
                       counted(count, "unit"),
                       parameters ? ", " + grouped(*parameters) + " parameters" : "");
}

}  // namespace

ModelPicture model_picture(const ModelUnits& units) {
    ModelPicture picture{
        .title = fmt::format("{}: {}", units.scenario, counted(units.units.size(), "unit"))};
    if (const auto all = parameter_total(units)) {
        picture.title += fmt::format(", {} parameters", grouped(*all));
    }
    std::unordered_map<std::string_view, int> index_of;
    for (const ModelUnit& unit : units.units) {
        index_of.emplace(unit.name, static_cast<int>(index_of.size()));
        ModelPicture::Unit& drawn = picture.units.emplace_back();
        drawn.name = unit.name;
        drawn.detail = unit.output ? fmt::format("{}  {}", unit.type, shape_text(unit)) : unit.type;
        drawn.tooltip = fmt::format("{}, reads {}\nparameters {}, output {} a sample",
                                    unit.name,
                                    inputs_text(unit),
                                    or_unknown(unit.parameters, grouped),
                                    or_unknown(unit.output_bytes, format_bytes));
        for (const std::string& input : unit.inputs) {
            drawn.inputs.push_back(index_of.at(input));
        }
        drawn.stage = unit.stage.value_or(0);
        drawn.joins = unit.inputs.size() > 1;
    }
    for (int stage = 0; stage < units.stages; ++stage) {
        picture.stages.push_back(stage_text(units, stage));
    }
    return picture;
}

}  // namespace pipetwin::cli
