// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/file_kinds.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedule/action.h"
#include "core/text/file_damage.h"
#include "core/text/input_file.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr string_view white_space = " \t\r\n";

string_view trimmed(string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
    text.remove_suffix(text.size() - std::min(text.find_last_not_of(white_space) + 1, text.size()));
    return text;
}

bool has(string_view text, string_view part) {
    return text.find(part) != string_view::npos;
}

/// "2F0" and "(0F1;1B0)OVERLAP_F_B".
bool is_schedule_cell(string_view cell) {
    cell = trimmed(cell);
    if (cell.starts_with('"')) {
        cell = trimmed(cell.substr(1, cell.find('"', 1) - 1));
    }
    cell.remove_prefix(cell.starts_with('(') ? 1 : 0);
    const std::size_t word = cell.find_first_not_of("0123456789");
    if (word == 0 || word == string_view::npos) {
        return false;
    }
    cell.remove_prefix(word);
    const string_view op = cell.substr(0, cell.find_first_of("0123456789;"));
    for (int i = 0; i < op_count; ++i) {
        if (op_text(static_cast<Op>(i)) == op) {
            return true;
        }
    }
    return op == "BW";
}

/// Whether the first cell with content is an action.
bool is_schedule(string_view text) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of(",;\n"), text.size());
        const bool in_pair = trimmed(text).starts_with('(') || trimmed(text).starts_with("\"(");
        const string_view cell = trimmed(text.substr(0, end));
        if (!cell.empty()) {
            return is_schedule_cell(in_pair ? text : cell);
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return false;
}

/// Whether a JSON text has a key; in the beginning of a file that may be cut off.
bool has_key(string_view text, string_view key) {
    const std::string quoted = fmt::format("\"{}\"", key);
    for (std::size_t at = text.find(quoted); at != string_view::npos;
         at = text.find(quoted, at + 1)) {
        const string_view behind = trimmed(text.substr(at + quoted.size()));
        if (behind.starts_with(':')) {
            return true;
        }
    }
    return false;
}

/// What `--json` prints, whose keys may include those of any other kind, or the lines that training
/// writes.
bool is_result(string_view text) {
    if (text.starts_with(R"({"step":)") || text.starts_with(R"({"live":)")) {
        return has_key(text, "grad_norm") || has_key(text, "plan_hash");
    }
    constexpr string_view first = "\"schema_version\"";
    text = trimmed(text.substr(1));
    return text.starts_with(first) && has(text, ",") &&
           trimmed(text.substr(text.find(',') + 1)).starts_with("\"tool_version\"");
}

FileKind kind_of_json(string_view text) {
    const auto has_all = [text](std::initializer_list<string_view> keys) {
        return std::ranges::all_of(keys, [text](string_view key) { return has_key(text, key); });
    };
    if (is_result(text)) {
        return FileKind::Result;
    }
    if (has_key(text, "traceEvents") || has_key(text, "distributedInfo")) {
        return has_key(text, "pipetwin") ? FileKind::OurTrace : FileKind::TorchTrace;
    }
    if (has_key(text, "resourceSpans") || has_key(text, "startTimeUnixNano")) {
        return FileKind::Otlp;
    }
    if (has_all({"ph", "ts"})) {
        return FileKind::TorchTrace;
    }
    if (has_all({"hash", "cost_class"})) {
        return FileKind::Plan;
    }
    if (has_key(text, "train_batch_size") || has_key(text, "train_micro_batch_size_per_gpu")) {
        return FileKind::DeepSpeed;
    }
    if (has_key(text, "matrix_flops_per_second")) {
        return FileKind::Device;
    }
    if (has_key(text, "weight_map")) {
        return FileKind::WeightIndex;
    }
    if (has_all({"layers", "samples"}) || has_all({"layers", "parameter_bytes"})) {
        return FileKind::Profile;
    }
    return has_key(text, "model_type") || has_key(text, "architectures") ? FileKind::HfConfig
                                                                         : FileKind::Unknown;
}

/// Whether a line is a table or a key of a scenario: "[model]", "pipeline.stages = 4",
/// "cluster = {...}".
bool is_scenario_line(string_view line) {
    constexpr std::array<string_view, 6> tables{
        "model", "data", "training", "pipeline", "cluster", "checkpoint"};
    line = trimmed(line);
    const bool is_table = line.starts_with('[');
    line.remove_prefix(is_table ? 1 : 0);
    const string_view word = line.substr(0, line.find_first_of("]. =\t"));
    const bool is_known = std::ranges::find(tables, word) != tables.end();
    const string_view rest = line.substr(word.size());
    return is_known && (is_table ? rest.starts_with(']') : has(rest.substr(0, 64), "="));
}

/// Whether a line has this word with a value: "kind = ", also inside of braces.
bool has_word(string_view line, string_view word) {
    const std::size_t at = line.find(word);
    const bool begins =
        at == 0 || (at != string_view::npos && has(" \t{,.", line.substr(at - 1, 1)));
    return begins && trimmed(line.substr(at + word.size())).starts_with('=');
}

/// The first line that is so; empty if none is.
template <class Predicate>
string_view line_where(string_view text, const Predicate& is_so) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const string_view line = trimmed(text.substr(0, end));
        if (is_so(line)) {
            return line;
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return {};
}

/// Whether a line has a key of Megatron's: "--pipeline-model-parallel-size 4", with underscores in
/// ms-swift, and in YAML "pipeline_model_parallel_size: 4".
bool is_megatron_line(string_view line) {
    constexpr std::array<string_view, 11> keys{"--pipeline-model-parallel-size",
                                               "--tensor-model-parallel-size",
                                               "--num-layers ",
                                               "--num-attention-heads",
                                               "--pipeline_model_parallel_size",
                                               "--tensor_model_parallel_size",
                                               "megatron sft ",
                                               "megatron pt ",
                                               "megatron rlhf ",
                                               "pipeline_model_parallel_size:",
                                               "tensor_model_parallel_size:"};
    return std::ranges::any_of(keys, [line](string_view key) { return has(line, key); });
}

/// The kind of a text of lines; Unknown where no line tells it.
FileKind kind_of_lines(string_view text) {
    const auto some = [text](const auto& is_so) { return !line_where(text, is_so).empty(); };
    if (some([](string_view line) {
            return line.starts_with("[parallelism]") || line.starts_with("[job]") ||
                   line.starts_with("[activation_checkpoint]");
        })) {
        return FileKind::Torchtitan;
    }
    if (some(is_megatron_line)) {
        return FileKind::Megatron;
    }
    const auto of_cluster = [](string_view line) {
        return line.starts_with("cluster") || line.starts_with("[cluster");
    };
    const auto of_another_part = [of_cluster](string_view line) {
        return is_scenario_line(line) && !of_cluster(line);
    };
    // Other programs have a [model] and a [training], too, but no model.kind and no [pipeline].
    const auto of_scenarios_alone = [](string_view line) {
        return is_scenario_line(line) &&
               (line.starts_with("pipeline") || line.starts_with("[pipeline"));
    };
    const auto of_kind = [](string_view line) { return has_word(line, "kind"); };
    if (some(of_another_part)) {
        return some(of_scenarios_alone) || some(of_kind) ? FileKind::Scenario : FileKind::Unknown;
    }
    if (some(is_scenario_line)) {
        return FileKind::Cluster;
    }
    return FileKind::Unknown;
}

/// The beginning of what gzip packed; empty where it is damaged.
std::string unpacked_head(string_view packed) {
    std::string text(std::size_t{1} << 16U, '\0');
    z_stream stream{};
    constexpr int of_gzip = 16;
    if (inflateInit2(&stream, MAX_WBITS + of_gzip) != Z_OK) {
        return {};
    }
    std::string bytes(packed);
    stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(text.data());
    stream.avail_out = static_cast<uInt>(text.size());
    inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
    inflateEnd(&stream);
    return text;
}

}  // namespace

string_view words(FileKind kind) {
    switch (kind) {
        case FileKind::Scenario:
            return "a scenario";
        case FileKind::Schedule:
            return "a schedule";
        case FileKind::Profile:
            return "a profile, the costs of layers";
        case FileKind::CostTable:
            return "a table of costs";
        case FileKind::OurTrace:
            return "a trace that pipetwin wrote";
        case FileKind::TorchTrace:
            return "a trace of PyTorch's profiler";
        case FileKind::Nsys:
            return "a database, as nsys exports it";
        case FileKind::Otlp:
            return "spans of OpenTelemetry (OTLP)";
        case FileKind::Plan:
            return "the plan of a run";
        case FileKind::HfConfig:
            return "a config.json of Hugging Face";
        case FileKind::WeightIndex:
            return "an index of safetensors files";
        case FileKind::Device:
            return "a device profile";
        case FileKind::Graph:
            return "a graph of PipeDream's profiler";
        case FileKind::Cluster:
            return "a cluster";
        case FileKind::Torchtitan:
            return "a configuration of torchtitan";
        case FileKind::DeepSpeed:
            return "a configuration of DeepSpeed";
        case FileKind::Megatron:
            return "a file with Megatron's flags";
        case FileKind::Picture:
            return "a picture";
        case FileKind::PlanTable:
            return "a table of compared plans, as --csv writes it";
        case FileKind::Result:
            return "a result that pipetwin wrote";
        case FileKind::RunFolder:
            return "a run folder";
        case FileKind::Unknown:
            break;
    }
    return "nothing that is known";
}

FileKind kind_of_content(string_view head) {
    if (head.starts_with(string_view("SQLite format 3\0", 16))) {
        return FileKind::Nsys;
    }
    if (head.starts_with("<svg ") || head.starts_with("\x89PNG")) {
        return FileKind::Picture;
    }
    if (head.starts_with("<!DOCTYPE html>") &&
        has(head.substr(0, 1024), string_view(" - pipetwin</title>"))) {
        return FileKind::Result;
    }
    if (!damage_of_file(head, "").what.empty()) {
        return FileKind::Unknown;
    }
    head.remove_prefix(head.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    string_view text = trimmed(head);
    if (text.starts_with("sep=")) {  // of a spreadsheet: says how the cells below are separated
        text = trimmed(text.substr(std::min(text.find_first_of("\r\n"), text.size())));
    }
    const string_view line = text.substr(0, text.find_first_of("\r\n"));
    const bool opens_list =
        text.starts_with('[') && trimmed(text.substr(1)).find_first_of("{[\"]") == 0;
    if (text.starts_with('{') || opens_list) {
        return kind_of_json(text);
    }
    if (is_schedule(text)) {
        return FileKind::Schedule;
    }
    if (has(line, "schedule,stages,chunks,micro_batches,")) {
        return FileKind::PlanTable;
    }
    if (has(line, "forward_ms") && line.find_first_of(",;\t") != string_view::npos) {
        return FileKind::CostTable;
    }
    if (has(line, " -- ") && has(text, "forward_compute_time=")) {
        return FileKind::Graph;
    }
    return kind_of_lines(text);
}

namespace {

/// Traces alone are read as gzip packs them.
FileKind kind_of_packed(string_view head) {
    const FileKind kind = kind_of_content(unpacked_head(head));
    const bool is_trace = kind == FileKind::TorchTrace || kind == FileKind::Otlp;
    return is_trace ? kind : FileKind::Unknown;
}

}  // namespace

FileKind kind_of_file(const std::filesystem::path& file) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        const bool is_run = std::filesystem::exists(file / "scenario.toml", ignored) ||
                            std::filesystem::exists(file / "predicted.trace.json", ignored) ||
                            std::filesystem::exists(file / "measured.trace.json", ignored);
        return is_run ? FileKind::RunFolder : FileKind::Unknown;
    }
    try {
        const std::string head = InputFile(file).read_up_to(std::size_t{1} << 16U);
        return head.starts_with("\x1f\x8b") ? kind_of_packed(head) : kind_of_content(head);
    } catch (const Error&) {
        return FileKind::Unknown;  // its reader says why
    }
}

}  // namespace pipetwin
