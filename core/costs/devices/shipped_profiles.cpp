// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/shipped_profiles.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/costs/devices/device_json.h"
#include "core/costs/devices/near_name.h"
#include "core/costs/devices/stack_toml.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

constexpr std::size_t largest_file = std::size_t{1} << 20;

std::string read(const std::filesystem::path& file) {
    return read_file(file, largest_file);
}

[[noreturn]] void refuse_name(std::string_view what,
                              std::string_view name,
                              const std::string& place,
                              const std::vector<std::string>& known,
                              std::string_view near,
                              std::string_view otherwise) {
    throw Error(ErrorKind::BadInput,
                place,
                fmt::format("no {} '{}'; known: {}", what, name, fmt::join(known, ", ")),
                near.empty() ? Hint(std::string(otherwise)) : did_you_mean(near));
}

constexpr std::string_view say_more = "name one of these; 'pipetwin devices' says more about them";

/// A kind of files in a folder of the profiles.
struct Shelf {
    std::string_view what;
    std::string_view folder;
    std::string_view ending;
    std::string_view (*near)(std::string_view, std::span<const std::string>) = nullptr;
    std::string_view otherwise;      ///< what to do where no known name is near
    std::string_view unlisted = {};  ///< a name that is found, but not told
};

constexpr Shelf devices{.what = "device profile",
                        .folder = "devices",
                        .ending = ".json",
                        .near = &near_hardware,
                        .otherwise = say_more};
constexpr Shelf clusters{.what = "cluster",
                         .folder = "clusters",
                         .ending = ".toml",
                         .near = &near_hardware,
                         .otherwise =
                             "name one of these, or a file of your own, FILE.toml, with the line "
                             "[cluster] and lines such as device = \"h100-sxm\", count = 8, "
                             "per_node = 8, link = \"nvlink-4\", node_link = \"infiniband-ndr\""};
constexpr Shelf clusters_of_known_devices{.what = clusters.what,
                                          .folder = clusters.folder,
                                          .ending = clusters.ending,
                                          .near = clusters.near,
                                          .otherwise = clusters.otherwise,
                                          .unlisted = this_machine};
constexpr Shelf models{.what = "model",
                       .folder = "models",
                       .ending = ".json",
                       .near = &near_model,
                       .otherwise = "name one of these, or the model's own config.json"};

std::string_view near_stack(std::string_view name, std::span<const std::string> known) {
    const std::vector<std::string_view> words(known.begin(), known.end());
    return nearest_word(name, words);
}

constexpr Shelf stacks{.what = "stack",
                       .folder = "stacks",
                       .ending = ".toml",
                       .near = &near_stack,
                       .otherwise = say_more};

/// Names of the files of a kind, in alphabetical order.
std::vector<std::string> names_in(const Shelf& shelf) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(profiles_folder() / shelf.folder, error)) {
        if (entry.path().extension() == shelf.ending && entry.path().stem() != shelf.unlisted) {
            names.push_back(entry.path().stem().string());
        }
    }
    std::ranges::sort(names);
    return names;
}

std::filesystem::path find_file(const Shelf& shelf,
                                std::string_view name,
                                std::string_view asked_by = {}) {
    const std::filesystem::path place = profiles_folder() / shelf.folder;
    const bool is_name = !name.empty() && name.find('/') == std::string_view::npos;
    std::filesystem::path file = place / fmt::format("{}{}", name, shelf.ending);
    std::error_code ignored;
    if (!is_name || !std::filesystem::exists(file, ignored)) {
        const std::vector<std::string> known = names_in(shelf);
        if (known.empty()) {
            throw Error(
                ErrorKind::BadInput,
                place.string(),
                fmt::format(
                    "no {} is here, expected files such as NAME{}", shelf.what, shelf.ending),
                std::getenv("PIPETWIN_PROFILES") != nullptr  // NOLINT(concurrency-mt-unsafe)
                    ? "unset PIPETWIN_PROFILES, or set it to the folder 'profiles' of "
                      "pipetwin"
                    : "set PIPETWIN_PROFILES to the folder 'profiles' of pipetwin");
        }
        refuse_name(shelf.what,
                    name,
                    asked_by.empty() || known.empty() ? place.string() : std::string(asked_by),
                    known,
                    shelf.near(name, known),
                    shelf.otherwise);
    }
    return file;
}

/// Cache of the contents of files: each is read when it is asked for first, and again when it has
/// changed. A plan search asks thousands of times; every thread has its own.
template <class Value>
class KnownFiles {
  public:
    template <class Read>
    const Value& get(const std::filesystem::path& file, const Read& read_file) {
        const auto known = files_.find(file.string());
        if (known != files_.end() && known->second.first == changed_at(file)) {
            return known->second.second;
        }
        return files_.insert_or_assign(file.string(), std::pair(changed_at(file), read_file(file)))
            .first->second.second;
    }

    /// The file of a shelf that has this name. Throws Error(BadInput) if none has.
    template <class Read>
    const Value& named(const Shelf& shelf,
                       std::string_view name,
                       std::string_view asked_by,
                       const Read& read_file) {
        const std::filesystem::path place = profiles_folder();
        const auto found = named_.find(name);
        if (found != named_.end() && found->second.place == place) {
            const auto known = files_.find(found->second.file.string());
            if (known != files_.end() && known->second.first == changed_at(found->second.file)) {
                return known->second.second;
            }
        }
        std::filesystem::path file = find_file(shelf, name, asked_by);
        const Value& value = get(file, read_file);
        named_.insert_or_assign(std::string(name), Named{place, std::move(file)});
        return value;
    }

  private:
    struct Named {
        std::filesystem::path place;  ///< the folder of all profiles
        std::filesystem::path file;
    };

    static std::filesystem::file_time_type changed_at(const std::filesystem::path& file) {
        std::error_code ignored;
        return std::filesystem::last_write_time(file, ignored);
    }

    std::map<std::string, std::pair<std::filesystem::file_time_type, Value>> files_;
    std::map<std::string, Named, std::less<>> named_;
};

/// Throws Error(BadInput) where a file's value has another name than the file.
void expect_name_of_file(std::string_view what,
                         const std::string& name,
                         const std::filesystem::path& file) {
    if (name != file.stem()) {
        throw Error(
            ErrorKind::BadInput,
            file.string(),
            fmt::format("it names its {} '{}', expected '{}'", what, name, file.stem().string()),
            "a profile's name is that of its file");
    }
}

/// The program or the shared library that this code is part of.
std::filesystem::path own_object() {
    static const char here = 0;
    Dl_info about{};
    link_map* object = nullptr;
    const bool is_library =
        dladdr1(&here, &about, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) != 0 &&
        object != nullptr && object->l_name[0] != '\0';
    std::error_code ignored;
    return is_library ? std::filesystem::absolute(object->l_name, ignored)
                      : std::filesystem::read_symlink("/proc/self/exe", ignored);
}

DeviceProfile read_device(const std::filesystem::path& file) {
    DeviceProfile device = parse_device_profile(read(file), file.string());
    expect_name_of_file("device", device.name, file);
    return device;
}

}  // namespace

std::filesystem::path installed_profiles(const std::filesystem::path& program) {
    return (program.parent_path() / PIPETWIN_PROFILES_FROM_PROGRAM).lexically_normal();
}

std::filesystem::path profiles_folder() {
    if (const char* chosen = std::getenv("PIPETWIN_PROFILES")) {  // NOLINT(concurrency-mt-unsafe)
        return chosen;
    }
    // A program stays where it is; a plan search asks thousands of times.
    static const std::filesystem::path folder = [] {
        std::error_code ignored;
        const std::filesystem::path here = own_object();
        for (std::filesystem::path installed :
             {installed_profiles(here),
              (here.parent_path() / PIPETWIN_PROFILES_FROM_LIBRARY).lexically_normal()}) {
            if (std::filesystem::is_directory(installed, ignored)) {
                return installed;
            }
        }
        return std::filesystem::path(PIPETWIN_SOURCE_PROFILES);
    }();
    return folder;
}

std::vector<std::string> device_names() {
    return names_in(devices);
}

std::vector<std::string> model_names() {
    return names_in(models);
}

std::filesystem::path find_model(std::string_view name, std::string_view asked_by) {
    return find_file(models, name, asked_by);
}

std::vector<std::string> cluster_names() {
    return names_in(clusters_of_known_devices);
}

std::filesystem::path find_cluster(std::string_view name, std::string_view asked_by) {
    return find_file(asked_by.empty() ? clusters : clusters_of_known_devices, name, asked_by);
}

std::string cluster_hint() {
    const std::vector<std::string> known = cluster_names();
    return known.empty() ? "name the kind of node to plan for: --cluster FILE.toml"
                         : fmt::format(
                               "name the kind of node to plan for, as in --cluster {}; "
                               "known: {}",
                               known.front(),
                               fmt::join(known, ", "));
}

std::shared_ptr<const DeviceProfile> shared_device(std::string_view name,
                                                   std::string_view asked_by) {
    thread_local KnownFiles<std::shared_ptr<const DeviceProfile>> known;
    return known.named(devices, name, asked_by, [](const std::filesystem::path& file) {
        return std::make_shared<const DeviceProfile>(read_device(file));
    });
}

DeviceProfile find_device(std::string_view name, std::string_view asked_by) {
    return *shared_device(name, asked_by);
}

std::vector<std::string> stack_names() {
    return names_in(stacks);
}

bool is_stack_file(std::string_view word) {
    return word.find('/') != std::string_view::npos || word.ends_with(stacks.ending);
}

namespace {

/// Throws Error(BadInput) where no file is at the path of a stack.
std::filesystem::path stack_file(std::string_view path, std::string_view asked_by) {
    std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) {
        return file;
    }
    const std::vector<std::string> known = stack_names();
    const std::string name = file.stem().string();
    throw Error(
        ErrorKind::BadInput,
        std::string(asked_by),
        fmt::format("no stack's file is at {}", file.string()),
        std::ranges::count(known, name) > 0
            ? did_you_mean(name)
            : Hint(fmt::format("name the file where it is, or one of {}", fmt::join(known, ", "))));
}

std::shared_ptr<const Stack> stack_of_file(const std::filesystem::path& file) {
    thread_local KnownFiles<std::shared_ptr<const Stack>> known;
    return known.get(file, [](const std::filesystem::path& at) {
        auto stack = std::make_shared<Stack>(parse_stack(read(at), at.string()));
        stack->name = at.string();
        return std::shared_ptr<const Stack>(std::move(stack));
    });
}

}  // namespace

std::shared_ptr<const Stack> find_stack(std::string_view name, std::string_view asked_by) {
    if (is_stack_file(name)) {
        return stack_of_file(stack_file(name, asked_by));
    }
    thread_local KnownFiles<std::shared_ptr<const Stack>> known;
    return known.named(stacks, name, asked_by, [](const std::filesystem::path& file) {
        auto stack = std::make_shared<const Stack>(parse_stack(read(file), file.string()));
        expect_name_of_file("stack", stack->name, file);
        return stack;
    });
}

StackFile read_stack_file(std::string_view name, std::string_view asked_by) {
    const std::filesystem::path file =
        is_stack_file(name) ? stack_file(name, asked_by) : find_file(stacks, name, asked_by);
    return {.file = file, .text = read(file)};
}

std::shared_ptr<const Evidence> shipped_evidence() {
    thread_local KnownFiles<std::shared_ptr<const Evidence>> known;
    return known.get(
        profiles_folder() / stacks.folder / "evidence.json", [](const std::filesystem::path& file) {
            return std::make_shared<const Evidence>(parse_evidence(read(file), file.string()));
        });
}

namespace {

const std::vector<LinkProfile>& known_links() {
    thread_local KnownFiles<std::vector<LinkProfile>> known;
    return known.get(profiles_folder() / "links.json", [](const std::filesystem::path& file) {
        return parse_link_profiles(read(file), file.string());
    });
}

}  // namespace

std::vector<LinkProfile> all_links() {
    return known_links();
}

LinkProfile find_link(std::string_view name) {
    const std::vector<LinkProfile>& links = known_links();
    const auto found = std::ranges::find(links, name, &LinkProfile::name);
    if (found == links.end()) {
        std::vector<std::string> names;
        std::ranges::transform(links, std::back_inserter(names), &LinkProfile::name);
        refuse_name("link",
                    name,
                    (profiles_folder() / "links.json").string(),
                    names,
                    near_hardware(name, names),
                    say_more);
    }
    return *found;
}

}  // namespace pipetwin
