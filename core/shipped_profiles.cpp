#include "core/shipped_profiles.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/formats/device_json.h"
#include "core/formats/json_text.h"
#include "core/suggest.h"

namespace pipetwin {

namespace {

constexpr std::size_t largest_file = std::size_t{1} << 20;

std::string read(const std::filesystem::path& file) {
    return read_file(file, largest_file);
}

[[noreturn]] void refuse_name(std::string_view what,
                              std::string_view name,
                              const std::filesystem::path& place,
                              const std::vector<std::string>& known) {
    const auto longer = std::ranges::find_if(known, [name](const std::string& one) {
        return !name.empty() && one.starts_with(name);  // "h100" for "h100-sxm"
    });
    const std::vector<std::string_view> names(known.begin(), known.end());
    throw Error(ErrorKind::BadInput,
                place.string(),
                fmt::format("no {} '{}'; known: {}", what, name, fmt::join(known, ", ")),
                longer != known.end() ? fmt::format("did you mean '{}'?", *longer)
                                      : suggestion(name, names));
}

/// Names of the files of one kind in a folder of the profiles, in alphabetical order.
std::vector<std::string> names_in(std::string_view folder, std::string_view ending) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(profiles_folder() / folder, error)) {
        if (entry.path().extension() == ending) {
            names.push_back(entry.path().stem().string());
        }
    }
    std::ranges::sort(names);
    return names;
}

std::filesystem::path find_file(std::string_view what,
                                std::string_view name,
                                std::string_view folder,
                                std::string_view ending) {
    const std::vector<std::string> names = names_in(folder, ending);
    if (!std::ranges::binary_search(names, name)) {
        refuse_name(what, name, profiles_folder() / folder, names);
    }
    return profiles_folder() / folder / fmt::format("{}{}", name, ending);
}

}  // namespace

std::filesystem::path installed_profiles(const std::filesystem::path& program) {
    return (program.parent_path() / PIPETWIN_PROFILES_FROM_PROGRAM).lexically_normal();
}

std::filesystem::path profiles_folder() {
    if (const char* chosen = std::getenv("PIPETWIN_PROFILES")) {  // NOLINT(concurrency-mt-unsafe)
        return chosen;
    }
    std::error_code ignored;
    const std::filesystem::path installed =
        installed_profiles(std::filesystem::read_symlink("/proc/self/exe", ignored));
    return std::filesystem::is_directory(installed, ignored)
               ? installed
               : std::filesystem::path(PIPETWIN_SOURCE_PROFILES);
}

std::vector<std::string> device_names() {
    return names_in("devices", ".json");
}

std::vector<std::string> model_names() {
    return names_in("models", ".json");
}

std::filesystem::path find_model(std::string_view name) {
    return find_file("model", name, "models", ".json");
}

std::vector<std::string> cluster_names() {
    return names_in("clusters", ".toml");
}

std::filesystem::path find_cluster(std::string_view name) {
    return find_file("cluster", name, "clusters", ".toml");
}

DeviceProfile find_device(std::string_view name) {
    const std::filesystem::path file = find_file("device profile", name, "devices", ".json");
    DeviceProfile device = parse_device_profile(read(file), file.string());
    if (device.name != name) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("it names its device '{}', expected '{}'", device.name, name),
                    "a profile's name is that of its file");
    }
    return device;
}

std::vector<LinkProfile> all_links() {
    const std::filesystem::path file = profiles_folder() / "links.json";
    return parse_link_profiles(read(file), file.string());
}

LinkProfile find_link(std::string_view name) {
    const std::vector<LinkProfile> links = all_links();
    const auto found = std::ranges::find(links, name, &LinkProfile::name);
    if (found == links.end()) {
        std::vector<std::string> names;
        std::ranges::transform(links, std::back_inserter(names), &LinkProfile::name);
        refuse_name("link", name, profiles_folder() / "links.json", names);
    }
    return *found;
}

}  // namespace pipetwin
