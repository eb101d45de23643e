// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/base_files.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/launch_tables.h"
#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/yaml_settings.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_base_file = std::size_t{1} << 20;
constexpr int most_base_files = 32;

/// Adds the bases of one file; one object for all of them.
class Bases {
  public:
    Bases(const ImportOptions& options,
          std::string_view folder,
          const TakeBase& take,
          const AddBase& add,
          std::vector<std::string>& left_out)
        : options_(options), folder_(folder), take_(take), add_(add), left_out_(left_out) {}

    void add_to(LaunchFile& file, const std::filesystem::path& from) {
        // A value in a later file replaces the same value in an earlier one, so the last is read
        // first.
        const std::vector<std::string> names(file.models.rbegin(), file.models.rend());
        for (const std::string& name : names) {
            const std::optional<std::filesystem::path> found = base_file(from, name, folder_);
            if (!found || ++files_ > most_base_files) {
                leave_out_base(file, from, name, found.has_value());
                continue;
            }
            LaunchFile base = take_(read_input(*found, largest_base_file), found->string());
            add_to(base, *found);
            add_(file, base);
        }
    }

  private:
    void leave_out_base(LaunchFile& file,
                        const std::filesystem::path& from,
                        const std::string& name,
                        bool is_there) {
        const std::string what =
            is_there ? fmt::format("more than {} files that continue each other", most_base_files)
                     : fmt::format(
                           "the file '{}', which it continues, is neither beside it nor in "
                           "primus/configs/{}",
                           name,
                           folder_);
        if (leave_out(options_) != LeaveOut::All) {
            throw Error(ErrorKind::BadInput,
                        input_name(from),
                        what,
                        "put it beside the file, as it may say what the model is; --insist leaves "
                        "it out, and says so in the result");
        }
        file.notes.push_back(what);
        left_out_.push_back(fmt::format("the file '{}'", name));
    }

    const ImportOptions& options_;
    std::string_view folder_;
    const TakeBase& take_;
    const AddBase& add_;
    std::vector<std::string>& left_out_;
    int files_ = 0;
};

}  // namespace

std::optional<std::filesystem::path> base_file(const std::filesystem::path& file,
                                               const std::string& name,
                                               std::string_view folder) {
    std::error_code ignored;
    const std::filesystem::path own = std::filesystem::absolute(file, ignored).parent_path();
    if (std::filesystem::is_regular_file(own / name, ignored)) {
        return own / name;
    }
    for (std::filesystem::path above = own; above.has_relative_path();
         above = above.parent_path()) {
        const std::filesystem::path inside = above / "primus/configs" / folder / name;
        if (std::filesystem::is_regular_file(inside, ignored)) {
            return inside;
        }
    }
    return std::nullopt;
}

void add_bases(LaunchFile& file,
               const ImportOptions& options,
               std::string_view folder,
               const TakeBase& take,
               const AddBase& add,
               std::vector<std::string>& left_out) {
    Bases(options, folder, take, add, left_out).add_to(file, options.file);
}

// --- Primus's files for other frameworks than Megatron. ---

bool is_primus_of(std::string_view text, std::string_view framework) {
    return text.find(fmt::format("framework: {}", framework)) != std::string_view::npos &&
           text.find("overrides:") != std::string_view::npos;
}

namespace {

constexpr std::string_view keys_of_primus =
    "sink_level file_sink_level stderr_sink_level trainable";

/// Leaves the settings of a framework, by their names there: those below "overrides", or, of a file
/// without it, all.
void keep_settings(LaunchFile& file) {
    const auto depth_of = [](const Setting& setting) {
        const auto found = std::ranges::find(setting.sections, "overrides");
        return found == setting.sections.end() ? 0 : found - setting.sections.begin() + 1;
    };
    const bool is_run = std::ranges::any_of(
        file.settings, [&](const Setting& setting) { return depth_of(setting) > 0; });
    std::vector<Setting> kept;
    for (Setting& setting : file.settings) {
        const auto depth = depth_of(setting);
        if (is_run && depth == 0) {
            continue;
        }
        setting.sections.erase(setting.sections.begin(), setting.sections.begin() + depth);
        const std::string name = setting.written.substr(setting.written.find_last_of('.') + 1);
        if (has_word(keys_of_primus, name)) {
            continue;
        }
        setting.written = setting.sections.empty()
                              ? name
                              : fmt::format("{}.{}", fmt::join(setting.sections, "."), name);
        kept.push_back(std::move(setting));
    }
    file.settings = std::move(kept);
}

void add_by_written(LaunchFile& file, const LaunchFile& base) {
    std::set<std::string> written;
    for (const Setting& setting : file.settings) {
        written.insert(setting.written);
    }
    for (const Setting& setting : base.settings) {
        if (!written.contains(setting.written)) {
            file.settings.push_back(setting);
        }
    }
}

/// The value of a key of Primus's that stands above the overrides.
std::vector<std::string> words_of_key(const LaunchFile& file, std::string_view name) {
    std::vector<std::string> words;
    for (const Setting& setting : file.settings) {
        if (setting.name == name && !setting.values.empty() && setting.sections.size() == 2) {
            words.push_back(setting.values.front().text);
        }
    }
    return words;
}

}  // namespace

void add_primus_module(LaunchFile& file,
                       const ImportOptions& options,
                       const TakeBase& take,
                       const AddBase& add,
                       std::vector<std::string>& left_out) {
    constexpr std::string_view folder = "modules/megatron";
    LaunchFile module{.settings = {}, .models = words_of_key(file, "config")};
    const bool is_found = std::ranges::all_of(module.models, [&](const std::string& name) {
        return base_file(options.file, name, folder).has_value();
    });
    if (module.models.empty() || !is_found) {
        return;
    }
    add_bases(module, options, folder, take, add, left_out);
    add(file, module);
    std::erase_if(file.settings, [](const Setting& setting) {
        return setting.name == "config" && setting.sections.size() == 2 &&
               setting.sections.front() == "modules";
    });
}

LaunchFile primus_settings(const std::string& text,
                           const ImportOptions& options,
                           std::string_view framework,
                           std::vector<std::string>& left_out) {
    const auto take = [](const std::string& of, const std::string& place) {
        LaunchFile base = parse_yaml_settings(of, place);
        keep_settings(base);
        return base;
    };
    const std::string place = input_name(options.file);
    LaunchFile file = parse_yaml_settings(text, place);
    LaunchFile module{.settings = {}, .models = words_of_key(file, "config")};
    keep_settings(file);
    add_bases(file, options, fmt::format("models/{}", framework), take, add_by_written, left_out);
    // What all runs have that say nothing else.
    add_bases(
        module, options, fmt::format("modules/{}", framework), take, add_by_written, left_out);
    add_by_written(file, module);
    std::erase_if(file.settings, &Setting::is_unset);
    return file;
}

}  // namespace pipetwin::cli
