// The shape "session", with a tiny echo server on a socket pair: started, replayed against, drained, stopped.
#include "lab/session.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "core/rng.h"

namespace fathom::lab {
namespace {

class Collect final : public Events {
 public:
  void phase(std::string_view, std::string_view, double) override {}
  void point(const PointRecord& point) override { points.push_back(point); }
  void profiled(const Point&, std::string_view, const Profile&) override {}
  std::vector<PointRecord> points;
};

int live_servers = 0;

// Echoes every number plus one; `batch` numbers travel in one message.
class Echo final : public Session {
 public:
  explicit Echo(int batch, bool lies = false) : batch_(batch), lies_(lies) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds_) != 0) throw SystemError("socketpair failed");
    server_ = std::thread([fd = fds_[1]] {
      int64_t numbers[64];
      for (ssize_t n; (n = read(fd, numbers, sizeof numbers)) > 0;) {
        for (ssize_t i = 0; i < n / 8; ++i) ++numbers[i];
        if (write(fd, numbers, static_cast<size_t>(n)) != n) return;
      }
    });
    ++live_servers;
  }
  ~Echo() override {
    shutdown(fds_[0], SHUT_RDWR);
    server_.join();
    close(fds_[0]);
    close(fds_[1]);
    --live_servers;
  }
  Replay replay(uint64_t seed) override {
    std::vector<int64_t> requests(256);
    fill_integers(requests.data(), 256, seed, 0, 1'000'000);
    Replay replay;
    for (size_t i = 0; i < requests.size(); i += static_cast<size_t>(batch_)) {
      int64_t numbers[64];
      const size_t bytes = static_cast<size_t>(batch_) * 8;
      EXPECT_EQ(write(fds_[0], &requests[i], bytes), static_cast<ssize_t>(bytes));
      for (size_t got = 0; got < bytes;) {
        const ssize_t n = read(fds_[0], reinterpret_cast<char*>(numbers) + got, bytes - got);
        if (n <= 0) throw SystemError("the echo server hung up");
        got += static_cast<size_t>(n);
      }
      for (int k = 0; k < batch_; ++k) replay.outputs.push_back({numbers[k] + (lies_ && i == 0)});
    }
    replay.metrics["messages"] = {256.0 / batch_, "lower"};
    return replay;
  }

 private:
  int batch_;
  bool lies_;
  int fds_[2];
  std::thread server_;
};

PointRecord measure_one(const SessionExperiment& experiment) {
  Collect events;
  MeasureOptions options;
  options.run.seed = 3;
  measure_session(info_of(experiment), options, events);
  EXPECT_EQ(live_servers, 0) << "every session was stopped";
  return events.points.at(0);
}

TEST(Session, SixPairedReplaysWithTheRangeAsInterval) {
  const PointRecord point =
      measure_one({.question = "Does batching pay?",
                   .variants = {{"one", [](const Point&) { return std::make_unique<Echo>(1); }},
                                {"batched", [](const Point&) { return std::make_unique<Echo>(32); }}}});
  EXPECT_EQ(point.rounds, 6);
  for (const VariantRecord& variant : point.variants) {
    EXPECT_EQ(to_string(variant.status), "ok") << variant.detail;
    EXPECT_EQ(variant.samples_ns.size(), 6u);
  }
  const Ratio ratio = point.variants[1].ratio.value();
  double least = 1e300, most = 0;
  for (size_t i = 0; i < 6; ++i) {
    const double paired = point.variants[0].samples_ns[i] / point.variants[1].samples_ns[i];
    least               = std::min(least, paired);
    most                = std::max(most, paired);
  }
  EXPECT_NEAR(ratio.lo, least, 1e-9 * least);
  EXPECT_NEAR(ratio.hi, most, 1e-9 * most);
  EXPECT_EQ(point.variants[1].metrics.at("messages").value, 8);
}

TEST(Session, AnotherAnswerIsWrong) {
  const PointRecord point =
      measure_one({.question = "Is a lie noticed?",
                   .variants = {{"honest", [](const Point&) { return std::make_unique<Echo>(8); }},
                                {"lies", [](const Point&) { return std::make_unique<Echo>(8, true); }}}});
  EXPECT_EQ(to_string(point.variants[0].status), "ok");
  EXPECT_EQ(to_string(point.variants[1].status), "wrong");
  EXPECT_FALSE(point.variants[1].time_ns);
}

TEST(Session, OneThatCannotStartIsItsOwnFailure) {
  const PointRecord point = measure_one(
      {.question = "Who starts?",
       .variants = {
           {"honest", [](const Point&) { return std::make_unique<Echo>(8); }},
           {"broken", [](const Point&) -> std::unique_ptr<Session> { throw SystemError("no port"); }}}});
  EXPECT_EQ(to_string(point.variants[0].status), "ok");
  EXPECT_EQ(to_string(point.variants[1].status), "crashed");
}

}  // namespace
}  // namespace fathom::lab
