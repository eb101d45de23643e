// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "exec/data/batch.h"

/// The kinds of data, one file each.
namespace pipetwin::exec {

/// Opens a kind of data for a use.
using DataOpener = std::unique_ptr<DataSource>(const ScenarioParts& scenario,
                                               const Model& model,
                                               DataUse use);

/// Bytes as tokens: sample = context + 1 consecutive bytes at a random place; targets are the
/// inputs shifted by one. `data.path` is a file, or a folder whose regular files are read in byte
/// order of their names (links are skipped).
DataOpener open_text;

/// Files of tokens: llm.c's (GPT-2's 16 bits or Llama 3's 32, behind a header) and nanoGPT's (16
/// bits without one). `data.path` as for text; nothing is read before it is needed. Samples are
/// windows of the context's length, each once an epoch in an order that seed and epoch give. Throws
/// Error(BadInput) for a header that does not fit its file, or fewer samples than a batch has.
DataOpener open_tokens;

/// The handwritten digits, or pieces of clothing: `data.path` is a folder with
/// train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz, and perhaps the t10k- files,
/// for validation. A model reads them as images, or as one row of numbers.
DataOpener open_mnist;

/// CIFAR-10's binary version: `data.path` is the folder of data_batch_1.bin to data_batch_5.bin and
/// test_batch.bin, the latter for validation. Images are read when they are needed.
DataOpener open_cifar10;

/// Files of one image each: `data.path` is a folder with a folder for each class, whose number is
/// its place in the byte order of names. Nothing but headers is read before it is needed.
DataOpener open_images;

/// Images with a class for each pixel: `data.path` is a folder with the folders `images` and
/// `masks`, whose files are called alike but for the ending. A mask's value is the class; with two
/// classes 255 is the second one, too.
DataOpener open_segmentation;

/// MNIST's images in the middle of the model's, without labels: the target of a pixel is 1 where
/// the image is above 0.
DataOpener open_silhouettes;

/// Texts with their translations, which a translation model reads byte by byte
/// (exec/data/pairs/pair_tokens.h): message catalogues of installed programs, or files of the
/// user's. Longer ones than the model's contexts are left out, and one in fifty, by its English
/// text, is kept for validation. Samples follow from (seed, step, sample) alone: a language by
/// exec/data/pairs/language_draw.h, and of its pairs each once before one comes again.
DataOpener open_pairs;

/// Made from the seed alone, and learnable. Real inputs: one Gaussian cluster per class. Token
/// inputs: sequences in which the next token follows from the one before it by a rule drawn from
/// the seed, except where a tenth of them is noise. Token inputs with a source: sequences of random
/// tokens, between half and all of the context, and their translation token for token.
DataOpener make_synthetic;

/// The files that are read, and the part of them: of each file or of all together, from share
/// `begin` to `end`.
struct DataRange {
    std::filesystem::path path;
    double begin = 0;
    double end = 1;

    /// The first of `count` elements that is in the range.
    std::size_t begin_in(std::size_t count) const;
    /// The one behind the last of `count` elements that is in the range.
    std::size_t end_in(std::size_t count) const;
};

/// The files and the part of them for a use. Relative paths start at the scenario's folder.
DataRange data_range(const ScenarioParts& scenario, DataUse use);

/// Whether validation reads the files for tests that this kind of data has: it does where
/// data.validation says nothing else.
bool reads_test_files(const ScenarioParts& scenario, DataUse use);

/// Number of token ids in a sample of the model. Throws Error(BadInput) if it reads something else
/// than the token ids that data of this `kind` gives.
int token_positions(const Model& model, std::string_view kind);

/// Number of different token ids that the model's embedding has.
int vocabulary_of(const Model& model);

/// Number of token ids in front of a sample that are its source; 0: the model has one sequence.
int source_positions_of(const Model& model);

/// Number of classes that the model's loss tells apart: 2 for the binary one. Throws
/// Error(BadInput) if its last layer is no loss.
int classes_of(const Model& model);

/// Number of targets of a sample that the model's loss reads. Throws as `classes_of`.
int target_positions_of(const Model& model);

}  // namespace pipetwin::exec
