# SPDX-License-Identifier: Apache-2.0

# The sources of the CUDA module. The tests compile the same files against an emulation of CUDA, but for those that call
# cuBLAS, NCCL, NVML or the driver.
set(PIPETWIN_CUDA_KERNELS
    columns/column_elementwise.cu
    columns/column_norms.cu
    kernels/attention/attention.cu
    kernels/attention/attention_plain.cu
    kernels/attention/attention_tensor_cores_backward.cu
    kernels/attention/attention_tensor_cores_forward.cu
    kernels/column_sums.cu
    kernels/cross_entropy.cu
    kernels/dropout.cu
    kernels/elementwise.cu
    kernels/embedding.cu
    kernels/norm_backward.cu
    kernels/row_norm.cu
    kernels/updates.cu
    kernels/windows/convolution.cu
    kernels/windows/filters.cu
    kernels/windows/pools.cu
    kernels/windows/resample.cu
)
set(PIPETWIN_CUDA_HOST
    runtime/check.cpp
    runtime/command_list.cpp
    runtime/command_queue.cpp
    device/cuda_device.cpp
    device/cuda_copy_engine.cpp
    device/cuda_attention.cpp
    device/cuda_kernels.cpp
    device/cuda_convolutions.cpp
    module/device_rates.cpp
    runtime/device_memory.cpp
    device/lane.cpp
    module/module.cpp
    nccl/nccl_communicator.cpp
    nccl/nccl_link.cpp
    nccl/nccl_sum.cpp
    runtime/multiprocessor_shares.cpp
    device/update_table.cpp
)
set(PIPETWIN_CUDNN  # attention and convolutions by cuDNN, where its headers are; it is loaded at run time
    cudnn/cudnn_attention.cpp
    cudnn/cudnn_convolution.cpp
    cudnn/cudnn_convolution_graph.cpp
    cudnn/cudnn_graph.cpp
    cudnn/cudnn_library.cpp
    cudnn/cudnn_load.cpp
    cudnn/cudnn_plan.cpp
)
set(PIPETWIN_NO_CUDNN cudnn/cudnn_absent.cpp)
set(PIPETWIN_CUDA_LIBRARIES  # where CUDA's other libraries are called
    runtime/context_memory.cpp
    runtime/driver.cpp
    runtime/green_context.cpp
    device/products.cpp
    module/library_versions.cpp
)
