// SPDX-License-Identifier: Apache-2.0

/// In the place of libcuda.so.1, for the test that has cuDNN make plans for GPUs that are not
/// there: it loads what is compiled, and knows no device. cuDNN looks its functions up by name; one
/// that is missing would make it think that there is no driver.
namespace {

constexpr int success = 0;
constexpr int stand_in = 34;  // CUDA_ERROR_STUB_LIBRARY, as the toolkit's own stand-in says

int something = 0;  // what a handle points to

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the driver's names
extern "C" {

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return success;
}

#define PIPETWIN_LOADS(name) \
    int name(void** made) {  \
        *made = &something;  \
        return success;      \
    }
PIPETWIN_LOADS(cuLibraryLoadData)
PIPETWIN_LOADS(cuLibraryGetKernel)
PIPETWIN_LOADS(cuModuleLoadData)
PIPETWIN_LOADS(cuModuleLoadDataEx)
PIPETWIN_LOADS(cuModuleLoadFatBinary)
PIPETWIN_LOADS(cuModuleGetFunction)

#define PIPETWIN_FINDS_ZERO(name) \
    int name(int* value) {        \
        *value = 0;               \
        return success;           \
    }
PIPETWIN_FINDS_ZERO(cuFuncGetAttribute)
PIPETWIN_FINDS_ZERO(cuKernelGetAttribute)

#define PIPETWIN_ANSWERS(name, answer) \
    int name() {                       \
        return answer;                 \
    }
PIPETWIN_ANSWERS(cuFuncSetAttribute, success)
PIPETWIN_ANSWERS(cuKernelSetAttribute, success)
PIPETWIN_ANSWERS(cuLibraryUnload, success)
PIPETWIN_ANSWERS(cuModuleUnload, success)
PIPETWIN_ANSWERS(cuCtxGetCurrent, stand_in)
PIPETWIN_ANSWERS(cuCtxGetDevice, stand_in)
PIPETWIN_ANSWERS(cuCtxGetLimit, stand_in)
PIPETWIN_ANSWERS(cuCtxPopCurrent, stand_in)
PIPETWIN_ANSWERS(cuCtxPushCurrent, stand_in)
PIPETWIN_ANSWERS(cuDeviceGet, stand_in)
PIPETWIN_ANSWERS(cuDeviceGetAttribute, stand_in)
PIPETWIN_ANSWERS(cuDeviceGetCount, stand_in)
PIPETWIN_ANSWERS(cuDevicePrimaryCtxRelease, stand_in)
PIPETWIN_ANSWERS(cuDevicePrimaryCtxReset, stand_in)
PIPETWIN_ANSWERS(cuDevicePrimaryCtxRetain, stand_in)
PIPETWIN_ANSWERS(cuGetErrorName, stand_in)
PIPETWIN_ANSWERS(cuGetErrorString, stand_in)
PIPETWIN_ANSWERS(cuInit, stand_in)
PIPETWIN_ANSWERS(cuLaunchCooperativeKernel, stand_in)
PIPETWIN_ANSWERS(cuLaunchKernel, stand_in)
PIPETWIN_ANSWERS(cuLaunchKernelEx, stand_in)
PIPETWIN_ANSWERS(cuLibraryLoadFromFile, stand_in)
PIPETWIN_ANSWERS(cuLinkAddData, stand_in)
PIPETWIN_ANSWERS(cuLinkAddData_v2, stand_in)
PIPETWIN_ANSWERS(cuLinkAddFile_v2, stand_in)
PIPETWIN_ANSWERS(cuLinkComplete, stand_in)
PIPETWIN_ANSWERS(cuLinkCreate, stand_in)
PIPETWIN_ANSWERS(cuLinkCreate_v2, stand_in)
PIPETWIN_ANSWERS(cuLinkDestroy, stand_in)
PIPETWIN_ANSWERS(cuMemcpyDtoH_v2, stand_in)
PIPETWIN_ANSWERS(cuModuleGetGlobal_v2, stand_in)
PIPETWIN_ANSWERS(cuOccupancyMaxActiveBlocksPerMultiprocessor, stand_in)
PIPETWIN_ANSWERS(cuOccupancyMaxPotentialClusterSize, stand_in)
PIPETWIN_ANSWERS(cuStreamGetCtx, stand_in)
PIPETWIN_ANSWERS(cuStreamSynchronize, stand_in)
PIPETWIN_ANSWERS(cuTensorMapEncodeTiled, stand_in)

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
