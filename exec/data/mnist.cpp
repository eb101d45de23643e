#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/input_file.h"
#include "exec/base/random.h"
#include "exec/data/files.h"
#include "exec/data/sources.h"

// The IDX format: a big-endian header (0, 0, type, number of dimensions, then each dimension as 32
// bits), then the elements, the last dimension fastest. Type 8 is unsigned bytes.
namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t images_magic = 0x00000803;
constexpr std::uint32_t labels_magic = 0x00000801;
constexpr std::uint64_t largest_file = std::uint64_t{4} << 30U;

[[noreturn]] void refuse(const fs::path& path, std::string text, std::string hint = {}) {
    throw Error(ErrorKind::BadInput, path.string(), std::move(text), std::move(hint));
}

/// The file of this name in `folder`, plain or with .gz.
fs::path find_file(const fs::path& folder, const std::string& name) {
    for (const char* const suffix : {"", ".gz"}) {
        fs::path path = folder / (name + suffix);
        std::error_code error;
        if (fs::is_regular_file(path, error)) {
            return path;
        }
    }
    const std::string hint = "data.path is the folder with the four files of MNIST";
    if (std::error_code error; !fs::is_directory(folder, error)) {
        refuse(folder, "there is no such folder", hint);
    }
    refuse(folder,
           fmt::format("neither {0} nor {0}.gz is in this folder, expected one of them", name),
           hint);
}

/// Reads a plain or gzipped file from its beginning to its end.
class IdxReader {
  public:
    explicit IdxReader(fs::path path) : path_(std::move(path)) {
        InputFile input(path_);
        file_.reset(::gzdopen(input.descriptor(), "rb"));
        if (!file_) {
            throw Error(ErrorKind::Io,
                        path_.string(),
                        fmt::format("cannot be opened: {}", std::strerror(errno)));
        }
        input.release();  // which gzclose closes now
    }

    std::uint32_t number() {
        std::array<unsigned char, 4> bytes{};
        read(bytes, "a header");
        std::uint32_t value = 0;
        for (const unsigned char byte : bytes) {
            value = value << 8U | byte;
        }
        return value;
    }

    void expect(std::uint32_t wanted, const char* what) {
        const std::uint32_t found = number();
        if (found != wanted) {
            refuse(path_,
                   fmt::format(
                       "begins with 0x{:08x}, expected 0x{:08x}: IDX, {}", found, wanted, what));
        }
    }

    std::vector<unsigned char> bytes(std::uint64_t count) {
        if (count > largest_file) {
            refuse(path_,
                   fmt::format("promises {} bytes, expected at most {}", count, largest_file));
        }
        std::vector<unsigned char> data(count);
        read(data, "what the header promises");
        unsigned char more = 0;
        if (read_some(std::span(&more, 1)) != 0) {
            refuse(path_,
                   fmt::format("goes on after the {} bytes that its header promises", count));
        }
        return data;
    }

  private:
    struct Close {
        void operator()(gzFile file) const { ::gzclose(file); }
    };

    std::size_t read_some(std::span<unsigned char> to) {
        const int got = ::gzread(file_.get(), to.data(), static_cast<unsigned>(to.size()));
        int code = Z_OK;
        const char* const text = ::gzerror(file_.get(), &code);
        if (got < 0 || code != Z_OK) {  // Z_BUF_ERROR: the compressed stream ends too early
            refuse(path_, fmt::format("is damaged: {}", text));
        }
        return as_index(got);
    }

    void read(std::span<unsigned char> to, const char* what) {
        constexpr std::size_t at_once = std::size_t{1} << 24U;
        const std::size_t wanted = to.size();
        while (!to.empty()) {
            const std::size_t got = read_some(to.first(std::min(at_once, to.size())));
            if (got == 0) {
                refuse(path_,
                       fmt::format("ends {} bytes before {} is complete, expected {} bytes",
                                   to.size(),
                                   what,
                                   wanted));
            }
            to = to.subspan(got);
        }
    }

    fs::path path_;
    std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

class Mnist final : public DataSource {
  public:
    Mnist(const DataRange& range, int inputs, int classes, std::uint64_t seed)
        : inputs_(as_index(inputs)), random_(seed) {
        read_images(find_file(range.path, "train-images-idx3-ubyte"));
        read_labels(find_file(range.path, "train-labels-idx1-ubyte"), classes);
        first_ = range.begin_in(labels_.size());
        count_ = range.end_in(labels_.size()) - first_;
        if (count_ == 0) {
            refuse(range.path,
                   fmt::format("no image is left of {}", labels_.size()),
                   "change data.validation, the share that is held out");
        }
    }

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = 1,
                    .width = static_cast<int>(inputs_),
                    .target_positions = 1,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        const RandomStream choice = random_.of(static_cast<std::uint64_t>(step));
        batch.values.reserve(as_index(samples) * inputs_);
        for (int s = 0; s < samples; ++s) {
            const std::size_t image = first_ + choice.below(static_cast<std::uint64_t>(s), count_);
            for (const unsigned char pixel : std::span(pixels_).subspan(image * inputs_, inputs_)) {
                batch.values.push_back(static_cast<float>(pixel) / 255.0F);
            }
            batch.targets.push_back(labels_[image]);
        }
        return batch;
    }

    void add_content(ContentHash& hash) const override {
        hash.add(std::as_bytes(std::span(pixels_)));
        hash.add(std::as_bytes(std::span(labels_)));
    }

    std::string description() const override {
        return fmt::format("mnist, {}", counted(count_, "image"));
    }

  private:
    void read_images(const fs::path& path) {
        IdxReader file(path);
        file.expect(images_magic, "unsigned bytes in 3 dimensions");
        const std::uint64_t count = file.number();
        const std::uint64_t rows = file.number();
        const std::uint64_t columns = file.number();
        if (rows * columns != inputs_) {
            refuse(path,
                   fmt::format("images of {} x {} pixels, but the model reads {}",
                               rows,
                               columns,
                               counted(inputs_, "number")),
                   fmt::format("set the first of model.sizes to {}", rows * columns));
        }
        if (count == 0 || count > largest_file) {
            refuse(
                path,
                fmt::format("{} images, expected at least 1 and at most {}", count, largest_file));
        }
        pixels_ = file.bytes(count * rows * columns);
    }

    void read_labels(const fs::path& path, int classes) {
        IdxReader file(path);
        file.expect(labels_magic, "unsigned bytes in 1 dimension");
        const std::uint64_t count = file.number();
        if (count * inputs_ != pixels_.size()) {
            refuse(path,
                   fmt::format("{}, expected {}: one for each image",
                               counted(count, "label"),
                               pixels_.size() / inputs_));
        }
        labels_ = file.bytes(count);
        for (std::size_t i = 0; i < labels_.size(); ++i) {
            if (labels_[i] >= classes) {
                constexpr std::size_t header_bytes = 8;
                refuse(place_in(path, header_bytes + i),
                       fmt::format(
                           "label {} of image {}, expected 0 to {}", labels_[i], i, classes - 1),
                       "let the model end with as many outputs as there are labels, or mend the "
                       "file");
            }
        }
    }

    std::size_t inputs_;
    RandomStream random_;
    std::vector<unsigned char> pixels_;
    std::vector<unsigned char> labels_;
    std::size_t first_ = 0;  ///< of the images that are read
    std::size_t count_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> open_mnist(const ScenarioParts& scenario,
                                       const Model& model,
                                       DataUse use) {
    const SampleShape& input = model.layer(0).input;
    if (input.token_ids || input.positions != 1) {
        throw Error(ErrorKind::BadInput,
                    "data.kind",
                    fmt::format("\"mnist\" gives 784 numbers per sample, but the model reads {}",
                                to_string(input)),
                    "use model.kind = \"mlp\" with sizes = [784, ..., 10]");
    }
    return std::make_unique<Mnist>(
        data_range(scenario, use), input.width, classes_of(model), scenario.training.seed);
}

}  // namespace pipetwin::exec
