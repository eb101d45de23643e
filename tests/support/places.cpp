// SPDX-License-Identifier: Apache-2.0
#include "tests/support/places.h"

namespace pipetwin::places {

std::string source_folder() {
    return PIPETWIN_SOURCE_DIR;
}
std::string program_folder() {
    return PIPETWIN_PROGRAM_DIR;
}
std::string emulated_module_folder() {
    return PIPETWIN_TESTS_DIR "/exec/cuda/emulated_module";
}
std::string emulated_module() {
    return emulated_module_folder() + "/pipetwin_cuda.so";
}
std::string fake_module_folder() {
    return PIPETWIN_TESTS_DIR "/exec/fake_module";
}
std::string full_disk_library() {
    return PIPETWIN_TESTS_DIR "/full_disk.so";
}
std::string recorded_writes_library() {
    return PIPETWIN_TESTS_DIR "/recorded_writes.so";
}

}  // namespace pipetwin::places
