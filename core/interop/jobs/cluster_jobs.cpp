// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/word_list.h"
#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/megatron_job.h"
#include "core/interop/jobs/megatron_words.h"

namespace pipetwin {

namespace {

/// Whether Megatron's FSDP runs, which asks for streams of its own (docs/user-guide/features/
/// megatron_fsdp.md); else Megatron's examples set one connection, so that messages of tensor
/// parallelism begin in front of the products beside them.
bool has_own_streams(const MegatronJob& job) {
    return job.plan.flags.megatron_fsdp;
}

std::string heading(const PlacedPlan& plan, const MegatronJob& job, std::string_view what) {
    std::string text = fmt::format("# {}\n# {}\n", what, plan_in_words(plan));
    text += comment_lines(job.remarks);
    return text;
}

constexpr std::string_view slurm_settings = R"sh(
# FILL IN what is yours, here or in the environment of sbatch.
MEGATRON=${{MEGATRON:-$HOME/Megatron-LM}}  # a checkout of github.com/NVIDIA/Megatron-LM
IMAGE=${{IMAGE:-}}                         # a container for srun with pyxis; empty: no container
MOUNTS=${{MOUNTS:-}}                       # of the container: /data:/data,/home:/home
CHECKPOINTS=${{CHECKPOINTS:-}}             # a folder; empty: none are written
PORT=${{PORT:-29500}}                      # a free one on the first node

# FILL IN the data: --data-path PREFIX, and its --tokenizer-type and --tokenizer-model.
DATA=({data})
)sh";

constexpr std::string_view slurm_start = R"sh(
OUTPUT=(
    --log-interval 10
    --eval-iters 0
    ${{CHECKPOINTS:+--save "$CHECKPOINTS" --load "$CHECKPOINTS" --save-interval 1000}}
)

mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --kill-on-bad-exit=1 \
    ${{IMAGE:+--container-image "$IMAGE"}} ${{MOUNTS:+--container-mounts "$MOUNTS"}} \
    torchrun --nnodes {nodes} --nproc-per-node {per_node} --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-backend c10d --rdzv-endpoint "${{HOSTS[0]}}:$PORT" \
    "$MEGATRON/pretrain_gpt.py" "${{MODEL[@]}}" "${{PARALLEL[@]}}" "${{TRAINING[@]}}" \
    "${{DATA[@]}}" "${{OUTPUT[@]}}"
)sh";

constexpr std::string_view launch_settings = R"sh(
# FILL IN what is yours, here or in the environment.
MEGATRON=${{MEGATRON:-$HOME/Megatron-LM}}  # a checkout of github.com/NVIDIA/Megatron-LM
HEAD=${{HEAD:-localhost}}                  # the name of the first node
NODE=${{NODE:-0}}                          # this node's number: 0 to {last_node}
PORT=${{PORT:-29500}}                      # a free one on the first node
CHECKPOINTS=${{CHECKPOINTS:-}}             # a folder; empty: none are written

# FILL IN the data: --data-path PREFIX, and its --tokenizer-type and --tokenizer-model.
DATA=({data})
)sh";

constexpr std::string_view launch_start = R"sh(
OUTPUT=(
    --log-interval 10
    --eval-iters 0
    ${{CHECKPOINTS:+--save "$CHECKPOINTS" --load "$CHECKPOINTS" --save-interval 1000}}
)

exec torchrun --nnodes {nodes} --nproc-per-node {per_node} --node-rank "$NODE" \
    --master-addr "$HEAD" --master-port "$PORT" \
    "$MEGATRON/pretrain_gpt.py" "${{MODEL[@]}}" "${{PARALLEL[@]}}" "${{TRAINING[@]}}" \
    "${{DATA[@]}}" "${{OUTPUT[@]}}"
)sh";

constexpr std::string_view kubernetes_settings = R"yaml(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: pipetwin-plan
spec:
  runtimeRef:
    apiGroup: trainer.kubeflow.org
    kind: ClusterTrainingRuntime
    name: torch-distributed
  trainer:
    image: megatron-lm:latest  # FILL IN an image with PyTorch, Megatron-LM and what it needs
    numNodes: {nodes}
    numProcPerNode: {per_node}
    resourcesPerNode:
      requests:
        nvidia.com/gpu: {per_node}
      limits:
        nvidia.com/gpu: {per_node}
)yaml";

constexpr std::string_view kubernetes_start =
    R"yaml(        MEGATRON=/opt/Megatron-LM  # FILL IN where it is in the image
        # FILL IN the data: --data-path PREFIX, and its --tokenizer-type and --tokenizer-model;
        # and volumes for them and for --save FOLDER by runtimePatches.
        DATA=({data})
        exec torchrun "$MEGATRON/pretrain_gpt.py" "${{MODEL[@]}}" "${{PARALLEL[@]}}" \
          "${{TRAINING[@]}}" "${{DATA[@]}}" --log-interval 10 --eval-iters 0
)yaml";

/// A flag with its value as words of a shell.
std::string shell_flag(const std::string& flag) {
    const std::size_t blank = flag.find(' ');
    const bool is_plain = flag.find_first_of("|*()[]&;<>$'\"") == std::string::npos;
    const bool is_quoted = blank != std::string::npos && flag[blank + 1] == '"';
    return is_plain || is_quoted || blank == std::string::npos
               ? flag
               : fmt::format("{} '{}'", flag.substr(0, blank), flag.substr(blank + 1));
}

/// "NAME=(...)", a flag a line.
std::string shell_array(const FlagGroup& group) {
    std::string text = fmt::format("\n{}=(\n", group.name);
    for (const std::string& flag : group.flags) {
        text += fmt::format("    {}\n", shell_flag(flag));
    }
    return text + ")\n";
}

/// What both scripts of a shell set before they start: an environment, and the flags.
std::string shell_flags(const PlacedPlan& plan, const MegatronJob& job) {
    std::string text;
    if (has_own_streams(job)) {
        text += "\nunset CUDA_DEVICE_MAX_CONNECTIONS  # Megatron-FSDP needs streams of its own\n";
    } else {
        text +=
            "\n# As Megatron's examples: messages of tensor parallelism begin before products.\n"
            "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
    }
    if (!job.plan.knows_model) {
        text +=
            "\n# FILL IN the sizes of the model: --hidden-size, --num-attention-heads, "
            "--seq-length, ...";
    }
    for (const FlagGroup& group : flag_groups(plan, job)) {
        text += shell_array(group);
    }
    return text;
}

}  // namespace

std::string print_slurm_script(const PlacedPlan& plan) {
    const MegatronJob job = megatron_job(plan);
    std::string text =
        "#!/bin/bash\n" + heading(plan, job, "Megatron-LM on Slurm: sbatch THIS_FILE");
    text += fmt::format(
        "\n#SBATCH --job-name=pipetwin-plan\n#SBATCH --nodes={}\n"
        "#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n"
        "#SBATCH --exclusive\n#SBATCH --time=04:00:00\n"
        "#SBATCH --output=%x-%j.log\n"
        "## FILL IN, and take one # away: #SBATCH --partition=... --account=...\n",
        job.nodes.nodes,
        job.nodes.per_node);
    text += "\nset -euo pipefail\n";
    text += fmt::format(fmt::runtime(slurm_settings), fmt::arg("data", stand_in_data(job)));
    text += shell_flags(plan, job);
    return text + fmt::format(fmt::runtime(slurm_start),
                              fmt::arg("nodes", job.nodes.nodes),
                              fmt::arg("per_node", job.nodes.per_node));
}

std::string print_launch_script(const PlacedPlan& plan) {
    const MegatronJob job = megatron_job(plan);
    std::string text =
        "#!/bin/bash\n" +
        heading(plan,
                job,
                fmt::format("Megatron-LM by torchrun: run it on each of the nodes ({})",
                            job.nodes.nodes));
    text += "\nset -euo pipefail\n";
    text += fmt::format(fmt::runtime(launch_settings),
                        fmt::arg("data", stand_in_data(job)),
                        fmt::arg("last_node", job.nodes.nodes - 1));
    text += shell_flags(plan, job);
    return text + fmt::format(fmt::runtime(launch_start),
                              fmt::arg("nodes", job.nodes.nodes),
                              fmt::arg("per_node", job.nodes.per_node));
}

std::string print_kubernetes_job(const PlacedPlan& plan) {
    const MegatronJob job = megatron_job(plan);
    std::string text = heading(plan, job, "Megatron-LM on Kubernetes: kubectl apply -f THIS_FILE");
    text += "# It needs Kubeflow's trainer (v2), whose runtime tells torchrun its nodes (PET_*).\n";
    text += fmt::format(fmt::runtime(kubernetes_settings),
                        fmt::arg("nodes", job.nodes.nodes),
                        fmt::arg("per_node", job.nodes.per_node));
    if (!has_own_streams(job)) {
        text +=
            "    env:\n"
            "      # As Megatron's examples: messages of tensor parallelism begin before "
            "products.\n"
            "      - name: CUDA_DEVICE_MAX_CONNECTIONS\n        value: \"1\"\n";
    }
    text +=
        "    command: [\"bash\", \"-c\"]\n    args:\n      - |\n"
        "        set -euo pipefail\n";
    if (!job.plan.knows_model) {
        text +=
            "        # FILL IN the sizes of the model: --hidden-size, --num-attention-heads, "
            "...\n";
    }
    for (const FlagGroup& group : flag_groups(plan, job)) {
        text += fmt::format("        {}=(\n", group.name);
        for (const std::string& flag : group.flags) {
            text += fmt::format("          {}\n", shell_flag(flag));
        }
        text += "        )\n";
    }
    return text + fmt::format(fmt::runtime(kubernetes_start), fmt::arg("data", stand_in_data(job)));
}

}  // namespace pipetwin
