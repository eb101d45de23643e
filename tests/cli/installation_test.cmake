# SPDX-License-Identifier: Apache-2.0

# Installs the program and its data from BUILD to PREFIX, another place than was configured, and runs it there. PROGRAMS
# and DATA are the folders of each in an installation.
set(ENV{PIPETWIN_PROFILES})
file(REMOVE_RECURSE ${PREFIX})
foreach(component program data)
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --component ${component} --prefix ${PREFIX}
        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
set(program ${PREFIX}/${PROGRAMS}/pipetwin)
set(data ${PREFIX}/${DATA}/pipetwin)

execute_process(COMMAND ${program} devices WORKING_DIRECTORY / OUTPUT_VARIABLE devices COMMAND_ERROR_IS_FATAL ANY)
string(FIND "${devices}" "${data}/profiles" at)
if(at EQUAL -1)
    message(FATAL_ERROR "the profiles are not those of ${data}:\n${devices}")
endif()

# Pages of the manual, and what shells complete. Pages may be packed.
foreach(file man/man1/pipetwin.1 man/man1/pipetwin-plan.1 bash-completion/completions/pipetwin zsh/site-functions/_pipetwin
             fish/vendor_completions.d/pipetwin.fish)
    file(GLOB there ${PREFIX}/${DATA}/${file}*)
    if(NOT there)
        message(FATAL_ERROR "${PREFIX}/${DATA}/${file} is not installed")
    endif()
endforeach()

foreach(schema result-plan file-profile scenario)
    if(NOT EXISTS ${data}/schemas/${schema}.schema.json)
        message(FATAL_ERROR "the schema ${schema} is not installed")
    endif()
endforeach()

# The costs of a published model.
execute_process(COMMAND ${program} simulate ${data}/scenarios/papers/gpipe-transformer-48.toml
    WORKING_DIRECTORY / OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

# A model that is known by name.
execute_process(COMMAND ${program} import hf llama-3-8b --device h100-sxm --sequence 4096 --micro-batch-size 1
    --out ${PREFIX}/llama.profile.json WORKING_DIRECTORY / OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)

# Devices and a link that are known by name.
file(WRITE ${PREFIX}/x.profile.json [[{"schema_version": 1, "source": "measured", "device": "h100-sxm",
    "precision": "bf16", "layers": [
    {"name": "a", "parameter_bytes": 8, "samples": [{"micro_batch_size": 1, "forward_ns": 1000, "backward_ns": 2000,
                               "output_bytes": 8, "saved_bytes": 8}]},
    {"name": "b", "parameter_bytes": 8, "samples": [{"micro_batch_size": 1, "forward_ns": 1000, "backward_ns": 2000,
                               "output_bytes": 0, "saved_bytes": 8}]}]}]])
file(WRITE ${PREFIX}/x.toml [[
[model]
kind = "profile"
file = "x.profile.json"
[training]
batch = 2
[pipeline]
stages = 2
micro_batches = 2
[cluster]
devices = ["h100-sxm", "a100-sxm-80"]
scale_costs = "cautious"
link = "infiniband-ndr"
]])
execute_process(COMMAND ${program} simulate ${PREFIX}/x.toml
    WORKING_DIRECTORY / OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${PREFIX})
