// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_folder.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr const char* download_again = "download the folder again, with all of its files";

/// Whether a name leads to nothing but what is beneath a folder, links left aside.
bool is_name_beneath(const std::filesystem::path& name) {
    return name.is_relative() && name.has_filename() && is_printable(name.native()) &&
           std::ranges::find(name, std::filesystem::path("..")) == name.end();
}

/// Whether a path that has no links lies beneath a folder that has none.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
    const auto [in_folder, in_path] = std::ranges::mismatch(folder, path);
    return in_folder == folder.end() && in_path != path.end();
}

bool is_there(const std::filesystem::path& file) {
    std::error_code ignored;
    return std::filesystem::exists(file, ignored);
}

/// What a user can do about a path that holds no weights that can be read.
std::string hint_without_weights(const std::filesystem::path& folder) {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("pytorch_model") || name.ends_with(".bin")) {
            return fmt::format(
                "'{}' is a pickle of PyTorch's: convert it with transformers, "
                "model.save_pretrained(FOLDER, safe_serialization=True)",
                name);
        }
        if (name.ends_with(".safetensors")) {
            return fmt::format("there is '{}': name it {}", name, hf_file::weights);
        }
    }
    return "name the folder that was downloaded from Hugging Face's hub, or that 'pipetwin export "
           "hf' wrote";
}

[[noreturn]] void refuse_folder(const std::filesystem::path& folder) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder, ignored)) {
        throw Error(ErrorKind::BadInput,
                    folder.string(),
                    fmt::format("a file, expected a folder with {}", hf_file::weights),
                    fmt::format("name its folder: {}",
                                folder.has_parent_path() ? folder.parent_path().string() : "."));
    }
    if (!std::filesystem::is_directory(folder, ignored)) {
        throw Error(ErrorKind::BadInput,
                    folder.string(),
                    fmt::format("no such folder, expected one with {}", hf_file::weights),
                    "check the name; a relative path starts at the current folder");
    }
    throw Error(ErrorKind::BadInput,
                folder.string(),
                fmt::format("neither {} nor {} is there", hf_file::weights, hf_file::index),
                hint_without_weights(folder));
}

}  // namespace

InputFile open_named_by_index(const std::filesystem::path& index,
                              const std::filesystem::path& file,
                              string_view hint) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::path target = fs::canonical(file, failed);
    if (failed) {
        return InputFile(file);  // says why it cannot be opened
    }
    const fs::path folder = fs::canonical(index.has_parent_path() ? index.parent_path() : ".");
    fs::path outer = folder;
    if (!is_inside(target, folder) && folder.parent_path().filename() == "snapshots") {
        outer = folder.parent_path().parent_path() / "blobs";
    }
    if (!is_inside(target, outer)) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("a link to {}, expected a file beneath the folder of {}",
                                target.string(),
                                index.string()),
                    std::string(hint));
    }
    return InputFile(outer, target.lexically_relative(outer));
}

std::map<std::string, std::vector<std::string>> read_hf_index(const std::filesystem::path& index,
                                                              string_view hint) {
    const std::string place = index.string();
    const nlohmann::json root = parse_json(read_file(index, JsonLimits{}.max_bytes), place);
    const JsonObject object(root, place, "");
    const JsonObject map = object.object("weight_map");
    std::map<std::string, std::vector<std::string>> tensors_of_file;
    for (const std::string& tensor : map.keys()) {
        tensors_of_file[map.text(tensor)].push_back(tensor);
    }
    for (const auto& [file, tensors] : tensors_of_file) {
        if (!is_name_beneath(file)) {
            map.refuse(tensors.front(),
                       "the name of a file beside the index or in a folder beside it, without "
                       "'..' and no absolute one",
                       std::string(hint));
        }
    }
    return tensors_of_file;
}

void refuse_index_entry(const std::filesystem::path& index, string_view tensor, string_view file) {
    throw Error(ErrorKind::BadInput,
                fmt::format("{}: /weight_map/{}", index.string(), tensor),
                fmt::format("\"{}\", expected a file that holds this tensor", file),
                "the index and the files are of two downloads: take both from one");
}

HfFolder::HfFolder(std::filesystem::path folder) : path_(std::move(folder)) {
    const std::filesystem::path whole = path_ / hf_file::weights;
    if (is_there(whole)) {
        add(std::string(hf_file::weights), InputFile(whole));
    } else if (is_there(path_ / hf_file::index)) {
        add_shards();
    } else {
        refuse_folder(path_);
    }
}

void HfFolder::add_shards() {
    const std::filesystem::path index = path_ / hf_file::index;
    const auto tensors_of_file = read_hf_index(index, download_again);
    std::vector<std::string> missing;
    for (const auto& [file, tensors] : tensors_of_file) {
        if (!is_there(path_ / file)) {
            missing.push_back(file);
        }
    }
    if (!missing.empty()) {
        throw Error(ErrorKind::BadInput,
                    index.string(),
                    fmt::format("it names {} that {} not there: {}",
                                counted(std::ssize(missing), "file"),
                                missing.size() == 1 ? "is" : "are",
                                fmt::join(missing, ", ")),
                    download_again);
    }
    for (const auto& [file, tensors] : tensors_of_file) {
        add(file, open_named_by_index(index, path_ / file, download_again));
    }
    for (const auto& [file, tensors] : tensors_of_file) {
        for (const std::string& tensor : tensors) {
            const auto found = tensors_.find(tensor);
            if (found == tensors_.end() || file_of(found->second) != file) {
                refuse_index_entry(index, tensor, file);
            }
        }
    }
}

void HfFolder::add(const std::string& name, InputFile file) {
    const std::string place = (path_ / name).string();
    auto kept = std::make_unique<InputFile>(std::move(file));
    SafetensorsHeader header = read_safetensors_header(*kept, place);
    for (SafetensorsEntry& entry : header.tensors) {
        const std::string tensor = entry.name;
        const auto [other, is_new] =
            tensors_.emplace(tensor, Tensor{.entry = std::move(entry), .file = files_.size()});
        if (!is_new) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}: tensor '{}'", place, tensor),
                        fmt::format("{} contains it, too", file_of(other->second)),
                        download_again);
        }
    }
    names_.push_back(name);
    data_begins_.push_back(header.data_begin);
    files_.push_back(std::move(kept));
}

void HfFolder::read(const Tensor& tensor, std::int64_t begin, std::span<std::byte> bytes) const {
    InputFile& file = *files_[tensor.file];
    file.go_to(as_index(data_begins_[tensor.file] + tensor.entry.begin + begin));
    const std::span<char> chars(reinterpret_cast<char*>(bytes.data()), bytes.size());
    for (std::size_t done = 0; done < chars.size();) {
        const std::size_t more = file.read(chars.subspan(done));
        if (more == 0) {
            throw Error(
                ErrorKind::BadInput,
                fmt::format(
                    "{}: tensor '{}'", (path_ / names_[tensor.file]).string(), tensor.entry.name),
                "the file became shorter while it was read",
                "wait until the program that writes it has ended");
        }
        done += more;
    }
}

std::optional<std::string> HfFolder::config() const {
    const std::filesystem::path file = path_ / hf_file::config;
    if (!is_there(file)) {
        return std::nullopt;
    }
    return read_file(file, JsonLimits{}.max_bytes);
}

}  // namespace pipetwin
