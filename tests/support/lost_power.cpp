// SPDX-License-Identifier: Apache-2.0
#include "tests/support/lost_power.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace pipetwin::tests {

namespace fs = std::filesystem;

namespace {

constexpr int root = 0;

std::string bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> words;
    std::istringstream in(line);
    for (std::string word; std::getline(in, word, '\t');) {
        words.push_back(word);
    }
    return words;
}

}  // namespace

std::vector<DiskCall> recorded_calls(const fs::path& record) {
    const std::string text = bytes_of(record);
    std::vector<DiskCall> calls;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos) {
            throw std::runtime_error("the record ends within a line");
        }
        std::vector<std::string> words = split(text.substr(at, end - at));
        const std::size_t size = std::stoul(words.back());
        DiskCall call{.name = words.front(),
                      .words = {words.begin() + 1, words.end() - 1},
                      .bytes = text.substr(end + 1, size)};
        at = end + 1 + size;
        calls.push_back(std::move(call));
    }
    return calls;
}

Tree tree_of(const fs::path& folder) {
    Tree tree;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = entry.path().lexically_relative(folder).string();
        if (entry.is_directory()) {
            tree[name + '/'] = "";
        } else {
            tree[name] = bytes_of(entry.path());
        }
    }
    return tree;
}

void write_tree(const Tree& tree, const fs::path& folder) {
    fs::create_directories(folder);
    for (const auto& [name, bytes] : tree) {  // a folder comes before what is in it
        if (name.back() == '/') {
            fs::create_directories(folder / name);
        } else {
            std::ofstream(folder / name, std::ios::binary) << bytes;
        }
    }
}

RecordedDisk::RecordedDisk(fs::path folder, const Tree& begin) : folder_(std::move(folder)) {
    add_node(true);
    for (const auto& [name, bytes] : begin) {
        const bool is_folder = name.back() == '/';
        const auto [parent, last] =
            place_of((folder_ / (is_folder ? name.substr(0, name.size() - 1) : name)).string());
        const int node = add_node(is_folder);
        nodes_.at(static_cast<std::size_t>(node)).bytes = bytes;
        nodes_.at(static_cast<std::size_t>(node)).flushed = bytes;
        change({.node = node, .to_folder = parent, .to = last, .is_flushed = true});
    }
}

int RecordedDisk::add_node(bool is_folder) {
    nodes_.push_back({.is_folder = is_folder});
    return static_cast<int>(nodes_.size()) - 1;
}

/// -1 where nothing has the path.
int RecordedDisk::find(const std::string& path) const {
    int node = root;
    for (const fs::path& part : fs::path(path).lexically_relative(folder_)) {
        if (part == ".") {
            continue;
        }
        const auto entries = now_.find(node);
        if (entries == now_.end() || !entries->second.contains(part.string())) {
            return -1;
        }
        node = entries->second.at(part.string());
    }
    return node;
}

std::pair<int, std::string> RecordedDisk::place_of(const std::string& path) const {
    const int parent = find(fs::path(path).parent_path().string());
    if (parent < 0) {
        throw std::runtime_error(path + ": its folder was not recorded");
    }
    return {parent, fs::path(path).filename().string()};
}

void RecordedDisk::apply(const Change& change, Entries& entries) {
    if (change.from_folder >= 0) {
        std::map<std::string, int>& names = entries[change.from_folder];
        if (const auto found = names.find(change.from);
            found != names.end() && found->second == change.node) {
            names.erase(found);
        }
    }
    if (change.to_folder >= 0) {
        entries[change.to_folder][change.to] = change.node;
    }
}

void RecordedDisk::change(Change change) {
    apply(change, now_);
    changes_.push_back(std::move(change));
}

void RecordedDisk::happen(const DiskCall& call) {
    const std::string& path = call.words.front();
    if (call.name == "create" || call.name == "mkdir") {
        const auto [parent, name] = place_of(path);
        change({.node = add_node(call.name == "mkdir"), .to_folder = parent, .to = name});
        return;
    }
    const int node = find(path);
    if (node < 0) {
        return;  // a file that has no name any more
    }
    Node& changed = nodes_.at(static_cast<std::size_t>(node));
    if (call.name == "write") {
        const std::size_t offset = std::stoul(call.words.at(1));
        changed.bytes.resize(std::max(changed.bytes.size(), offset + call.bytes.size()));
        changed.bytes.replace(offset, call.bytes.size(), call.bytes);
    } else if (call.name == "truncate") {
        changed.bytes.resize(std::stoul(call.words.at(1)));
    } else if (call.name == "sync" && changed.is_folder) {
        for (Change& one : changes_) {
            one.is_flushed = one.is_flushed || one.to_folder == node ||
                             (one.to_folder < 0 && one.from_folder == node);
        }
    } else if (call.name == "sync") {
        changed.flushed = changed.bytes;
    } else if (call.name == "rename") {
        const auto [from_folder, from] = place_of(path);
        const auto [to_folder, to] = place_of(call.words.at(1));
        change({.node = node,
                .from_folder = from_folder,
                .from = from,
                .to_folder = to_folder,
                .to = to});
    } else if (call.name == "remove") {
        const auto [parent, name] = place_of(path);
        change({.node = node, .from_folder = parent, .from = name});
    } else {
        throw std::runtime_error(call.name + ": a call that is not known");
    }
}

Tree RecordedDisk::after_cut(Names names, Data data) const {
    const auto open = std::ranges::count(changes_, false, &Change::is_flushed);
    auto kept = names == Names::Kept ? open : names == Names::Lost ? 0 : open / 2;
    Entries entries;
    for (const Change& change : changes_) {
        if (change.is_flushed || kept-- > 0) {
            apply(change, entries);
        }
    }
    Tree tree;
    add_to(tree, entries, root, "", data);
    return tree;
}

void RecordedDisk::add_to(
    Tree& tree, const Entries& entries, int node, const std::string& path, Data data) const {
    const auto found = entries.find(node);
    if (found == entries.end()) {
        return;
    }
    for (const auto& [name, child] : found->second) {
        const Node& it = nodes_.at(static_cast<std::size_t>(child));
        if (it.is_folder) {
            tree[path + name + '/'] = "";
            add_to(tree, entries, child, path + name + '/', data);
            continue;
        }
        std::string bytes = data == Data::Kept ? it.bytes : it.flushed;
        if (data == Data::Zero) {
            bytes.resize(std::max(it.bytes.size(), bytes.size()));
        }
        tree[path + name] = std::move(bytes);
    }
}

}  // namespace pipetwin::tests
