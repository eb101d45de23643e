// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// What a disk may hold after a cut of the power, from a record of the calls that changed it
/// (tests/support/recorded_writes.cpp). A file system promises no more than this: names that were
/// changed in a folder are on the disk once the folder was flushed, the bytes of a file once the
/// file was. What was not flushed may be there or not.
namespace pipetwin::tests {

/// A call that changed a folder.
struct DiskCall {
    std::string name;                ///< "write"
    std::vector<std::string> words;  ///< its paths, then numbers
    std::string bytes;
};

/// Reads a record. Throws std::runtime_error where it is none.
std::vector<DiskCall> recorded_calls(const std::filesystem::path& record);

/// Which of the changes of names that were not flushed are on the disk.
enum class Names { Kept, Lost, Prefix };  ///< Prefix: the first half of them
/// What became of the bytes that were not flushed.
enum class Data { Kept, Zero, Short };  ///< Short: a file ends where its flushed bytes do

/// Names and bytes of all files beneath a folder; a folder's bytes are empty and its name ends in
/// '/'.
using Tree = std::map<std::string, std::string>;

Tree tree_of(const std::filesystem::path& folder);
/// Makes an empty or missing folder the tree.
void write_tree(const Tree& tree, const std::filesystem::path& folder);

/// A disk to which calls happen one by one.
class RecordedDisk {
  public:
    /// `begin`: what lay in the folder before the first call, all of it on the disk.
    RecordedDisk(std::filesystem::path folder, const Tree& begin);

    void happen(const DiskCall& call);
    /// What the disk holds if the power is cut now.
    Tree after_cut(Names names, Data data) const;

  private:
    struct Node {
        bool is_folder = false;
        std::string bytes{};
        std::string flushed{};  ///< the bytes when the file was flushed last
    };
    /// A name that came or went: `node` leaves `from`, if that is a folder, and gets `to`.
    struct Change {
        int node;
        int from_folder = -1;
        std::string from{};
        int to_folder = -1;
        std::string to{};
        bool is_flushed = false;
    };
    using Entries = std::map<int, std::map<std::string, int>>;

    int find(const std::string& path) const;
    int add_node(bool is_folder);
    std::pair<int, std::string> place_of(const std::string& path) const;
    void change(Change change);
    static void apply(const Change& change, Entries& entries);
    void add_to(
        Tree& tree, const Entries& entries, int node, const std::string& path, Data data) const;

    std::filesystem::path folder_;
    std::vector<Node> nodes_;
    std::vector<Change> changes_;
    Entries now_;
};

}  // namespace pipetwin::tests
