// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/input.h"
#include "cli/base/progress.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/json_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"
#include "exec/data/pairs/pair_tokens.h"
#include "exec/decoding/translator.h"
#include "exec/profiling/profiler.h"
#include "exec/training/checkpoint.h"

namespace pipetwin::cli {

namespace {

/// Options of `translate`.
struct TranslateOptions {
    CommonOptions common;
    std::filesystem::path run;       ///< a run folder
    std::vector<std::string> texts;  ///< of the command line
    std::filesystem::path file;      ///< a text in each line, "-": standard input; empty: none
    std::string to;                  ///< a language; empty: the only one
    int beam = 1;
};

namespace fs = std::filesystem;

/// A text that is to be translated, and where it was found.
struct PlacedText {
    std::string place;
    std::string text;
};

/// The lines of a file, or the texts of the command line.
std::vector<PlacedText> wanted_texts(const TranslateOptions& options) {
    std::vector<PlacedText> texts;
    for (const std::string& text : options.texts) {
        texts.push_back({.place = "--text", .text = text});
    }
    if (!options.file.empty()) {
        constexpr std::size_t most_bytes = std::size_t{16} << 20U;
        const std::string content = read_input(options.file, most_bytes);
        for (std::size_t begin = 0; begin < content.size();) {
            const std::size_t end = std::min(content.find('\n', begin), content.size());
            std::string line = content.substr(begin, end - begin);
            if (line.ends_with('\r')) {
                line.pop_back();
            }
            texts.push_back(
                {.place = fmt::format("{}:{}", input_name(options.file), texts.size() + 1),
                 .text = std::move(line)});
            begin = end + 1;
        }
    }
    if (texts.empty()) {
        throw Error(
            ErrorKind::Usage,
            options.file.empty() ? "--text" : input_name(options.file),
            "there is nothing to translate",
            "write --text \"File not found\", or --file FILE, a file with one text per line");
    }
    return texts;
}

Scenario scenario_of_run(const fs::path& run) {
    const fs::path file = run / run_file::scenario;
    if (!is_folder(run)) {
        throw Error(ErrorKind::BadInput,
                    run.string(),
                    "not a folder, expected the run folder of a training run",
                    "name the --out DIR of a training run, or its folder in runs/");
    }
    Scenario scenario = read_scenario(file, {});
    if (scenario.model.kind != ModelKind::Translation) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("model.kind = \"{}\", expected \"translation\"",
                                to_string(scenario.model.kind)),
                    "name the run folder of a translation model");
    }
    return scenario;
}

/// The language to translate into: the one that was asked for, or the only one that there is.
std::string wanted_language(const TranslateOptions& options,
                            const exec::PairVocabulary& vocabulary) {
    const std::vector<std::string>& known = vocabulary.languages();
    const bool is_known = std::ranges::find(known, options.to) != known.end();
    if (is_known || (options.to.empty() && known.size() == 1)) {
        return options.to.empty() ? known.front() : options.to;
    }
    throw Error(ErrorKind::Usage,
                "--to",
                fmt::format("{}, expected one of {}",
                            options.to.empty() ? "no language" : printable(options.to),
                            fmt::join(known, ", ")),
                fmt::format("--to {}", known.front()));
}

/// The vocabulary of a run, with the pieces that the run has kept.
exec::PairVocabulary vocabulary_of_run(const fs::path& run, const Scenario& scenario) {
    const Scenario::PairSettings& pairs = scenario.data.pairs;
    exec::TextPieces pieces;
    if (pairs.has_pieces()) {
        constexpr std::size_t most_bytes = std::size_t{256} << 20U;
        const fs::path file = run / run_file::pieces;
        pieces = exec::TextPieces::of_model(read_input(file.string(), most_bytes), file.string());
    }
    return exec::PairVocabulary(exec::target_languages(pairs), pieces);
}

/// Throws Error(BadInput), naming the place of the text, for one that the model cannot read.
void refuse_unreadable(const std::vector<PlacedText>& texts,
                       const exec::TextPieces& pieces,
                       int source_context) {
    const std::size_t room = static_cast<std::size_t>(source_context);
    const std::size_t most = room - std::min(room, exec::PairVocabulary::more_source_tokens);
    for (const PlacedText& text : texts) {
        if (!is_utf8(text.text)) {
            throw Error(ErrorKind::BadInput,
                        text.place,
                        "the text is not UTF-8",
                        "convert it: iconv -f ENCODING -t UTF-8");
        }
        if (const std::size_t size = pieces.ids(text.text).size(); size > most) {
            throw Error(ErrorKind::BadInput,
                        text.place,
                        fmt::format("a text of {}, expected at most {}, because the model's "
                                    "source_context is {} tokens",
                                    counted(size, pieces.noun()),
                                    most,
                                    source_context),
                        "translate its sentences one by one");
        }
    }
}

/// The pipelines of one rank on the CPU, with a mini-batch of `rows` samples.
SettledScenario on_one_rank(Scenario scenario, int rows) {
    scenario.cluster = {};
    scenario.pipeline = {};
    scenario.pipeline.stages = 1;
    scenario.pipeline.micro_batches = 1;
    scenario.training.batch = rows;
    return settle(scenario);
}

struct Translated {
    int steps_done = 0;
    fs::path checkpoint;
    std::vector<std::string> texts;
};

Translated translated(const TranslateOptions& options,
                      const Scenario& scenario,
                      const exec::PairVocabulary& vocabulary,
                      const std::vector<exec::TextToTranslate>& texts,
                      Console& console) {
    constexpr int most_rows = 64;
    const int rows = static_cast<int>(
        std::min<std::size_t>(texts.size() * static_cast<std::size_t>(options.beam), most_rows));
    const SettledScenario settled = on_one_rank(scenario, rows);
    const Model model = scenario_model(settled);
    exec::Replicas pipelines(
        exec::unmeasured_plan(settled, model), model, exec::executor_options(settled));
    const fs::path checkpoints = options.run / run_file::checkpoints;
    std::optional<exec::Checkpoints::Loaded> loaded;
    pipelines.with_parameters([&](const exec::TrainedParameters& parameters) {
        loaded = exec::Checkpoints(checkpoints).load(parameters);
    });
    if (!loaded) {
        throw Error(ErrorKind::BadInput,
                    checkpoints.string(),
                    "no checkpoint: a run that ends within ten minutes keeps none by default",
                    "train with --set output.checkpoint_every=N, which writes one every N steps "
                    "and at the end");
    }
    for (const std::string& damaged : loaded->damaged) {
        console.note(fmt::format("a damaged checkpoint is left out: {}", damaged));
    }
    console.note(fmt::format("weights after {}, from {}",
                             counted(loaded->about.steps_done, "step"),
                             loaded->folder.string()));
    Progress progress(console, "translating");
    return {.steps_done = loaded->about.steps_done,
            .checkpoint = loaded->folder,
            .texts = exec::translate(pipelines,
                                     model,
                                     vocabulary,
                                     texts,
                                     options.beam,
                                     loaded->about.steps_done,
                                     [&](double share) { progress.update(share); })};
}

void execute_translate(const TranslateOptions& options, Console& console) {
    expect_kind(options.run, {FileKind::RunFolder}, "the run folder of a training run");
    const std::vector<PlacedText> wanted = wanted_texts(options);
    const Scenario scenario = scenario_of_run(options.run);
    const exec::PairVocabulary vocabulary = vocabulary_of_run(options.run, scenario);
    const std::string language = wanted_language(options, vocabulary);
    refuse_unreadable(wanted, vocabulary.pieces(), scenario.model.translation.source_context);
    std::vector<exec::TextToTranslate> texts;
    for (const PlacedText& text : wanted) {
        if (!text.text.empty()) {
            texts.push_back({.text = text.text, .language = language});
        }
    }
    const Translated found = translated(options, scenario, vocabulary, texts, console);
    Json json = json_head();
    json["run"] = options.run.string();
    json["checkpoint"] = found.checkpoint.string();
    json["steps_done"] = found.steps_done;
    json["to"] = language;
    json["beam"] = options.beam;
    json["translations"] = Json::array();
    std::string lines;
    auto next = found.texts.begin();
    for (const PlacedText& text : wanted) {  // a line for each line, an empty one for an empty one
        const std::string translation = text.text.empty() ? std::string() : *next++;
        json["translations"].push_back({{"text", text.text}, {"translation", translation}});
        lines += printable(translation) + '\n';
    }
    write_result(json_text(json), options.common, console);
    console.result(options.common.json ? json_text(json) : lines);
}

Command declare_translate(CLI::App& app) {
    const auto options = std::make_shared<TranslateOptions>();
    takes_out_file(app);
    reads_no_scenario(app);
    app.add_option("run", options->run, "Run folder in which the model was trained")
        ->type_name("RUN")
        ->required();
    app.add_option("--text", options->texts, "Text to translate; can be repeated")
        ->type_name("TEXT")
        ->take_all()
        ->expected(1)
        ->allow_extra_args(false);
    app.add_option("--file", options->file, "File with one text per line; - is standard input")
        ->type_name("FILE")
        ->excludes("--text");
    app.add_option(
           "--to", options->to, "Language to translate into (needed if the model knows several)")
        ->type_name("LANGUAGE");
    app.add_option("--beam",
                   options->beam,
                   "Width of the beam search: hypotheses kept at each token (default 1: greedy)")
        ->type_name("N")
        ->check(CLI::Range(1, 64));
    return command_with(options, execute_translate);
}

}  // namespace

CommandRow translate_command() {
    return {.name = "translate",
            .help = "Translate texts with a trained translation model",
            .declare = declare_translate};
}

}  // namespace pipetwin::cli
