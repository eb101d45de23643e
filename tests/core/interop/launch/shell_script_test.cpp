// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/shell_script.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace shell_script_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LaunchFile parse(std::string_view text) {
    return parse_shell_script(text, "x.sh");
}

/// "name=value value" of each setting; an unknown value is "?X".
std::vector<std::string> settings_of(std::string_view text) {
    std::vector<std::string> result;
    for (const Setting& setting : parse(text).settings) {
        std::string line = setting.name;
        for (std::size_t i = 0; i < setting.values.size(); ++i) {
            const SettingWord& word = setting.values[i];
            line += i == 0 ? "=" : " ";
            line += word.unknown.empty() ? word.text : "?" + word.unknown;
        }
        result.push_back(line);
    }
    return result;
}

TEST(ShellScript, ACommandGoesOnOverLinesAndComments) {
    const LaunchFile file = parse(
        "#!/bin/bash\n# --hidden-size 9\n"
        "torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py \\\n"
        "    --num-layers 32 \\\r\n"
        "    --hidden-size=4096 --bf16 --tokenizer-type 'Null Tokenizer' # the rest\n"
        "echo done\n");
    EXPECT_EQ(file.program, "pretrain_gpt.py");
    EXPECT_EQ(file.processes, 8);
    EXPECT_EQ(file.nodes, 2);
    ASSERT_EQ(file.settings.size(), 4U);
    EXPECT_EQ(file.settings[0].written, "--num-layers");
    EXPECT_EQ(file.settings[0].place, "x.sh:4:5");
    EXPECT_EQ(file.settings[0].values.front().place, "x.sh:4:18");
    EXPECT_EQ(file.settings[1].values.front().text, "4096");
    EXPECT_THAT(file.settings[2].values, IsEmpty());
    EXPECT_EQ(file.settings[3].values.front().text, "Null Tokenizer");
}

TEST(ShellScript, VariablesAreReplaced) {
    EXPECT_THAT(settings_of("L=32\nexport H=\"4096\"\nS=${SEQ:-8192}\nP=${1:-4}\n"
                            "python pretrain_gpt.py --num-layers $L --hidden-size ${H} "
                            "--seq-length $S --pp $P --ffn $((H * 4 + 2 - 2)) --name a${L}b"),
                ElementsAre("num-layers=32",
                            "hidden-size=4096",
                            "seq-length=8192",
                            "pp=4",
                            "ffn=16384",
                            "name=a32b"));
    // A variable outside of quotes is split into words, one inside is not.
    EXPECT_THAT(settings_of("A=\"--x 1 --y\"\npython t.py $A 2 \"--z\" \"$A\""),
                ElementsAre("x=1", "y=2", "z", "x 1 --y"));
}

TEST(ShellScript, ArraysAreListsOfWords) {
    EXPECT_THAT(
        settings_of("GPT_ARGS=(\n"
                    "    --num-layers 96   # as published\n"
                    "    --split '949,50,1'\n"
                    ")\n"
                    "MORE=( --bf16 )\n"
                    "MORE+=(--lr 1e-4)\n"
                    "ALL=\"${GPT_ARGS[@]} ${MORE[*]}\"\n"
                    "torchrun ${NO_ARGS[@]} pretrain_gpt.py \"${GPT_ARGS[@]}\" ${MORE[@]}\n"),
        ElementsAre("num-layers=96", "split=949,50,1", "bf16", "lr=1e-4"));
    EXPECT_THAT(settings_of("A=(--x 1)\nB=(--y)\nALL=\"${A[@]} ${B[*]}\"\npython t.py $ALL"),
                ElementsAre("x=1", "y"));
    // The place of a flag is where it was written.
    EXPECT_EQ(parse("A=(--x\n  --y 1)\npython t.py ${A[@]}").settings[1].place, "x.sh:2:3");
}

TEST(ShellScript, TheCommandMayBeInAVariableOrInQuotes) {
    const std::vector<std::string> expected{"num-layers=2", "bf16"};
    EXPECT_EQ(settings_of("CMD=\"torchrun pretrain_gpt.py \\\n  --num-layers 2 \\\n  --bf16\"\n"
                          "echo $CMD\neval $CMD 2>&1 | tee log.txt\n"),
              expected);
    EXPECT_EQ(settings_of("srun -N 4 bash -c \"python pretrain_gpt.py --num-layers 2 --bf16\" > o"),
              expected);
    EXPECT_EQ(settings_of("run() {\n  python -m megatron.train --num-layers 2 --bf16\n}\nrun\n"),
              expected);
    EXPECT_EQ(settings_of("cd a && X=1 python pretrain_gpt.py --num-layers 2 --bf16 &\nwait\n"),
              expected);
}

/// Each pass of a loop is a configuration; what is chosen is carried out, with what follows from
/// it.
TEST(ShellScript, APassOfALoopIsChosenByItsVariable) {
    const std::string script =
        "for TP in 1 2 4; do\n  for PP in 8; do\n    DP=$((32 / TP / PP))\n"
        "    torchrun pretrain_gpt.py --num-layers 32 --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size ${PP} --global-batch-size ${DP}\n  done\ndone\n"
        "NAME=x\n";
    const LaunchFile open = parse(script);
    ASSERT_EQ(open.settings.size(), 4U);
    EXPECT_EQ(open.settings[1].values[0].unknown, "$TP");
    EXPECT_THAT(open.settings[1].values[0].choices, ElementsAre("1", "2", "4"));
    const LaunchFile chosen = parse_shell_script(script, "x.sh", {{"TP", "2"}});
    ASSERT_EQ(chosen.settings.size(), 4U);
    EXPECT_EQ(chosen.settings[1].values[0].text, "2");
    EXPECT_EQ(chosen.settings[2].values[0].text, "8");  // a loop of one pass needs no choice
    EXPECT_EQ(chosen.settings[3].values[0].text, "2");
    // What a loop over other things sets is not certain.
    EXPECT_THAT(settings_of("for f in *.txt; do PP=2; done\ntorchrun x.py --num-layers 2 "
                            "--pipeline-model-parallel-size $PP\n"),
                ElementsAre("num-layers=2", "pipeline-model-parallel-size=?$PP"));
}

/// A loop with one pass sets its variable as an assignment does: later ones change it.
TEST(ShellScript, ALoopWithOnePassAssigns) {
    const std::string run = "torchrun x.py --num-layers 2 --tensor-model-parallel-size $TP\n";
    const auto loop = [](const std::string& passes, const std::string& inside) {
        return "for TP in " + passes + "; do\n" + inside + "done\n";
    };
    const std::string prepare = loop("2", "echo $TP\n");
    EXPECT_THAT(settings_of(prepare + loop("4", run)),
                ElementsAre("num-layers=2", "tensor-model-parallel-size=4"));
    EXPECT_THAT(settings_of(prepare + "TP=4\n" + run),
                ElementsAre("num-layers=2", "tensor-model-parallel-size=4"));
    EXPECT_THAT(settings_of(prepare + run),
                ElementsAre("num-layers=2", "tensor-model-parallel-size=2"));
    EXPECT_THAT(settings_of("TP=1\n" + loop("2 4", run)),
                ElementsAre("num-layers=2", "tensor-model-parallel-size=?$TP"));
    const LaunchFile open = parse(prepare + loop("4 8", run));
    EXPECT_THAT(open.settings[1].values[0].choices, ElementsAre("4", "8"));
    // A value that the user gave holds against all of them.
    const LaunchFile given = parse_shell_script(prepare + "TP=4\n" + run, "x.sh", {{"TP", "8"}});
    EXPECT_EQ(given.settings[1].values[0].text, "8");
}

TEST(ShellScript, AFileOfFlagsNeedsNoCommand) {
    const std::vector<std::string> expected{"num-layers=2", "bf16", "seq-length=8"};
    EXPECT_EQ(settings_of("--num-layers 2\n--bf16\n\n# data\n--seq-length 8\n"), expected);
    EXPECT_EQ(settings_of("A=(--num-layers 2 --bf16)\nB=\"--seq-length 8\"\n"), expected);
    EXPECT_THAT(settings_of("python run.py model.num_layers=32 train.micro_batch_size=2 +x.y=3"),
                ElementsAre("num-layers=32", "micro-batch-size=2", "y=3"));
}

/// They were further values of the setting before them, and so without effect.
TEST(ShellScript, AnOverrideNeedsNoDot) {
    EXPECT_THAT(settings_of("python run.py model.num_layers=32 mixed_precision=bf16_mixed +seed=1"),
                ElementsAre("num-layers=32", "mixed-precision=bf16_mixed", "seed=1"));
    EXPECT_THAT(settings_of("python run.py seed=1 model.num_layers=32"),
                ElementsAre("seed=1", "num-layers=32"));
    EXPECT_THAT(settings_of("python run.py --config-name llama3 seed=1"),
                ElementsAre("config-name=llama3", "seed=1"));
    EXPECT_THAT(settings_of("python run.py --multirun seed=1 model.num_layers=32"),
                ElementsAre("multirun", "seed=1", "num-layers=32"));
    const LaunchFile file = parse("python run.py model.num_layers=32 mixed_precision=bf16_mixed");
    ASSERT_EQ(file.settings.size(), 2U);
    EXPECT_TRUE(file.settings[1].is_key);
    EXPECT_THAT(file.settings[1].sections, IsEmpty());
    EXPECT_EQ(file.settings[1].place, "x.sh:1:35");
    EXPECT_EQ(file.settings[1].values.front().place, "x.sh:1:51");
    // The value of a flag may have the same form, and so may a path.
    EXPECT_THAT(settings_of("python t.py --env A=1 --data-path 0.5 b/c=1"),
                ElementsAre("env=A=1", "data-path=0.5 b/c=1"));
}

TEST(ShellScript, AWordBehindAnOverrideIsNotItsValue) {
    const LaunchFile file = parse("python run.py model.num_layers=32 64 model.hidden_size=8");
    ASSERT_EQ(file.settings.size(), 2U);
    EXPECT_EQ(file.settings[0].values.size(), 1U);
    EXPECT_THAT(file.notes,
                ElementsAre(HasSubstr("x.sh:1:35: '64' is neither a flag nor key=value")));
}

/// The environment, other commands and branches may give a variable any value.
TEST(ShellScript, WhatTheFileDoesNotSayIsUnknown) {
    EXPECT_THAT(settings_of("python t.py --a $X --b ${Y} --c $(nproc) --d `x` --e $1"),
                ElementsAre("a=?$X", "b=?$Y", "c=?$(nproc)", "d=?`x`", "e=?$1"));
    EXPECT_THAT(parse("python t.py --a \"$@\"").notes, ElementsAre(HasSubstr("x.sh:1:18: $@ has")));
    const std::string branch = "X=1\nif [ $A = 2 ]; then\n  X=2\nfi\n";
    EXPECT_THAT(settings_of(branch + "python t.py --a $X"), ElementsAre("a=?$X"));
    EXPECT_THAT(settings_of("[ -z \"$X\" ] && X=2\npython t.py --a ${X:-3}"),
                ElementsAre("a=?${X:-3}"));
    EXPECT_THAT(settings_of("case $M in\n a) X=1;;\n *) X=2;;\nesac\npython t.py --a $X"),
                ElementsAre("a=?$X"));

    const LaunchFile file = parse(
        "A=(--x 1)\nif true; then A+=(--y 2); fi\n"
        "python t.py --z 1 $MORE ${A[@]}\n");
    ASSERT_EQ(file.settings.size(), 2U);
    EXPECT_EQ(file.settings[1].name, "x");
    ASSERT_EQ(file.notes.size(), 2U);
    EXPECT_THAT(file.notes[0], HasSubstr("x.sh:3:19: $MORE has no value in this file"));
    EXPECT_THAT(file.notes[1], HasSubstr("${A} has no value"));
}

TEST(ShellScript, AConditionThatAddsFlagsLeavesTheOthers) {
    const LaunchFile file = parse(
        "O=\" --x 1 --y 2 \"\nif a; then O=\"$O --z 3\"; fi\npython t.py $O --w 4 --bf16 "
        "$EXTRA_ARGS");
    ASSERT_EQ(file.settings.size(), 4U);
    EXPECT_EQ(file.settings[1].name, "y");
    EXPECT_EQ(file.settings[1].values.size(), 1U);
    EXPECT_EQ(file.settings[2].name, "w");
    EXPECT_THAT(file.settings[3].values, IsEmpty());
    ASSERT_EQ(file.notes.size(), 2U);
    EXPECT_THAT(file.notes[0], HasSubstr("$O has no value in this file, or one under a condition"));
    EXPECT_THAT(file.notes[1], HasSubstr("$EXTRA_ARGS has no value"));
}

/// However a branch sets flags, and however the command takes them: they are noted as not seen.
TEST(ShellScript, FlagsThatABranchSetsAreNoted) {
    const std::vector<std::string> branches{
        "if [ $M = 1 ]; then X=(--experts 8); fi\n",
        "X=(--few 1)\nif [ $M = 1 ]; then X=(--experts 8); fi\n",
        "if [ $M = 1 ]; then X=(--experts 8); else X=(); fi\n",
        "if [ $M = 1 ]; then X=\"--experts 8\"; else X=\"\"; fi\n",
        "case $M in\n 1) X=(--experts 8) ;;\n *) X=() ;;\nesac\n",
        "[ $M = 1 ] && X=(--experts 8)\n",
        "[ $M = 1 ] && { Y=1; X=(--experts 8); }\n",
        "if [ $M = 1 ]; then X+=(--experts 8); fi\n",
    };
    for (const std::string& branch : branches) {
        for (const std::string use : {"\"${X[@]}\"", "${X[@]}", "${X[*]}", "\"${X[*]}\""}) {
            const LaunchFile file = parse(branch + "python t.py --layers 2 --flash " + use);
            EXPECT_EQ(file.settings.size(), 2U) << branch << use;
            ASSERT_EQ(file.notes.size(), 1U) << branch << use;
            EXPECT_THAT(file.notes.front(), HasSubstr("flags that it holds are not seen"));
        }
        // Words of a file that starts nothing.
        const LaunchFile list = parse("A=(--layers 2)\n" + branch);
        EXPECT_EQ(list.settings.size(), 1U) << branch;
        EXPECT_EQ(list.notes.size(), 1U) << branch;
    }
    EXPECT_THAT(parse("if a; then X=\"--experts 8\"; else X=; fi\npython t.py --flash $X").notes,
                ElementsAre(HasSubstr("x.sh:2:21: $X has no value")));
    EXPECT_THAT(parse("if a; then X=1; fi\npython t.py --flash ${X:+--experts 8}").notes,
                ElementsAre(HasSubstr("x.sh:2:21: ${X:+--experts 8} has no value")));
    // The launcher's own flags, which say how many processes there are.
    const LaunchFile launcher =
        parse("if a; then D=(--nproc_per_node 8); fi\ntorchrun ${D[@]} t.py --layers 2\n");
    EXPECT_EQ(launcher.processes, std::nullopt);
    EXPECT_THAT(launcher.notes, ElementsAre(HasSubstr("x.sh:2:10: ${D[@]} has no value")));
    // What is set again behind the branch is certain.
    const LaunchFile certain =
        parse("if a; then X=(--experts 8); fi\nX=(--few 1)\npython t.py ${X[@]}");
    EXPECT_EQ(certain.settings.size(), 1U);
    EXPECT_THAT(certain.notes, IsEmpty());
    // A group in braces without a condition is no branch.
    EXPECT_THAT(settings_of("{ X=(--few 1); }\npython t.py ${X[@]}"), ElementsAre("few=1"));
}

TEST(ShellScript, ALauncherIsNotTheProgram) {
    const LaunchFile file =
        parse("python -m torch.distributed.launch --nproc_per_node 4 a/pretrain_gpt.py --x 1");
    EXPECT_EQ(file.program, "a/pretrain_gpt.py");
    EXPECT_EQ(file.processes, 4);
    EXPECT_EQ(file.settings.size(), 1U);
}

TEST(ShellScript, HereDocumentsAndQuotesHoldNoCommands) {
    EXPECT_THAT(settings_of("cat <<EOF > x.txt\npython t.py --a 1\nEOF\n"
                            "echo \"it's python t.py --b 2\"\npython t.py --c 3\n"),
                ElementsAre("c=3"));
}

TEST(ShellScript, TwoCommandsMustAskForTheSame) {
    const std::string same = "if a; then python t.py --x 1; else torchrun t.py --x 1; fi";
    EXPECT_THAT(settings_of(same), ElementsAre("x=1"));
    const Error error = error_of([] { parse("python t.py --x 1\npython t.py --x 2\n"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(std::string(error.what()),
              "x.sh:2:13: a second training command with other flags than the one at "
              "x.sh:1:13\nhint: keep one of the two in the file");
}

TEST(ShellScript, WhatIsNotClosedIsRefusedWithItsPlace) {
    EXPECT_EQ(error_of([] { parse("--seq-length \"8"); }).place(), "x.sh:1:14");
    EXPECT_EQ(error_of([] { parse("\nA=( --x"); }).place(), "x.sh:2:3");
    EXPECT_EQ(error_of([] { parse("a ${X"); }).place(), "x.sh:1:3");
}

/// Bash refuses them, too: single quotes inside double ones hide nothing.
TEST(ShellScript, ABraceThatOnlySingleQuotesCloseIsRefused) {
    for (const std::string word :
         {"\"${X:-'${'}\"", "\"a ${X:-'${Y'} b\"", "\"${X:-'${Y:-${'}\""}) {
        const Error error = error_of([&word] { parse("echo " + word + "\n"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << word;
        EXPECT_THAT(error.place(), HasSubstr("x.sh:1:")) << word;
        EXPECT_THAT(error.text(), HasSubstr("the brace is not closed")) << word;
    }
    EXPECT_THAT(settings_of("python t.py --a ${X:-'${'}"), ElementsAre("a=${"));
}

/// The launch scripts of Pai-Megatron-Patch: the empty expansion was taken for a missing word, and
/// "${A}096" for 096.
TEST(ShellScript, WhatIsUnknownInATextStaysAtItsPlace) {
    const LaunchFile file = parse(
        "MB=$3\nOPTIONS=\" \\\n    --micro-batch-size ${MB} --global-batch-size 64 \\\n"
        "    --hidden-size ${WIDTH}096 --name a${B}c --last $4\"\n"
        "torchrun pretrain_gpt.py ${OPTIONS}\n");
    ASSERT_EQ(file.settings.size(), 5U);
    const auto value = [&file](std::size_t i) { return file.settings[i].values.at(0); };
    EXPECT_EQ(value(0).unknown, "$3");
    EXPECT_EQ(value(0).place, "x.sh:3:24");
    EXPECT_EQ(value(1).text, "64");
    EXPECT_EQ(value(1).unknown, "");
    EXPECT_EQ(value(2).text, "096");
    EXPECT_EQ(value(2).unknown, "$WIDTH");
    EXPECT_EQ(value(3).unknown, "$B");
    EXPECT_EQ(value(4).unknown, "$4");
    // A branch may add words behind a text, which ends where it does.
    const LaunchFile more = parse(
        "A=\"--x 1\"\nif [ $Y ]; then A+=\" --y 2\"; fi\nA+=\" --z 3\"\npython t.py $A --w 4\n");
    EXPECT_THAT(more.unseen, ElementsAre("${A}"));
    EXPECT_EQ(more.settings.at(0).values.at(0).text, "1");
    EXPECT_EQ(more.settings.at(0).values.at(0).unknown, "");
    EXPECT_EQ(more.settings.at(1).name, "z");
    EXPECT_EQ(more.settings.at(2).name, "w");
}

TEST(ShellScript, NestsThatAreTooDeepAreRefusedNotFollowed) {
    const auto nest = [](const std::string& open, const std::string& close, int depth) {
        std::string text = "python t.py --a ";
        for (int i = 0; i < depth; ++i) {
            text += open;
        }
        text += "1";
        for (int i = 0; i < depth; ++i) {
            text += close;
        }
        return text;
    };
    EXPECT_THAT(settings_of(nest("${X:-", "}", 64)), ElementsAre("a=1"));
    for (const int depth : {65, 300'000}) {
        for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{
                 {"${", "}"}, {"${X:-", "}"}, {"$(", ")"}, {"\"${X:-", "}\""}, {"${X:-\"", ""}}) {
            const Error error = error_of([&] { parse(nest(open, close, depth)); });
            EXPECT_EQ(error.kind(), ErrorKind::BadInput) << open;
            EXPECT_THAT(error.place(), HasSubstr("x.sh:1:1")) << open;
            EXPECT_THAT(error.text(), HasSubstr("more than 64 deep")) << open;
        }
    }
    // Single quotes hide the nest from the grammar of words.
    EXPECT_EQ(
        error_of([&] {
            parse("echo \"${X:-'" + std::string(300'000, '$') + nest("${", "", 300'000) + "'}\"");
        }).kind(),
        ErrorKind::BadInput);
    EXPECT_EQ(error_of([&] { parse("A=(" + nest("${", "}", 300'000) + ")"); }).kind(),
              ErrorKind::BadInput);
}

/// Whatever comes in: settings, or an Error that says where.
TEST(ShellScript, DamagedScriptsAreReadOrRefusedButNothingElse) {
    const std::string good =
        "N=${1:-2}\nA=(--x $((N*2)) \"--y=$N\")\nif [ $N ]; then A+=(--z 'q'); fi\n"
        "cat <<E\nx\nE\ntorchrun t.py ${A[@]} `d` \\\n --w \"${N:+a}\" 2>&1 | tee o\n";
    constexpr std::string_view damage = "$(){}[]'\"`\\\n #;&|<>=-+*/%:@1aE";
    std::mt19937 random(tests::seed());
    const auto below = [&random](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    const int cases = tests::soaked(2000);
    for (int i = 0; i < cases; ++i) {
        std::string text = good;
        for (std::size_t k = 0; k < 1 + below(4); ++k) {
            text[below(text.size())] = damage[below(damage.size())];
        }
        try {
            for (const Setting& setting : parse(text).settings) {
                EXPECT_NE(setting.name, "") << text;
            }
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput) << text;
            EXPECT_THAT(error.place(), HasSubstr("x.sh:")) << text;
        }
    }
}

}  // namespace shell_script_test
}  // namespace pipetwin
