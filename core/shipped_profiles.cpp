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
    const std::vector<std::string_view> names(known.begin(), known.end());
    throw Error(ErrorKind::BadInput,
                place.string(),
                fmt::format("no {} '{}'; known: {}", what, name, fmt::join(known, ", ")),
                suggestion(name, names));
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
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(profiles_folder() / "devices", error)) {
        if (entry.path().extension() == ".json") {
            names.push_back(entry.path().stem().string());
        }
    }
    std::ranges::sort(names);
    return names;
}

DeviceProfile find_device(std::string_view name) {
    const std::filesystem::path folder = profiles_folder() / "devices";
    const std::vector<std::string> names = device_names();
    if (!std::ranges::binary_search(names, name)) {
        refuse_name("device profile", name, folder, names);
    }
    const std::filesystem::path file = folder / fmt::format("{}.json", name);
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
