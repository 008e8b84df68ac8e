// The promises of every backend under faults: no wrong byte in a transfer that is reported as complete, an
// end for every transfer within its time, no page lost.
#include "transfer/transfer.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/rng.h"
#include "transfer/faulty_transfer.h"
#include "transfer/landing.h"
#include "transfer/socket_transfer.h"

namespace fathom::transfer {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kPages = 24, kPageBytes = 4096;

enum class Backend { memcpy, shared_memory, tcp };

class TransferTest : public testing::TestWithParam<Backend> {
 protected:
  explicit TransferTest(std::chrono::milliseconds lease = 30s)
      : landing_({.pages = kPages, .page_bytes = kPageBytes, .lease = lease}) {}
  void SetUp() override {
    if (GetParam() == Backend::memcpy) return;
    auto server = LandingServer::listen(landing_, "127.0.0.1");
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(server).value();
  }

  std::unique_ptr<Transfer> writer() {
    if (GetParam() == Backend::memcpy) return memcpy_transfer(landing_);
    auto connected = connect({.host   = "127.0.0.1",
                              .port   = server_->port(),
                              .memory = GetParam() == Backend::tcp ? "" : landing_.memory().path()},
                             20s);
    EXPECT_TRUE(connected) << connected.error().message;
    return std::move(connected).value();
  }

  Landing::Done note(int number) {
    return [this, number](Outcome outcome) {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(outcomes_.emplace(number, outcome).second) << "two ends";
      changed_.notify_all();
    };
  }
  // In a process of its own a copy has no server, so nobody else looks at the clock.
  std::optional<Outcome> outcome_of(int number) {
    if (GetParam() == Backend::memcpy) landing_.expire(Clock::now() + 1h);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 60s, [&] { return outcomes_.contains(number); });
    const auto at = outcomes_.find(number);
    return at == outcomes_.end() ? std::nullopt : std::optional(at->second);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (const auto end = Clock::now() + 60s; Clock::now() < end; std::this_thread::sleep_for(1ms))
      if (condition()) return true;
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Outcome> outcomes_;
  Landing landing_;
  std::unique_ptr<LandingServer> server_;
};

std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  std::vector<uint32_t> words(count / 4 + 1);
  fill_integers(words.data(), static_cast<int64_t>(words.size()), seed, int64_t{0}, int64_t{1} << 32);
  const auto* from = reinterpret_cast<const std::byte*>(words.data());
  return {from, from + count};
}

struct Message {
  std::vector<std::vector<std::byte>> slices;

  explicit Message(uint64_t seed) {
    const auto dice        = philox({static_cast<uint32_t>(seed), 1, 2, 3}, {4, 5});
    const uint64_t sizes[] = {0, 1, kPageBytes - 1, kPageBytes, 1021};
    for (uint32_t i = 0; i <= dice[0] % 8; ++i)
      slices.push_back(random_bytes(sizes[(dice[1] + i * dice[2]) % 5], seed * 100 + i));
  }
  std::vector<uint64_t> sizes() const {
    std::vector<uint64_t> sizes;
    for (const auto& bytes : slices) sizes.push_back(bytes.size());
    return sizes;
  }
  std::vector<Slice> scatter() const {
    std::vector<Slice> scatter;
    for (const auto& bytes : slices) scatter.push_back({static_cast<uint32_t>(scatter.size()), bytes});
    return scatter;
  }
};

// With a lease that lost slices let pass. On a slow machine others may lose it as well.
class FaultyTransferTest : public TransferTest {
 protected:
  FaultyTransferTest() : TransferTest(80ms) {}
};

// Transfers beside each other, each with a writer that has faults of its own; some are revoked halfway, and
// what was delayed arrives after that.
TEST_P(FaultyTransferTest, UnderFaultsACompleteTransferIsRightAndEveryOneEnds) {
  const int rounds = GetParam() == Backend::memcpy ? 200 : 8;
  int complete = 0, ended_otherwise = 0, number = 0;
  for (int round = 0; round < rounds; ++round) {
    struct Running {
      int number;
      Message message;
      Grant grant;
      std::unique_ptr<FaultyTransfer> writer;
    };
    std::vector<Running> running;
    for (int i = 0; i < 3; ++i) {
      const auto seed = static_cast<uint64_t>(++number);
      Message message(seed);
      const auto granted = landing_.grant(message.sizes(), Clock::now(), note(number));
      ASSERT_TRUE(granted);
      const double often = round % 4 == 0 ? 0 : 0.06;  // every fourth has harmless faults only
      running.push_back(
          {number, std::move(message), *granted,
           std::make_unique<FaultyTransfer>(
               writer(),
               Faults{.drop = often, .duplicate = 0.2, .delay = 0.3, .partial = often, .cut = often / 2},
               seed)});
    }
    for (Running& r : running) {
      const auto scatter = r.message.scatter();
      const size_t half  = scatter.size() / 2;
      const bool ok      = write(*r.writer, r.grant, std::span(scatter).first(half)).has_value();
      if (r.number % 7 == 0) landing_.revoke(r.grant.tag);
      if (ok) (void)write(*r.writer, r.grant, std::span(scatter).subspan(half));
    }
    for (Running& r : running) r.writer->flush();
    for (Running& r : running) {
      const auto outcome = outcome_of(r.number);
      ASSERT_TRUE(outcome) << "transfer " << r.number << " has no end";
      if (*outcome != Outcome::complete) {
        ++ended_otherwise;
        continue;
      }
      ++complete;
      for (uint32_t i = 0; i < r.message.slices.size(); ++i)
        EXPECT_TRUE(std::ranges::equal(landing_.slice(r.grant, i), r.message.slices[i]))
            << "transfer " << r.number << ", slice " << i;
      landing_.release(r.grant.tag);
    }
    running.clear();  // closes the connections, so that no page stays in quarantine
    ASSERT_TRUE(eventually([&] { return landing_.free_pages() == kPages; })) << "a page is lost";
  }
  EXPECT_GT(complete, 0);
  EXPECT_GT(ended_otherwise, 0);
}

TEST_P(TransferTest, AFailedSliceEndsTheTransferAtOnce) {
  const Message message(3);
  const auto granted = landing_.grant(message.sizes(), Clock::now(), note(0));
  const auto way     = writer();
  (void)mark_failed(*way, *granted, static_cast<uint32_t>(message.slices.size()) - 1);
  if (GetParam() == Backend::memcpy) {
    EXPECT_EQ(outcomes_.at(0), Outcome::failed);
  } else {
    EXPECT_EQ(outcome_of(0), Outcome::failed);
  }
}

TEST_P(TransferTest, WritesOfAnEndedTransferAreRefusedAndHarmless) {
  const std::vector<uint64_t> all(kPages, kPageBytes);
  const auto old   = landing_.grant(all, Clock::now(), note(0));
  const auto late  = writer();
  const auto nines = random_bytes(kPageBytes, 9), fives = random_bytes(kPageBytes, 5);
  ASSERT_TRUE(write(*late, *old, std::vector<Slice>{{0, nines}}));
  landing_.revoke(old->tag);
  EXPECT_EQ(outcome_of(0), Outcome::revoked);
  if (GetParam() == Backend::shared_memory) {
    ASSERT_TRUE(eventually([&] { return landing_.quarantined_pages() == kPages; }));
    (void)write(*late, *old, std::vector<Slice>{{1, nines}});
    EXPECT_FALSE(landing_.grant(all, Clock::now(), {})) << "its writer could still copy";
    return;
  }
  const auto next = landing_.grant(all, Clock::now(), note(1));
  ASSERT_TRUE(next);
  const auto way = writer();
  for (uint32_t i = 0; i < kPages; ++i) {
    (void)write(*late, *old, std::vector<Slice>{{i, nines}});
    ASSERT_TRUE(write(*way, *next, std::vector<Slice>{{i, fives}}));
  }
  EXPECT_EQ(outcome_of(1), Outcome::complete);
  for (uint32_t i = 0; i < kPages; ++i) EXPECT_TRUE(std::ranges::equal(landing_.slice(*next, i), fives));
}

constexpr Backend kBackends[] = {Backend::memcpy, Backend::shared_memory, Backend::tcp};
std::string name_of(const testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::memcpy ? "memcpy" : info.param == Backend::tcp ? "tcp" : "shared_memory";
}
INSTANTIATE_TEST_SUITE_P(Backends, TransferTest, testing::ValuesIn(kBackends), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, FaultyTransferTest, testing::ValuesIn(kBackends), name_of);

TEST(SocketTransferTest, APeerThatTakesNothingCostsATimeOut) {
  boost::asio::io_context io;
  using boost::asio::ip::tcp;
  tcp::acceptor silent(io, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const auto way = connect({.host = "127.0.0.1", .port = silent.local_endpoint().port()}, 50ms);
  ASSERT_TRUE(way) << way.error().message;
  const std::vector<std::byte> bytes(1 << 20);
  const Grant granted{.slices = {{.offset = 0, .bytes = bytes.size()}}};
  Status status = Ok();
  for (int i = 0; i < 256 && status; ++i) status = write(**way, granted, std::vector<Slice>{{0, bytes}});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("took nothing for 0.05 s"), std::string::npos)
      << status.error().message;
  EXPECT_FALSE(write(**way, granted, std::vector<Slice>{{0, bytes}})) << "the connection stays closed";
}

// The second memory has the path of the first, as that of a restarted process may.
TEST(SocketTransferTest, AMappingIsKeptWhileItsMemoryLives) {
  const auto bytes = random_bytes(kPageBytes, 1);
  std::string path;
  for (int life = 0; life < 2; ++life) {
    Landing landing({.pages = 2, .page_bytes = kPageBytes});
    if (life > 0) {
      ASSERT_EQ(landing.memory().path(), path);
    }
    path              = landing.memory().path();
    const auto server = LandingServer::listen(landing, "127.0.0.1");
    ASSERT_TRUE(server) << server.error().message;
    const auto first = SharedMemory::open_shared(path), second = SharedMemory::open_shared(path);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first.value(), second.value());
    std::promise<Outcome> ended;
    const auto granted = landing.grant(std::vector<uint64_t>{kPageBytes}, Clock::now(),
                                       [&](Outcome outcome) { ended.set_value(outcome); });
    const auto way     = connect({.host = "127.0.0.1", .port = (*server)->port(), .memory = path}, 20s);
    ASSERT_TRUE(way) << way.error().message;
    ASSERT_TRUE(write(**way, *granted, std::vector<Slice>{{0, bytes}}));
    EXPECT_EQ(ended.get_future().get(), Outcome::complete);
    EXPECT_TRUE(std::ranges::equal(landing.slice(*granted, 0), bytes));
  }
}

TEST(SocketTransferTest, NobodyListensOrTheMemoryIsGone) {
  uint16_t port = 0;
  {
    Landing landing({.pages = 1, .page_bytes = 8});
    const auto server = LandingServer::listen(landing, "127.0.0.1");
    port              = (*server)->port();
    const auto way    = connect({.host = "127.0.0.1", .port = port, .memory = "/proc/self/fd/987"}, 5s);
    ASSERT_FALSE(way);
    EXPECT_NE(way.error().message.find("--transfer tcp"), std::string::npos) << way.error().message;
  }
  EXPECT_FALSE(connect({.host = "127.0.0.1", .port = port}, 5s));
}

}  // namespace
}  // namespace fathom::transfer
