# SPDX-License-Identifier: Apache-2.0

# The headers of cuDNN, of which nothing is linked: CUDNN_INCLUDE_DIR, or "" where they are missing or older than 9.8, and
# `cudnn_sources`, the files that fit. To build without, -DCUDNN_INCLUDE_DIR="".
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ENV CUDNN_ROOT ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
mark_as_advanced(CUDNN_INCLUDE_DIR)
set(cudnn_version 0)
if(CUDNN_INCLUDE_DIR AND EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_version.h)
    file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h lines REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) [0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" cudnn_version "${lines}")
    string(REPLACE ";" "." cudnn_version "${cudnn_version}")
endif()
if(cudnn_version VERSION_GREATER_EQUAL 9.8)
    set(cudnn_sources ${PIPETWIN_CUDNN})
else()
    set(CUDNN_INCLUDE_DIR "")
    set(cudnn_sources ${PIPETWIN_NO_CUDNN})
endif()
