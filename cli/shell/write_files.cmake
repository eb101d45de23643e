# SPDX-License-Identifier: Apache-2.0

# Writes the manual pages and completions that PROGRAM prints into FOLDER, as they lie in share/ of an installation.
unset(ENV{PIPETWIN_PROFILES})
file(REMOVE_RECURSE ${FOLDER})
foreach(file bash-completion/completions/pipetwin zsh/site-functions/_pipetwin fish/vendor_completions.d/pipetwin.fish)
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY ${FOLDER}/${folder})
    string(REGEX MATCH "^[a-z]+" shell ${file})
    execute_process(COMMAND ${PROGRAM} completion ${shell} --out ${FOLDER}/${file} --quiet COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${PROGRAM} completion man --out ${FOLDER}/man/man1 --quiet COMMAND_ERROR_IS_FATAL ANY)
find_program(gzip gzip NO_CACHE)
if(gzip)
    file(GLOB pages ${FOLDER}/man/man1/*.1)
    execute_process(COMMAND ${gzip} -9 -n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
