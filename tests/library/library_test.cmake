# SPDX-License-Identifier: Apache-2.0

# Installs libpipetwin from BUILD to PREFIX, builds the example with find_package there, and compares what it prints with
# PROGRAM. Then compares what the library exports, needs and loads with what it may.
file(REMOVE_RECURSE ${PREFIX})
foreach(component library data)
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --component ${component} --prefix ${PREFIX}
        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/example -B ${PREFIX}/example -G Ninja
        -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_C_FLAGS=-Wall\ -Wextra\ -Werror\ -pedantic
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${PREFIX}/example OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PREFIX}/example/plan OUTPUT_VARIABLE ours ERROR_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} simulate --stages 4 --micro-batches 8 --schedule 1f1b --forward-ms 1 --backward-ms 2 --json
    OUTPUT_VARIABLE theirs COMMAND_ERROR_IS_FATAL ANY)
if(NOT ours STREQUAL theirs)
    message(FATAL_ERROR "the example prints\n${ours}\nexpected\n${theirs}")
endif()
if(NOT said MATCHES "rank 3 ends its [0-9]+ actions after 27 ms")
    message(FATAL_ERROR "the example says ${said}")
endif()

# Nothing but the functions of the header is seen from outside, each with a version.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../../cli/library/pipetwin.h lines REGEX "^[a-z].*pipetwin_[a-z_]+\\(")
set(declared)
foreach(line IN LISTS lines)
    string(REGEX MATCH "(pipetwin_[a-z_]+)\\(" _ "${line}")
    list(APPEND declared ${CMAKE_MATCH_1})
endforeach()
list(SORT declared)
execute_process(COMMAND nm -D --defined-only --with-symbol-versions ${LIBRARY} OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n ]+@@?[^\n ]+" exported "${symbols}")
list(FILTER exported EXCLUDE REGEX "^PIPETWIN_")
list(TRANSFORM declared APPEND "@@PIPETWIN_0.2")
list(SORT exported)
if(NOT exported STREQUAL declared)
    message(FATAL_ERROR "exported: ${exported}\nexpected: ${declared}")
endif()

# The executor and what it is linked with stay out.
execute_process(COMMAND readelf -d ${LIBRARY} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(needed MATCHES "libdnnl|libsentencepiece|libgomp|libpng|libjpeg|libmpi|libcuda")
    message(FATAL_ERROR "the library needs ${CMAKE_MATCH_0}")
endif()
file(REMOVE_RECURSE ${PREFIX})
