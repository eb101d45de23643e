#include "cli/interop/import/launch_tables.h"

namespace pipetwin::cli {

std::filesystem::path profile_beside(const std::filesystem::path& out) {
    std::filesystem::path file = out;
    return file.replace_extension(".profile.json");
}

std::int64_t decoder_parameters(const DecoderModel& model) {
    std::int64_t sum = embedding_parameters(model) + head_parameters(model) +
                       model.blocks * attention_parameters(model);
    for (int block = 0; block < model.blocks; ++block) {
        sum += feed_forward_parameters(model, block);
    }
    return sum;
}

}  // namespace pipetwin::cli
