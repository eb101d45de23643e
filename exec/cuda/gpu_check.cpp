#include <cstdio>
#include <string>

#include "exec/cuda_module.h"

/// Probes CUDA through the module, exactly as the program does, and runs the self-test on every
/// device. One line per fact on stdout. Exit code 0: all checks passed; 1: one failed; 5: there is
/// no usable device. Built by scripts/gpu-check from the toolkit and the standard library alone.
int main() {
    using pipetwin::exec::CudaCheck;
    using pipetwin::exec::CudaDevice;
    using pipetwin::exec::CudaState;

    const pipetwin::exec::CudaProbe probe = pipetwin::exec::probe_cuda();
    std::printf("versions: %s\n", probe.versions.empty() ? "-" : probe.versions.c_str());
    if (probe.state != CudaState::Available) {
        std::printf("unavailable: %s\n", probe.detail.c_str());
        return 5;
    }
    bool passed = true;
    for (std::size_t index = 0; index < probe.devices.size(); ++index) {
        const CudaDevice& device = probe.devices[index];
        std::printf("device %zu: %s, compute capability %d.%d, %d multiprocessors, %lld bytes\n",
                    index,
                    device.name.c_str(),
                    device.compute_capability / 10,
                    device.compute_capability % 10,
                    device.multiprocessors,
                    static_cast<long long>(device.memory_bytes));
        for (const CudaCheck& check : pipetwin::exec::self_test_cuda(static_cast<int>(index))) {
            std::printf("%s: %s: %s\n",
                        check.passed ? "passed" : "FAILED",
                        check.name.c_str(),
                        check.detail.c_str());
            passed = passed && check.passed;
        }
    }
    return passed ? 0 : 1;
}
