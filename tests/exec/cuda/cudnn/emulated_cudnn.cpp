#include "tests/exec/cuda/cudnn/fake_cudnn.h"
#include "tests/support/cuda_emulation/emulation.h"

/// In the place of cuDNN's library: the fake one, which has the emulated streams compute.
namespace pipetwin::cuda {

CudnnLoaded load_cudnn() {
    static const bool is_made = [] {
        test::FakeCudnn& cudnn = test::new_fake_cudnn();
        cudnn.computes = true;
        cudnn.submit = [](cudaStream_t stream, std::function<void()> work) {
            return emulation::submit(stream, std::move(work));
        };
        cudnn.workspace_bytes = 4096;
        return true;
    }();
    static_cast<void>(is_made);
    return {.functions = &test::fake_cudnn_functions(), .why_not = {}};
}

}  // namespace pipetwin::cuda

/// For a test that has loaded the module: calls of cuDNN so far.
extern "C" int pipetwin_emulated_cudnn_calls() {
    return pipetwin::cuda::test::fake_cudnn_calls();
}
