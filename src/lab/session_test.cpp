// Experiments with sessions: a tiny echo server on a socket pair is started, replayed against, drained and
// stopped.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "core/rng.h"
#include "lab/experiment.h"
#include "lab/measure_session.h"

namespace fathom::lab {
namespace {

class CollectSession final : public Events {
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
  void prepare(uint64_t seed) override {
    requests_.resize(256);
    fill_integers(requests_.data(), 256, seed, 0, 1'000'000);
  }
  Replay replay() override {
    Replay replay;
    for (size_t i = 0; i < requests_.size(); i += static_cast<size_t>(batch_)) {
      int64_t numbers[64];
      const size_t bytes = static_cast<size_t>(batch_) * 8;
      EXPECT_EQ(write(fds_[0], &requests_[i], bytes), static_cast<ssize_t>(bytes));
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
  std::vector<int64_t> requests_;
  std::thread server_;
};

PointRecord measure_one(const Experiment<Session>& experiment) {
  CollectSession events;
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

// Answers eight requests with numbers of the seed, refuses every `refuses`th, and reports an invented time.
class Clerk final : public Session {
 public:
  explicit Clerk(double first_ns, int refuses = 0, int64_t error = 0)
      : first_ns_(first_ns), refuses_(refuses), error_(error) {}
  void prepare(uint64_t seed) override { first_ = static_cast<int64_t>(seed >> 8); }
  Replay replay() override {
    Replay replay;
    for (int i = 0; i < 8; ++i) {
      const auto answer = first_ + i + (i == 1 ? error_ : 0);
      replay.outputs.push_back(refuses_ > 0 && i % refuses_ == 0 ? std::vector<int64_t>()
                                                                 : std::vector{answer});
    }
    if (first_ns_ > 0) replay.metrics["first_ns"] = {first_ns_, "lower"};
    return replay;
  }

 private:
  double first_ns_;
  int refuses_;
  int64_t error_, first_ = 0;
};

Variant<Session> clerk(const std::string& id, double first_ns, int refuses = 0, int64_t error = 0,
                       Prediction prediction = {}, bool may_refuse = false) {
  return {.id         = id,
          .start      = [=](const Point&) { return std::make_unique<Clerk>(first_ns, refuses, error); },
          .idea       = "",
          .prediction = prediction,
          .may_refuse = may_refuse};
}

TEST(Session, AGoalIsComparedInsteadOfTheTime) {
  const PointRecord point =
      measure_one({.question = "Who is first?",
                   .variants = {clerk("slow", 300, 0, 0, predict::ratio(1)),
                                clerk("thrice", 100, 0, 0, predict::ratio(2.9)),
                                clerk("overrated", 200, 0, 0, predict::ratio(2)), clerk("silent", 0)},
                   .goal     = "first_ns"});
  EXPECT_EQ(point.clock, "first_ns");
  EXPECT_EQ(point.variants[1].time_ns->median, 100);
  EXPECT_NEAR(point.variants[1].ratio->median, 3, 1e-12);
  EXPECT_EQ(point.variants[1].verdict, "FASTER");
  EXPECT_EQ(point.variants[1].prediction->text, "ratio 2.9");
  EXPECT_EQ(point.variants[1].prediction->held, true);
  EXPECT_EQ(point.variants[2].prediction->held, false);
  EXPECT_FALSE(point.variants[0].prediction->held);  // the baseline has no ratio
  EXPECT_EQ(to_string(point.variants[3].status), "wrong")
      << "it breaks the contract to have the goal's metric";
}

TEST(Session, WhoIsTurnedAwayIsNotCompared) {
  const PointRecord point =
      measure_one({.question = "Is a refusal an answer?",
                   .variants = {clerk("all", 1), clerk("half", 1, 2, 0, {}, true),
                                clerk("half, one wrong", 1, 2, 5, {}, true), clerk("half, undeclared", 1, 2),
                                clerk("none", 1, 1, 0, {}, true)}});
  EXPECT_EQ(to_string(point.variants[1].status), "ok") << point.variants[1].detail;
  EXPECT_EQ(point.variants[1].checked->timed_calls, 6);
  EXPECT_EQ(point.variants[1].checked->elements, 6 * 4);
  EXPECT_EQ(to_string(point.variants[2].status), "wrong");
  EXPECT_EQ(point.variants[3].caught_by, "unanswered");
  EXPECT_EQ(point.variants[3].detail, "4 of 8 requests have no answer");
  EXPECT_EQ(point.variants[4].caught_by, "unanswered");
}

// Its time is `first_ns`, and each start makes it `growth` longer.
class Ageing final : public Session {
 public:
  Ageing(double* now_ns, double growth) { now_ns_ = *now_ns *= growth; }
  void prepare(uint64_t) override {}
  Replay replay() override { return {{{1}}, {{"first_ns", {now_ns_, "lower"}}}}; }

 private:
  double now_ns_;
};

TEST(Session, TheBaselineIsMeasuredAgainstItself) {
  for (const double growth : {1.0, 1.2}) {
    double now_ns     = 100;
    const auto starts = [&](const Point&) { return std::make_unique<Ageing>(&now_ns, growth); };
    const Variant<Session> same{.id = "same", .start = starts, .idea = ""};
    const PointRecord point =
        measure_one({.question = "Is it the same as itself?", .variants = {same}, .goal = "first_ns"});
    ASSERT_TRUE(point.aa.has_value());
    EXPECT_LE(point.aa->lo, 1);
    EXPECT_GE(point.aa->hi, 1);
    EXPECT_FALSE(point.aa->advisory);
    if (growth > 1) {
      EXPECT_LT(point.aa->lo, 0.9) << "in some rounds the clone comes second";
      EXPECT_GT(point.aa->hi, 1.1) << "in others it comes first";
    }
  }
}

TEST(Session, WhatThisMachineLacksIsATypedSkip) {
  const PointRecord point =
      measure_one({.question = "Who has a model?",
                   .variants = {clerk("simple", 1), {"absent", [](const Point&) -> std::unique_ptr<Session> {
                                                       throw Unavailable("needs_model", "models/tiny");
                                                     }}}});
  EXPECT_EQ(to_string(point.variants[0].status), "ok");
  EXPECT_EQ(to_string(point.variants[1].status), "skipped");
  EXPECT_EQ(point.variants[1].skip->reason, "needs_model");
  EXPECT_EQ(point.variants[1].skip->need, "models/tiny");
  EXPECT_FALSE(point.variants[1].time_ns);
}

TEST(Session, AQuickRunHasThreeRounds) {
  CollectSession events;
  MeasureOptions options;
  options.run.quick = true;
  const Experiment<Session> experiment{.question = "How many?", .variants = {clerk("a", 1), clerk("b", 1)}};
  measure_session(info_of(experiment), options, events);
  EXPECT_EQ(events.points.at(0).rounds, 3);
  EXPECT_EQ(events.points.at(0).variants[1].samples_ns.size(), 3u);
}

TEST(Session, AVerifiedOneIsSmallAndUntimed) {
  CollectSession events;
  MeasureOptions options;
  options.run.check_only = true;
  const Experiment<Session> experiment{.question = "How many?",
                                       .axes     = {{"load", {150, 70}}, {"requests", {384, 500}}},
                                       .quick    = {{"requests", {96}}},
                                       .variants = {clerk("a", 1), clerk("b", 1)}};
  measure_session(info_of(experiment), options, events);
  ASSERT_EQ(events.points.size(), 2u);
  EXPECT_EQ(events.points[0].at.to_string(), "load=150&requests=96");
  EXPECT_EQ(events.points[1].at.to_string(), "load=70&requests=96");
  EXPECT_FALSE(events.points[0].variants[1].time_ns);
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
