// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "exec/base/element_range.h"
#include "exec/device/device_failure.h"
#include "exec/device/kernels.h"
#include "exec/device/tensor.h"
#include "exec/gpu/cuda_module.h"
#include "exec/transport/nccl_process_group.h"
#include "tests/support/places.h"

/// Links and sums by NCCL between processes, which this program starts again for. On the emulation,
/// and on a GPU: of one GPU NCCL takes several processes only where NCCL_HOSTID tells it that they
/// are on hosts of their own.
namespace pipetwin::exec {
namespace link_test {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* part_variable = "PIPETWIN_LINK_PART";
constexpr const char* folder_variable = "PIPETWIN_LINK_FOLDER";
constexpr const char* place_variable = "PIPETWIN_LINK_PLACE";
constexpr const char* connected_file = "connected";
constexpr std::chrono::seconds patience{30};

std::string from_environment(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

std::string free_port() {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    ::bind(socket, any, sizeof address);
    socklen_t size = sizeof address;
    ::getsockname(socket, any, &size);
    ::close(socket);
    return std::to_string(ntohs(address.sin_port));
}

/// Many, so that several wait, and more than a stream takes on the emulation, with sizes that NCCL
/// has different ways for.
std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> all;
    for (int round = 0; round < 4; ++round) {
        for (const int kibibytes : {1, 64, 4096, 3, 1000}) {
            all.push_back(std::int64_t{kibibytes} << 10);
        }
    }
    return all;
}

std::vector<std::byte> content(std::size_t message, std::int64_t bytes) {
    std::vector<std::byte> content(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < content.size(); ++i) {
        content[i] = static_cast<std::byte>((i / 4 * 31 + message * 7 + i) % 251);
    }
    return content;
}

template <class Done>
void wait_until(const Done& done) {
    const auto begin = Clock::now();
    while (!done()) {
        ASSERT_LT(Clock::now() - begin, patience) << "nothing comes";
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

/// How many processes sum.
constexpr int summing = 3;

/// Tensors whose numbers have other sums in other orders.
class Lists {
  public:
    Lists(Device& device, const std::vector<std::int64_t>& counts) : device_(device) {
        for (const std::int64_t count : counts) {
            Tensor& tensor =
                tensors_.emplace_back(Tensor::detached(device.memory(), DType::F32, 1, count));
            numbers_.push_back({.data = tensor.data(), .count = count});
            count_ += count;
        }
    }

    std::span<const GpuNumbers> numbers() const { return numbers_; }
    std::int64_t count() const { return count_; }

    void fill(int member) const {
        for (std::size_t list = 0; list < tensors_.size(); ++list) {
            std::vector<float> all(static_cast<std::size_t>(numbers_[list].count));
            for (std::size_t i = 0; i < all.size(); ++i) {
                all[i] = number(member, list, i);
            }
            device_.kernels().upload(std::span<const std::byte>(std::as_bytes(std::span(all))),
                                     View(tensors_[list]));
        }
        device_.finish();
    }

    /// Those of the range, counted through all lists, are sums in the order of the members.
    void expect_sums(const ElementRange& range) const {
        std::int64_t passed = 0;
        for (std::size_t list = 0; list < tensors_.size(); ++list) {
            std::vector<float> found(static_cast<std::size_t>(numbers_[list].count));
            device_.kernels().download(ConstView(tensors_[list]),
                                       std::as_writable_bytes(std::span(found)));
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < found.size(); ++i, ++passed) {
                if (passed < range.begin || passed >= range.end()) {
                    continue;
                }
                float sum = number(0, list, i);
                for (int member = 1; member < summing; ++member) {
                    sum += number(member, list, i);
                }
                wrong += found[i] == sum ? 0 : 1;
            }
            EXPECT_EQ(wrong, 0) << "list " << list;
        }
    }

  private:
    static float number(int member, std::size_t list, std::size_t i) {
        const auto part = static_cast<float>((i * 37 + list * 11 + 5) % 101);
        return (member == 1 ? -1.0F : 1.0F) * (1e7F + part / 7.0F) +
               static_cast<float>(member) * 0.3F;
    }

    Device& device_;
    mutable std::vector<Tensor> tensors_;
    std::vector<GpuNumbers> numbers_;
    std::int64_t count_ = 0;
};

/// What one of several processes does.
class Part {
  public:
    Part() : devices_(make_cuda_devices({.own_multiprocessors = false, .memory = memory})) {
        device().enter_thread();
    }

    void send() {
        const auto link = links_.make(new_id(), true, LinkMemory::Gpu);
        std::vector<Tensor> messages = tensors();
        for (std::size_t i = 0; i < messages.size(); ++i) {
            device().kernels().upload(std::span<const std::byte>(content(i, sizes()[i])),
                                      View(messages[i]));
        }
        device().finish();
        expect_connection(*link);
        for (Tensor& message : messages) {
            link->add(message.data(), message.bytes());
        }
        wait_until([&] { return link->complete() == std::ssize(messages); });
        EXPECT_TRUE(link->all_begun());
    }

    void receive() {
        const auto link = links_.make(id(), false, LinkMemory::Gpu);
        std::vector<Tensor> messages = tensors();
        expect_connection(*link);
        for (Tensor& message : messages) {
            link->add(message.data(), message.bytes());
        }
        wait_until([&] { return link->complete() == std::ssize(messages); });
        for (std::size_t i = 0; i < messages.size(); ++i) {
            std::vector<std::byte> found(static_cast<std::size_t>(sizes()[i]));
            device().kernels().download(ConstView(messages[i]), found);
            EXPECT_TRUE(found == content(i, sizes()[i])) << "message " << i;
        }
    }

    void meet_as_first() { meet(0); }
    void meet_as_second() { meet(1); }

    template <int member>
    void sum() {
        sum_up({.index = member, .count = summing});
    }

    /// Of a sender that is gone before it has sent.
    void go_away() {
        const auto link = links_.make(new_id(), true, LinkMemory::Gpu);
        wait_until([&] { return fs::exists(folder_ / "waits"); });
    }

    void miss() {
        const auto link = links_.make(id(), false, LinkMemory::Gpu);
        Tensor place = Tensor::detached(device().memory(), DType::I32, 1, 1);
        link->add(place.data(), place.bytes());
        wait_until([&] { return link->all_begun(); });
        std::ofstream(folder_ / "waits") << "yes";
        EXPECT_THROW(wait_until([&] { return link->complete() == 1; }), DeviceFailure);
    }

  private:
    /// NCCL lets the processes talk: whatever goes wrong from here on is a failure.
    void tell_of_connection() const { std::ofstream(folder_ / connected_file) << "yes"; }
    void expect_connection(GpuTraffic& traffic) const {
        wait_until([&] { return traffic.is_connected(); });
        if (traffic.is_connected()) {
            tell_of_connection();
        }
    }

    static constexpr Bytes memory{std::int64_t{64} << 20};

    /// All that a ProcessGroup of NCCL alone does: gathers, mail in several pieces, and an end.
    void meet(int index) {
        const auto group =
            join_nccl(links_, from_environment(place_variable), {.index = index, .count = 2});
        tell_of_connection();
        const auto other = static_cast<std::size_t>(1 - index);
        const auto own = static_cast<std::size_t>(index);
        const auto all = group->all_gather(content(own, 200'000));
        EXPECT_TRUE(all.at(other) == content(other, 200'000));
        group->send(1 - index, content(own, 5'000'000));
        EXPECT_TRUE(group->receive(1 - index) == content(other, 5'000'000));
        EXPECT_TRUE(group->final_barrier({}, patience).has_value());
        group->finalize();
    }

    void sum_up(const GpuMember& self) {
        const auto sum = links_.make_sum(self.index == 0 ? new_id() : id(), self);
        expect_connection(*sum);
        // Shares and pieces of them begin and end within tensors.
        const Lists many(device(), {1, 7, 2'100'001, 100, 1'100'003, 64});
        many.fill(self.index);
        sum->add(many.numbers(), {});
        wait_until([&] { return sum->complete() == 1; });
        EXPECT_TRUE(sum->all_begun());
        many.expect_sums({.begin = 0, .size = many.count()});

        const Lists few(device(), {5, 1, 1000, 70});
        few.fill(self.index);
        std::vector<ElementRange> shares;
        for (int member = 0; member < summing; ++member) {
            shares.push_back(share_of(few.count(), member, summing));
        }
        sum->add(few.numbers(), shares);
        wait_until([&] { return sum->complete() == 2; });
        few.expect_sums(shares[as_index(self.index)]);
        sum->exchange(few.numbers(), shares, {}, sizeof(float));
        wait_until([&] { return sum->complete() == 3; });
        few.expect_sums({.begin = 0, .size = few.count()});

        const Lists one(device(), {1});  // not enough for all
        one.fill(self.index);
        sum->add(one.numbers(), {});
        sum->add({}, {});
        sum->exchange({}, std::vector<ElementRange>(as_index(summing)), {}, 2);
        wait_until([&] { return sum->complete() == 6; });
        one.expect_sums({.begin = 0, .size = 1});
    }

    Device& device() { return *devices_.front(); }

    std::vector<Tensor> tensors() {
        std::vector<Tensor> all;
        for (const std::int64_t size : sizes()) {
            all.push_back(Tensor::detached(device().memory(), DType::I32, 1, size / 4));
        }
        return all;
    }

    std::vector<std::byte> new_id() const {
        std::vector<std::byte> id = links_.make_id();
        std::ofstream(folder_ / "id.new", std::ios::binary)
            .write(reinterpret_cast<const char*>(id.data()), std::ssize(id));
        fs::rename(folder_ / "id.new", folder_ / "id");
        return id;
    }

    std::vector<std::byte> id() const {
        wait_until([this] { return fs::exists(folder_ / "id"); });
        std::ifstream file(folder_ / "id", std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const auto bytes = std::as_bytes(std::span(text));
        return {bytes.begin(), bytes.end()};
    }

    fs::path folder_ = from_environment(folder_variable);
    std::vector<std::unique_ptr<Device>> devices_;
    GpuLinks links_ = cuda_links(0);
};

class GpuLinkTest : public ::testing::Test {
  protected:
    void SetUp() override {
#ifdef PIPETWIN_EMULATED
        ::setenv("PIPETWIN_MODULE_PATH", places::emulated_module_folder().c_str(), 1);
#else
        ::setenv("PIPETWIN_MODULE_PATH", places::program_folder().c_str(), 0);
#endif
        if (const CudaProbe probe = probe_cuda(); probe.state != CudaState::Available) {
            GTEST_SKIP() << "needs a GPU: " << probe.detail;
        }
    }

    struct Role {
        std::string name;
        void (Part::*play)();
    };

    /// This test again, in processes that play these roles; of those this one plays its own.
    static void in_processes(const std::vector<Role>& roles) {
        const std::string own = from_environment(part_variable);
        for (const Role& role : roles) {
            if (role.name == own) {
                Part part;
                (part.*role.play)();
                return;
            }
        }
        const fs::path folder =
            fs::temp_directory_path() / ("pipetwin-link-" + std::to_string(::getpid()));
        fs::create_directory(folder);
        const auto& test = *::testing::UnitTest::GetInstance()->current_test_info();
        const std::string filter =
            std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name();
        const std::string place = std::string(place_variable) + "=127.0.0.1:" + free_port();
        std::vector<pid_t> children;
        for (const Role& role : roles) {
            std::vector<std::string> variables{std::string(part_variable) + "=" + role.name,
                                               std::string(folder_variable) + "=" + folder.string(),
                                               place,
                                               "NCCL_HOSTID=" + role.name,
                                               "NCCL_SOCKET_IFNAME=lo"};
            for (char** variable = environ; *variable != nullptr; ++variable) {
                variables.emplace_back(*variable);
            }
            std::vector<char*> environment;
            for (std::string& variable : variables) {
                environment.push_back(variable.data());
            }
            environment.push_back(nullptr);
            std::string program = fs::read_symlink("/proc/self/exe").string();
            std::string argument = filter;
            std::array<char*, 3> words{program.data(), argument.data(), nullptr};
            pid_t child = 0;
            ASSERT_EQ(
                posix_spawn(
                    &child, program.c_str(), nullptr, nullptr, words.data(), environment.data()),
                0);
            children.push_back(child);
        }
        bool well = true;
        for (const pid_t child : children) {
            int status = 0;
            waitpid(child, &status, 0);
            well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        const bool were_connected = fs::exists(folder / connected_file);
        fs::remove_all(folder);
#ifdef PIPETWIN_EMULATED
        static_cast<void>(were_connected);
        EXPECT_TRUE(well);
#else
        EXPECT_TRUE(well || !were_connected) << "see what the processes said above";
        if (!well && !were_connected) {
            GTEST_SKIP() << "NCCL takes no several processes on this GPU: see what they said above";
        }
#endif
    }
};

TEST_F(GpuLinkTest, CarriesMessagesInOrderFromProcessToProcess) {
    in_processes({{"sends", &Part::send}, {"receives", &Part::receive}});
}

TEST_F(GpuLinkTest, ProcessesMeetByItAlone) {
    in_processes({{"first", &Part::meet_as_first}, {"second", &Part::meet_as_second}});
}

/// The bits of a sum in the order of the members, whichever share a number is in.
TEST_F(GpuLinkTest, SumsAreAddedUpInTheOrderOfTheMembers) {
    in_processes({{"0", &Part::sum<0>}, {"1", &Part::sum<1>}, {"2", &Part::sum<2>}});
}

#ifdef PIPETWIN_EMULATED
TEST_F(GpuLinkTest, FailsWhereTheOtherEndHasGone) {
    in_processes({{"goes", &Part::go_away}, {"misses", &Part::miss}});
}
#endif

}  // namespace link_test
}  // namespace pipetwin::exec
