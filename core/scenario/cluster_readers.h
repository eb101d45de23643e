// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "core/scenario/scenario_key.h"

/// Readers and printers of those keys of [cluster] that are more than a member. For the rows of
/// [cluster] (core/scenario/scenario_cluster.cpp) alone. Readers throw Error(BadInput) with the
/// place in the file.
namespace pipetwin {

using KeyReader = std::remove_pointer_t<ScenarioKey::Read>;
using KeyPrinter = std::remove_pointer_t<ScenarioKey::Print>;

KeyReader read_device;
KeyPrinter print_device;
KeyReader read_rank_devices;
KeyPrinter print_rank_devices;
KeyReader read_speeds;
KeyPrinter print_speeds;
KeyReader read_placement;
KeyPrinter print_placement;
KeyReader read_stack;
KeyPrinter print_stack;
KeyReader read_memory_limit;
KeyPrinter print_memory_limit;
KeyReader read_interference;
KeyPrinter print_interference;
KeyReader read_link_sharing;
KeyPrinter print_link_sharing;
KeyReader read_shared_links;
KeyPrinter print_shared_links;
KeyReader read_gpu_shares;
KeyPrinter print_gpu_shares;
KeyReader read_communicator;
KeyPrinter print_communicator;
KeyReader read_host_memory;
KeyPrinter print_host_memory;

/// The class of links that the key names; empty where it is not written.
std::string read_link_name(const TomlTable& table, std::string_view key);

}  // namespace pipetwin
