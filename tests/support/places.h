// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// Where things lie, of which only tests/support/places.cpp is compiled for one checkout: what a
/// compiler cache has of all other tests, it has for every checkout.
namespace pipetwin::places {

std::string source_folder();
std::string program_folder();
std::string emulated_module_folder();
std::string emulated_module();  ///< the CUDA module on the emulation
std::string fake_module_folder();
std::string full_disk_library();        ///< tests/support/full_disk.cpp
std::string recorded_writes_library();  ///< tests/support/recorded_writes.cpp

}  // namespace pipetwin::places
