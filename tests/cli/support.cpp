#include "tests/cli/support.h"

#include <fstream>
#include <sstream>

#include "cli/command_line.h"

namespace pipetwin::cli {

nlohmann::json Outcome::json() const {
    return nlohmann::json::parse(out);
}

Outcome pipetwin(const std::vector<std::string>& args, const Terminal& terminal) {
    std::ostringstream out;
    std::ostringstream err;
    Outcome outcome;
    outcome.code = run_command_line(args, out, err, terminal);
    outcome.out = out.str();
    outcome.err = err.str();
    return outcome;
}

std::vector<std::string> joined(std::vector<std::string> args,
                                const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

std::vector<std::string> simulate_args(const Numbers& plan, const std::vector<std::string>& more) {
    return joined({"simulate",
                   "--stages",
                   std::to_string(plan.stages),
                   "--micro-batches",
                   std::to_string(plan.micro_batches),
                   "--forward-ms",
                   plan.forward,
                   "--backward-ms",
                   plan.backward},
                  more);
}

std::string InFolder::file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content).string();
}

std::string content_of(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream content;
    content << stream.rdbuf();
    return content.str();
}

const std::string_view small_scenario = R"toml([model]
kind = "mlp"
sizes = [8, 16, 4]
[data]
kind = "synthetic"
[training]
batch = 8
steps = 3
optimizer = "sgd"
learning_rate = 0.1
[pipeline]
stages = 2
micro_batches = 4
)toml";

const std::string_view small_profile =
    "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
    "linear0,0.02,0.04,64,160,576\n"
    "linear1,0.01,0.02,0,100,272\n";

}  // namespace pipetwin::cli
