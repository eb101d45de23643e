# SPDX-License-Identifier: Apache-2.0

# Packages of Debian: `scripts/package deb` writes and checks them. What a part installs belongs to its component; program
# and data are one package.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pipetwin)
set(CPACK_PACKAGE_VENDOR pipetwin)
set(CPACK_PACKAGE_CONTACT "pipetwin maintainers <maintainers@pipetwin.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plan, predict and run pipeline-parallel training")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # of the C library
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# pipetwin_package(GROUP NAME COMPONENT... DEPENDS ... TEXT ...): a package of these components, with the texts that Debian
# asks for in /usr/share/doc/NAME.
function(pipetwin_package group name)
    cmake_parse_arguments(ABOUT "" "DEPENDS;TEXT;OVERRIDE" "COMPONENTS" ${ARGN})
    string(TOUPPER ${group} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${ABOUT_DEPENDS}" PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${ABOUT_TEXT}" PARENT_SCOPE)
    set(CPACK_COMPONENT_${upper}_DESCRIPTION "${ABOUT_TEXT}" PARENT_SCOPE)
    set(texts ${group}_texts)
    foreach(component IN LISTS ABOUT_COMPONENTS ITEMS ${texts})
        string(TOUPPER ${component} one)
        set(CPACK_COMPONENT_${one}_GROUP ${group} PARENT_SCOPE)
    endforeach()
    set(folder ${CMAKE_BINARY_DIR}/packaging/${name})
    set(version ${PROJECT_VERSION})
    configure_file(${CMAKE_SOURCE_DIR}/tools/packaging/changelog.in ${folder}/changelog.Debian @ONLY)
    execute_process(COMMAND gzip -9nkf ${folder}/changelog.Debian RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "gzip does not pack ${folder}/changelog.Debian: ${failed}; install gzip")
    endif()
    install(FILES ${CMAKE_SOURCE_DIR}/tools/packaging/copyright ${folder}/changelog.Debian.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${texts} EXCLUDE_FROM_ALL)
    configure_file(${CMAKE_SOURCE_DIR}/tools/packaging/lintian-overrides.in ${folder}/lintian-overrides @ONLY)
    install(FILES ${folder}/lintian-overrides
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME ${name} COMPONENT ${texts} EXCLUDE_FROM_ALL)
endfunction()

set(same "(= ${PROJECT_VERSION}-1)")
pipetwin_package(cli pipetwin COMPONENTS program data
    TEXT "Finds the fastest pipeline of a model on a cluster, predicts time and memory of\na step, trains with threads or processes, and compares prediction and\nmeasurement. Knows models, devices and clusters by name.")
pipetwin_package(dev libpipetwin-dev COMPONENTS library DEPENDS "pipetwin ${same}"
    TEXT "The questions of the command line as functions of a C library, with its header\nand what find_package of CMake reads.")
set(CPACK_DEBIAN_DEV_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/tools/packaging/triggers)  # ldconfig finds the library
set(CPACK_COMPONENTS_ALL program data cli_texts library dev_texts)
if(TARGET pipetwin-gui)
    pipetwin_package(gui pipetwin-gui COMPONENTS gui DEPENDS "pipetwin ${same}, fonts-dejavu-core"
        TEXT "Shows the predicted timeline of a training run above the measured one, why each\naction waited, and how fast another plan would be.")
    list(APPEND CPACK_COMPONENTS_ALL gui gui_texts)
endif()
if(TARGET pipetwin_mpi)
    pipetwin_package(mpi pipetwin-mpi COMPONENTS mpi DEPENDS "pipetwin ${same}, openmpi-bin"
        TEXT "The module by which pipetwin trains with a process for each rank, on one host or\non several.")
    list(APPEND CPACK_COMPONENTS_ALL mpi mpi_texts)
endif()
if(TARGET pipetwin_cuda)
    pipetwin_package(cuda pipetwin-cuda COMPONENTS cuda DEPENDS "pipetwin ${same}"
        OVERRIDE "# CUDA comes from NVIDIA, and lies where its installer puts it.\npipetwin-cuda: custom-library-search-path *"
        TEXT "The module by which pipetwin trains on GPUs of NVIDIA. CUDA 13 and NCCL, which it\nloads, do not come from Debian.")
    list(APPEND CPACK_COMPONENTS_ALL cuda cuda_texts)
endif()
include(CPack)
