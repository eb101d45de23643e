// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/executor/executor.h"
#include "exec/training/checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"
#include "tests/support/soak.h"

/// What is left on a disk when the power goes: an ext4 in a file, which is told to shut down
/// without writing anything more, is mounted again.
namespace pipetwin::exec {
namespace power_loss_test {

namespace fs = std::filesystem;

/// As in the kernel's fs/ext4/ext4.h.
constexpr unsigned long shut_down = _IOR('X', 125, std::uint32_t);
constexpr std::uint32_t without_flushing_the_log = 2;

bool runs(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) ==
           0;  // NOLINT: the tests' own words
}

class Disk {
  public:
    explicit Disk(const fs::path& folder) : image_(folder / "image"), mounted_(folder / "disk") {
        constexpr std::uintmax_t bytes = std::uintmax_t{32} << 20U;
        std::ofstream(image_).close();
        fs::resize_file(image_, bytes);
        fs::create_directory(mounted_);
        usable_ = geteuid() == 0 && runs("mkfs.ext4 -q " + image_.string()) && mount();
    }
    Disk(const Disk&) = delete;
    Disk& operator=(const Disk&) = delete;
    ~Disk() {
        if (usable_) {
            runs("umount " + mounted_.string());
        }
    }

    bool usable() const { return usable_; }
    const fs::path& path() const { return mounted_; }

    /// False where this system knows no such thing.
    bool lose_power() const {
        const int folder = open(mounted_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const bool done = ioctl(folder, shut_down, &without_flushing_the_log) == 0;
        close(folder);
        return done;
    }
    /// When nobody uses it.
    bool come_back() { return runs("umount " + mounted_.string()) && mount(); }

  private:
    bool mount() const {
        return runs("mount -o loop " + image_.string() + " " + mounted_.string());
    }

    fs::path image_;
    fs::path mounted_;
    bool usable_ = false;
};

TEST(PowerLoss, WhatWasSavedIsThereAndWhole) {
    const Model model = test::small_gpt();
    const test::Shape shape{.stages = 2};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    std::mt19937_64 random(tests::seed());
    int lost = 0;
    for (int round = 0; round < tests::soaked(2); ++round) {
        const tests::ScratchFolder scratch;
        Disk disk(scratch.path());
        if (!disk.usable()) {
            GTEST_SKIP() << "only root can mount a disk, and not in every container";
        }
        const Checkpoints checkpoints(disk.path() / "checkpoints");
        std::atomic<int> saved = 0;
        std::atomic<bool> ends = false;
        std::thread training([&] {
            try {
                while (!ends) {
                    checkpoints.save({.steps_done = saved + 1}, executor.trained());
                    ++saved;
                }
            } catch (const Error& error) {
                EXPECT_EQ(error.kind(), ErrorKind::Io) << error.what();
            }
        });
        const int first = 1 + static_cast<int>(random() % 4);
        while (saved < first) {
            std::this_thread::yield();
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
        const bool known = disk.lose_power();
        ends = true;
        training.join();
        if (!known) {
            GTEST_SKIP() << "this kernel's ext4 cannot be shut down";
        }
        ++lost;
        ASSERT_TRUE(disk.come_back());
        const auto loaded = checkpoints.load(executor.trained());
        ASSERT_TRUE(loaded) << "seed " << tests::seed() << ", round " << round;
        // One more than was acknowledged may have got its name.
        EXPECT_GE(loaded->about.steps_done, saved)
            << "seed " << tests::seed() << ", round " << round;
        EXPECT_LE(loaded->about.steps_done, saved + 1);
        EXPECT_TRUE(loaded->damaged.empty()) << loaded->damaged.front();
    }
    RecordProperty("lost", lost);
}

}  // namespace power_loss_test
}  // namespace pipetwin::exec
