// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/cudnn/fake_cudnn.h"
#include "tests/support/cuda_emulation/emulation.h"

/// In the place of cuDNN's library: the fake one, which has the emulated streams compute.
namespace pipetwin::cuda {
namespace {

test::FakeCudnn& the_cudnn() {
    static test::FakeCudnn& made = []() -> test::FakeCudnn& {
        test::FakeCudnn& cudnn = test::new_fake_cudnn();
        cudnn.computes = true;
        cudnn.submit = [](cudaStream_t stream, std::function<void()> work) {
            return emulation::submit(stream, std::move(work));
        };
        cudnn.workspace_bytes = 4096;
        return cudnn;
    }();
    return made;
}

}  // namespace

CudnnLoaded load_cudnn() {
    the_cudnn();
    return {.functions = &test::fake_cudnn_functions(), .why_not = {}};
}

}  // namespace pipetwin::cuda

/// For a test that has loaded the module: what plans work in from now on, and whether they can be
/// executed.
extern "C" void pipetwin_emulated_cudnn_set(std::int64_t workspace_bytes, bool refuses) {
    pipetwin::cuda::the_cudnn().workspace_bytes = workspace_bytes;
    pipetwin::cuda::the_cudnn().refuses = refuses;
}

/// For a test that has loaded the module: calls of cuDNN so far.
extern "C" int pipetwin_emulated_cudnn_calls() {
    return pipetwin::cuda::test::fake_cudnn_calls();
}
