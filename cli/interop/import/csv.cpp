// SPDX-License-Identifier: Apache-2.0
#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "core/costs/profile_csv.h"
#include "core/costs/profile_json.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

Imported import_csv(const ImportOptions& options) {
    const Profile profile = parse_profile_csv(read_input(options.file, JsonLimits{}.max_bytes),
                                              input_name(options.file));
    Imported imported{.content = print_profile(profile), .result = {}};
    imported.result.layers = static_cast<int>(profile.layers.size());
    return imported;
}

}  // namespace pipetwin::cli
