// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/input.h"
#include "cli/interop/export/exporters.h"
#include "cli/run_folder/run_folder.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/hf_folder.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"
#include "exec/base/durable_file.h"
#include "exec/training/exported_weights.h"

namespace pipetwin::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_config = std::size_t{16} << 20;

/// Throws Error(Io) if something stands where the folder shall be written and may not be replaced.
void require_free_folder(const fs::path& out, bool force) {
    std::error_code ignored;
    if (fs::exists(out, ignored) && !fs::is_directory(out, ignored)) {
        throw Error(ErrorKind::Io,
                    out.string(),
                    "there is a file of this name, expected the name of a folder",
                    "name another folder with --out FOLDER");
    }
    if (!force && fs::is_directory(out, ignored) && !fs::is_empty(out, ignored)) {
        throw Error(ErrorKind::Io,
                    out.string(),
                    "the folder is there already and is not empty",
                    "name another folder with --out FOLDER, or replace its weights and its "
                    "config.json with --force");
    }
}

/// The value of --shard-size. Throws Error(Usage) where it is no size.
Bytes shard_bytes(const std::optional<std::string>& text) {
    try {
        return text ? parse_bytes(*text) : exec::hf_shard_bytes;
    } catch (const Error& error) {
        throw Error(ErrorKind::Usage, "--shard-size", error.what(), "as in --shard-size \"2 GB\"");
    }
}

/// Whether a file is one that an export writes, whatever the number of its shards.
bool is_exported(const fs::path& file) {
    const std::string name = file.filename().string();
    return name == hf_file::config || name == hf_file::weights || name == hf_file::index ||
           (name.starts_with("model-") && name.ends_with(".safetensors"));
}

std::vector<fs::path> exported_files(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        if (is_exported(entry.path())) {
            files.push_back(entry.path());
        }
    }
    return files;
}

/// A folder beside the one that is to be written; it goes unless it is moved there.
class UnfinishedFolder {
  public:
    explicit UnfinishedFolder(const fs::path& out)
        : out_(out.has_filename() ? out : out.parent_path()),
          path_(out_.parent_path() / ("." + out_.filename().string() + ".unfinished")) {
        fs::remove_all(path_);  // of an export that was killed here
        exec::create_folders(path_);
    }
    UnfinishedFolder(const UnfinishedFolder&) = delete;
    UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
    ~UnfinishedFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    const fs::path& path() const { return path_; }

    /// Puts its files in the place of those of an earlier export; what else lies there stays.
    /// config.json, without which no program reads the weights, goes first and comes last, so that
    /// no cut of the power leaves that of one export beside the weights of another.
    void move_files() const {
        exec::create_folders(out_);
        fs::remove(out_ / hf_file::config);
        for (const fs::path& file : exported_files(out_)) {
            fs::remove(file);
        }
        for (const fs::path& file : exported_files(path_)) {
            if (file.filename() != hf_file::config) {
                fs::rename(file, out_ / file.filename());
            }
        }
        fs::rename(path_ / hf_file::config, out_ / hf_file::config);
        exec::flush_folder(out_);
    }

  private:
    fs::path out_;
    fs::path path_;
};

/// Writes the context of the model that the training began with into config.json: the training may
/// have had shorter samples, and a model with rotary positions still has its own context after it.
void keep_context(const fs::path& config_file, const fs::path& began_with, Console& console) {
    constexpr std::string_view key = "max_position_embeddings";
    std::error_code ignored;
    if (!fs::is_regular_file(began_with, ignored)) {
        return;
    }
    const nlohmann::json theirs =
        parse_json(read_file(began_with, largest_config), began_with.string());
    auto ours = nlohmann::ordered_json::parse(read_file(config_file, largest_config));
    const JsonObject model(theirs, began_with.string(), "");
    const std::int64_t context = model.whole_or(key, 0);
    const auto trained = ours.value(key, std::int64_t{0});
    if (context <= trained) {
        return;
    }
    ours[std::string(key)] = context;
    fs::remove(config_file);
    exec::DurableFile file(config_file);
    file.write(ours.dump(2) + '\n');
    file.finish();
    console.note(
        fmt::format("config.json has the model's context of {} tokens; it was trained here "
                    "with {}",
                    context,
                    trained));
}

}  // namespace

Exchanged export_hf(const ExportOptions& options, Console& console) {
    std::error_code ignored;
    if (!fs::is_directory(options.source, ignored)) {
        throw Error(ErrorKind::BadInput,
                    options.source.string(),
                    "weights are exported from a run folder, expected one with checkpoints",
                    "name the --out DIR of a training run, or its folder in runs/");
    }
    if (!options.common.overrides.empty() || !options.profile.empty()) {
        throw Error(ErrorKind::Usage,
                    options.profile.empty() ? "--set " + options.common.overrides.front().key
                                            : std::string("--profile"),
                    fmt::format("'{}' is not a scenario, so it has no keys to set",
                                options.source.string()),
                    "leave the option out");
    }
    require_free_folder(options.common.out, options.common.force);
    const Scenario scenario = read_scenario(options.source / run_file::scenario, {});
    const Model model = scenario_model(scenario);
    try {
        const UnfinishedFolder unfinished(options.common.out);
        const exec::ExportedWeights written =
            exec::export_weights(scenario,
                                 model,
                                 options.source / run_file::checkpoints,
                                 unfinished.path(),
                                 shard_bytes(options.shard_size));
        if (scenario.model.has_llama_sizes()) {
            keep_context(
                unfinished.path() / hf_file::config, options.source / run_file::config, console);
        }
        unfinished.move_files();
        for (const std::string& damaged : written.damaged) {
            console.note(fmt::format("a damaged checkpoint is left out: {}", damaged));
        }
        console.note(fmt::format("weights after {}, from {}",
                                 counted(written.steps_done, "step"),
                                 written.checkpoint.string()));
        if (scenario.training.average_decay > 0) {
            console.note("the weights themselves; their averages stay in the checkpoint");
        }
        Exchanged result;
        result.layers = model.layer_count();
        result.parameters = written.numbers;
        return result;
    } catch (const fs::filesystem_error& error) {
        throw Error(ErrorKind::Io, error.path1().string(), error.code().message());
    }
}

}  // namespace pipetwin::cli
