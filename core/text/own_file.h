// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

/// Files that belong to this program, as those of a run folder do. Whatever has their name, nothing
/// outside of their folder is written.
namespace pipetwin {

/// Whether the bytes of a file are on the disk before the file gets its name. Without it a cut of
/// the power can leave a file of that name that is empty, or full of zeros.
enum class Flush { No, Yes };

/// Writes beside the file and renames: a reader sees the old or the new content, and a link, a FIFO
/// or a device of that name is replaced, while what it led to stays as it was. Throws Error(Io).
void replace_file(const std::filesystem::path& file,
                  std::string_view content,
                  Flush flush = Flush::No);

/// Opens a file for reading and writing, and creates it if it is missing; the caller closes the
/// result. Never waits. Throws Error(Io), also for a link, for a file that has another name, too,
/// and for what is no regular file.
int open_own_file(const std::filesystem::path& file);

/// Whether a path is a regular file that has no other name, and no link; true where nothing has it.
bool is_own_file(const std::filesystem::path& file);

/// Refuses a folder that is a link. One that is not there is none. Throws Error(Io).
void expect_own_folder(const std::filesystem::path& folder);

}  // namespace pipetwin
