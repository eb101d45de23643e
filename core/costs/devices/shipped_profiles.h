// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/evidence.h"
#include "core/costs/devices/stack.h"

/// The profiles of devices and links that come with the program, found by name.
namespace pipetwin {

/// The folder of the environment variable PIPETWIN_PROFILES; else the one that was installed with
/// this program or library; else that of the source tree which it was built from.
std::filesystem::path profiles_folder();

/// The folder of the profiles in an installation that holds `program`: share/pipetwin/profiles
/// beside its bin.
std::filesystem::path installed_profiles(const std::filesystem::path& program);

/// Names of devices/*.json in that folder, in alphabetical order.
std::vector<std::string> device_names();

/// The device profile of this name. Throws Error(BadInput) with the names known if there is no such
/// file, at the place `asked_by` ("--device"; empty: the folder), or as `parse_device_profile`.
DeviceProfile find_device(std::string_view name, std::string_view asked_by = {});

/// The device profile of this name as `find_device` finds it, without a copy: a plan search asks
/// thousands of times.
std::shared_ptr<const DeviceProfile> shared_device(std::string_view name,
                                                   std::string_view asked_by = {});

/// Names of models/*.json in that folder: Hugging Face's config.json of published models.
std::vector<std::string> model_names();

/// The file of the model of this name. Throws Error(BadInput) with the names known if there is
/// none, at the place `asked_by` ("plan"; empty: the folder).
std::filesystem::path find_model(std::string_view name, std::string_view asked_by = {});

/// Names of clusters/*.toml in that folder, without this machine's: its device has no profile.
std::vector<std::string> cluster_names();

/// The file of the cluster of this name. Throws Error(BadInput) if there is none: at the place
/// `asked_by` ("--cluster") with `cluster_names`, or, if that is empty, at the folder with the
/// names of all files.
std::filesystem::path find_cluster(std::string_view name, std::string_view asked_by = {});

/// What to do about a model without nodes: name the kind of node (--cluster), out of
/// `cluster_names`.
std::string cluster_hint();

/// Names of stacks/*.toml in that folder, in alphabetical order.
std::vector<std::string> stack_names();

/// Whether a word is the path of a stack's file, and no name: it has a '/', or ends in ".toml".
bool is_stack_file(std::string_view word);

/// The stack of this name, or of this path, read once. That of a path has its absolute path as its
/// name, by which it is found again. Throws Error(BadInput) if there is none, with the names known,
/// at the place `asked_by` ("--stack"; empty: the folder), or as `parse_stack`.
std::shared_ptr<const Stack> find_stack(std::string_view name, std::string_view asked_by = {});

/// The text of a stack's file, and where it is.
struct StackFile {
    std::filesystem::path file;
    std::string text;
};

/// The file of a stack, by its name or path. Throws as `find_stack`.
StackFile read_stack_file(std::string_view name, std::string_view asked_by = {});

/// Published runs beside estimates with the stacks, read once. Throws as `parse_evidence`.
std::shared_ptr<const Evidence> shipped_evidence();

/// All classes of links in links.json, in its order.
std::vector<LinkProfile> all_links();

/// The class of links of this name. Throws Error(BadInput) with the names known if there is none.
LinkProfile find_link(std::string_view name);

}  // namespace pipetwin
