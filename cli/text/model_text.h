// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/text/json_output.h"
#include "core/base/units.h"
#include "core/partition/partition.h"
#include "core/svg/model_svg.h"

namespace pipetwin {

class Model;
struct Scenario;

}  // namespace pipetwin

namespace pipetwin::cli {

/// What `pipetwin model` says of a layer, the unit of partition; none where it is not known. Bytes
/// and operations are those of one sample.
struct ModelUnit {
    std::string name;
    std::string type;
    std::vector<std::string> inputs{};    ///< names; empty: it reads the model's input
    std::optional<SampleShape> output{};  ///< none for a loss, and where no shape is known
    std::optional<std::int64_t> parameters{};
    std::optional<Bytes> output_bytes{};
    std::optional<Bytes> saved_bytes{};  ///< kept from forward to backward, inputs included
    std::optional<double> operations{};  ///< of the forward: two for a multiply-add
    std::optional<int> stage{};
};

/// The units of a model, in the order in which stages are cut from it.
struct ModelUnits {
    std::string scenario;                ///< name of the file
    std::string precision;               ///< of the bytes
    std::optional<SampleShape> input{};  ///< of the model
    std::int64_t shared_parameters = 0;  ///< counted in two units
    std::vector<ModelUnit> units{};
    int stages = 0;  ///< 0: no cuts are known
};

/// The units of the scenario's model. Of one that is known by its costs only `profile` says all but
/// names and inputs; it is null for every other.
ModelUnits model_units(const Scenario& scenario, const Model& model, const Profile* profile);

/// Says in which stage each unit is.
void cut(ModelUnits& units, const Partition& partition);

/// A row per unit, and their sums.
std::string model_text(const ModelUnits& units);
/// The units as `model --json` prints them.
Json model_json(const ModelUnits& units);
/// The units as a picture of their graph.
ModelPicture model_picture(const ModelUnits& units);

}  // namespace pipetwin::cli
