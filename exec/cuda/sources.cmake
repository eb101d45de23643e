# The sources of the CUDA module. The tests compile the same files against an emulation of CUDA, but for those that call
# cuBLAS, NCCL, NVML or the driver.
set(PIPETWIN_CUDA_KERNELS
    attention.cu
    attention_plain.cu
    attention_tensor_cores_backward.cu
    attention_tensor_cores_forward.cu
    column_sums.cu
    cross_entropy.cu
    dropout.cu
    elementwise.cu
    embedding.cu
    layer_norm.cu
    updates.cu
)
set(PIPETWIN_CUDA_HOST
    attention_check.cpp
    check.cpp
    command_list.cpp
    command_queue.cpp
    cuda_device.cpp
    cuda_copy_engine.cpp
    cuda_kernels.cpp
    device_rates.cpp
    device_memory.cpp
    lane.cpp
    module.cpp
    nccl_communicator.cpp
    nccl_link.cpp
    nccl_sum.cpp
    multiprocessor_shares.cpp
    update_table.cpp
)
set(PIPETWIN_CUDNN  # attention by cuDNN, where its headers are; it is loaded at run time
    cudnn_attention.cpp
    cudnn_graph.cpp
    cudnn_library.cpp
    cudnn_load.cpp
    cudnn_plan.cpp
)
set(PIPETWIN_NO_CUDNN cudnn_absent.cpp)
set(PIPETWIN_CUDA_LIBRARIES  # where CUDA's other libraries are called
    context_memory.cpp
    driver.cpp
    green_context.cpp
    products.cpp
    self_test.cpp
)
