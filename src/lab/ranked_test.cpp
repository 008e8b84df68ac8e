// Experiments with ranks, as processes and as threads of this machine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "lab/experiment.h"
#include "lab/measure_ranked.h"
#include "machine/ceilings.h"

namespace fathom::lab {
namespace {

class CollectRanked final : public Events {
 public:
  void phase(std::string_view, std::string_view, double) override {}
  void point(const PointRecord& point) override { points.push_back(point); }
  void profiled(const Point&, std::string_view, const Profile&) override {}
  std::vector<PointRecord> points;
};

// out(i) = sum of all ranks' in(i), through shared memory.
struct AllReduce {
  View<const float, 1> in;
  View<float, 1> out;
  View<uint64_t, 1> sum;  // of nonces

  AllReduce(const Point& at, Arena& arena, const Rank&)
      : in(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        out(arena.output<float>({at["n"]})),
        sum(arena.workspace<uint64_t>({1})) {}

  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  Sum expected(const AllRanks<AllReduce>& ranks, int64_t i) const {
    Sum total{.length = ranks.size()};
    for (int rank = 0; rank < ranks.size(); ++rank) {
      total.value += ranks[rank].in(i);
      total.magnitude += std::abs(static_cast<double>(ranks[rank].in(i)));
    }
    return total;
  }
  uint64_t nonce_sum(Context&) const { return sum(0); }
  void metrics(CallMetrics& metrics) const {
    metrics["first_sum"]  = {out.size() > 0 ? out(0) : 0.0, "lower"};
    metrics["first_mine"] = {in.size() > 0 ? in(0) : 0.0, "lower"};
  }
};

// A rank's message in shared memory: its nonce, then its elements.
std::byte* message_of(const Rank& rank, const AllReduce& p, int of) {
  return rank.shared().data() + static_cast<size_t>(of) * (8 + static_cast<size_t>(p.in.bytes() + 7) / 8 * 8);
}

// Every rank writes its message and reads all of them.
void all_reduce(const AllReduce& p, Context& context) {
  const Rank& me      = *context.rank;
  const int64_t nonce = static_cast<int64_t>(me.nonce());
  std::memcpy(message_of(me, p, me.rank()), &nonce, 8);
  std::memcpy(message_of(me, p, me.rank()) + 8, p.in.data(), static_cast<size_t>(p.in.bytes()));
  me.barrier();
  p.sum(0) = 0;
  for (int64_t i = 0; i < p.in.size(); ++i) p.out(i) = 0;
  for (int rank = 0; rank < me.size(); ++rank) {
    uint64_t theirs = 0;
    std::memcpy(&theirs, message_of(me, p, rank), 8);
    p.sum(0) += theirs;
    const auto* values = reinterpret_cast<const float*>(message_of(me, p, rank) + 8);
    for (int64_t i = 0; i < p.in.size(); ++i) p.out(i) += values[i];
  }
  me.barrier();
}

// The same thirty times: more work, the same result.
void all_reduce_slowly(const AllReduce& p, Context& context) {
  for (int i = 0; i < 30; ++i) all_reduce(p, context);
}

void asks_nobody(const AllReduce& p, Context& context) {
  p.sum(0) = context.rank->nonce() * static_cast<uint64_t>(context.rank->size());
}

Experiment<AllReduce> experiment_of(int ranks, std::vector<Variant<AllReduce>> variants) {
  return {.question     = "all-reduce",
          .axes         = {{"n", {int64_t{64}}}},
          .check_at     = {{"n", {int64_t{0}, int64_t{1}, int64_t{67}}}},
          .variants     = std::move(variants),
          .ranks        = ranks,
          .shared_bytes = 1 << 20};
}

PointRecord measure_quick(const Experiment<AllReduce>& experiment, bool check_only = false) {
  machine::ceilings();  // known before the ranks ask, each for itself
  CollectRanked events;
  MeasureOptions options;
  options.run.quick      = true;
  options.run.seed       = 11;
  options.run.check_only = check_only;
  measure_ranked(info_of(experiment), options, events);
  EXPECT_EQ(events.points.size(), 1u);
  return events.points.at(0);
}

// The same, where one rank comes late.
constexpr std::chrono::milliseconds kLate{2};
void all_reduce_late(const AllReduce& p, Context& context) {
  const auto until = std::chrono::steady_clock::now() + kLate;
  while (context.rank->rank() == 1 && std::chrono::steady_clock::now() < until) {
  }
  all_reduce(p, context);
}

TEST(Ranked, TwoProcessesMeetAndAreTimedTogether) {
  const PointRecord point =
      measure_quick(experiment_of(2, {{"once", all_reduce}, {"late", all_reduce_late}}));
  ASSERT_EQ(point.variants.size(), 2u);
  for (const VariantRecord& variant : point.variants) {
    EXPECT_EQ(to_string(variant.status), "ok") << variant.detail;
    EXPECT_EQ(variant.samples_ns.size(), 40u);
  }
  // A step takes as long as its slowest rank.
  EXPECT_GE(point.variants[1].time_ns->min, std::chrono::nanoseconds(kLate).count());
  EXPECT_TRUE(point.variants[1].verdict.has_value());
}

TEST(Ranked, AStepThatMetNobodyIsWrong) {
  const PointRecord point =
      measure_quick(experiment_of(2, {{"honest", all_reduce}, {"asks_nobody", asks_nobody}}));
  EXPECT_EQ(to_string(point.variants[0].status), "ok");
  EXPECT_EQ(to_string(point.variants[1].status), "wrong");
  EXPECT_EQ(point.variants[1].caught_by, "nonce");
  EXPECT_FALSE(point.variants[1].time_ns);
}

TEST(Ranked, ARankThatDiesEndsThePointAndNotTheProgram) {
  const PointRecord point =
      measure_quick(experiment_of(2, {{"leaves", [](const AllReduce& p, Context& context) {
                                         static int steps = 0;
                                         if (context.rank->rank() == 1 && ++steps == 10) _exit(3);
                                         all_reduce(p, context);
                                       }}}));
  EXPECT_EQ(to_string(point.variants[0].status), "crashed");
  EXPECT_EQ(point.variants[0].detail, "a rank ended with exit code 3");
}

TEST(Ranked, OneRankAndThreeRanks) {
  for (const int ranks : {1, 3})
    EXPECT_EQ(to_string(measure_quick(experiment_of(ranks, {{"once", all_reduce}})).variants[0].status), "ok")
        << ranks;
}

TEST(Ranked, RanksThatAreThreads) {
  for (const int ranks : {1, 2, 3}) {
    Experiment<AllReduce> experiment =
        experiment_of(ranks, {{"once", all_reduce}, {"asks_nobody", asks_nobody}});
    experiment.ranks_as     = RanksAs::devices;
    const PointRecord point = measure_quick(experiment);
    EXPECT_EQ(to_string(point.variants[0].status), "ok") << point.variants[0].detail;
    EXPECT_EQ(point.variants[0].samples_ns.size(), 40u);
    // One rank alone has nobody to ask: there only its output is wrong.
    EXPECT_EQ(to_string(point.variants[1].status), "wrong") << ranks;
  }
}

// The right nonces and wrong data, on the last rank alone: every rank's output is checked.
void wrong_on_the_last_rank(const AllReduce& p, Context& context) {
  all_reduce(p, context);
  if (context.rank->rank() + 1 == context.rank->size() && p.out.size() > 0) p.out(p.out.size() - 1) += 1;
}

TEST(Ranked, TheOutputOfEveryRankIsChecked) {
  for (const RanksAs ranks_as : {RanksAs::processes, RanksAs::devices}) {
    Experiment<AllReduce> experiment =
        experiment_of(3, {{"honest", all_reduce}, {"wrong", wrong_on_the_last_rank}});
    experiment.ranks_as     = ranks_as;
    const PointRecord point = measure_quick(experiment);
    EXPECT_EQ(to_string(point.variants[0].status), "ok") << point.variants[0].detail;
    ASSERT_TRUE(point.variants[0].checked.has_value());
    EXPECT_GE(point.variants[0].checked->timed_calls, 7);
    EXPECT_GE(point.variants[0].checked->elements, 7 * 64 * 3) << "all elements, on every rank";
    EXPECT_EQ(to_string(point.variants[1].status), "wrong");
    EXPECT_EQ(point.variants[1].caught_by, "reference") << point.variants[1].detail;
  }
}

TEST(Ranked, AVariantThatFailsCostsItselfAlone) {
  const PointRecord point =
      measure_quick(experiment_of(2, {{"honest", all_reduce},
                                      {"throws",
                                       [](const AllReduce& p, Context& context) {
                                         if (context.rank->rank() == 1)
                                           throw std::runtime_error("no way out");
                                         all_reduce(p, context);  // rank 0 waits for rank 1
                                       }},
                                      {"bystander", all_reduce}}));
  EXPECT_EQ(to_string(point.variants[0].status), "ok");
  EXPECT_EQ(to_string(point.variants[1].status), "crashed");
  EXPECT_EQ(point.variants[1].detail, "no way out");
  EXPECT_EQ(to_string(point.variants[2].status), "ok") << point.variants[2].detail;
  EXPECT_TRUE(point.variants[2].ratio.has_value());
}

TEST(Ranked, PrepareMayExchangeWhatTheStepNeeds) {
  Variant<AllReduce> prepared{.id = "prepared"};
  prepared.prepare = [](const AllReduce&, Context& context) -> Launch<AllReduce> {
    const Rank& me = *context.rank;
    auto* key      = reinterpret_cast<std::atomic<int>*>(me.shared().data());
    if (me.rank() == 0) *key = 42;
    me.barrier();
    const int received = *key;
    me.barrier();
    return [received](const AllReduce& p, Context& c) {
      if (received == 42) all_reduce(p, c);
    };
  };
  const PointRecord point = measure_quick(experiment_of(2, {{"plain", all_reduce}, prepared}));
  EXPECT_EQ(to_string(point.variants[1].status), "ok") << point.variants[1].detail;
  EXPECT_TRUE(point.variants[1].prepare_ns.has_value());
}

// Both variants leave the same sum behind, which no rank has by itself.
TEST(Ranked, MetricsAreThoseOfRankZero) {
  const PointRecord point =
      measure_quick(experiment_of(2, {{"once", all_reduce}, {"often", all_reduce_slowly}}));
  ASSERT_EQ(point.variants.size(), 2u);
  const auto &once = point.variants[0].metrics, &often = point.variants[1].metrics;
  ASSERT_EQ(once.count("first_sum") + once.count("first_mine"), 2u);
  EXPECT_TRUE(std::isfinite(once.at("first_sum").value));
  EXPECT_NE(once.at("first_sum").value, once.at("first_mine").value);
  EXPECT_EQ(once.at("first_sum").value, often.at("first_sum").value);
}

TEST(Ranked, WhatOneRankLacksIsATypedSkip) {
  Variant<AllReduce> lacking{.id = "lacking"};
  lacking.prepare = [](const AllReduce&, Context& context) -> Launch<AllReduce> {
    if (context.rank->rank() == 1) throw Unavailable("needs_library", "libnccl.so.2");
    context.rank->barrier();
    return all_reduce;
  };
  const PointRecord point = measure_quick(experiment_of(2, {{"plain", all_reduce}, lacking}));
  EXPECT_EQ(to_string(point.variants[0].status), "ok") << point.variants[0].detail;
  EXPECT_EQ(to_string(point.variants[1].status), "skipped");
  ASSERT_TRUE(point.variants[1].skip.has_value());
  EXPECT_EQ(point.variants[1].skip->reason, "needs_library");
  EXPECT_EQ(point.variants[1].skip->need, "libnccl.so.2");
}

TEST(Ranked, MoreGpusThanThereAreIsATypedSkip) {
  Experiment<AllReduce> experiment = experiment_of(64, {{"once", all_reduce}});
  experiment.backend               = Backend::cuda;
  const PointRecord point          = measure_quick(experiment, /*check_only=*/true);
  EXPECT_EQ(to_string(point.variants[0].status), "skipped");
  const std::string reason = point.variants[0].skip.value().reason;
  EXPECT_TRUE(reason == "needs_gpus" || reason == "needs_cuda") << reason;
}

TEST(Ranked, HasALimitAFloorAndAPrediction) {
  Experiment<AllReduce> experiment =
      experiment_of(2, {{"once", all_reduce, {}, "", predict::share_at_least(1e-12)},
                        {"often", all_reduce_slowly, {}, "", predict::ratio(1000)}});
  experiment.limit        = Limit::memory;
  const PointRecord point = measure_quick(experiment);
  EXPECT_NE(point.limit.find("on each of 2 ranks"), std::string::npos) << point.limit;
  EXPECT_TRUE(point.floor_ns.has_value());
  const VariantRecord& once = point.variants[0];
  EXPECT_EQ(to_string(once.status), "ok") << once.detail;
  EXPECT_GT(once.share_of_limit.value_or(0), 0);
  EXPECT_EQ(once.bytes_read, 256);
  EXPECT_EQ(once.prediction.value().held, true);
  EXPECT_EQ(point.variants[1].prediction.value().held, false);
}

TEST(Ranked, CheckingAloneTimesNothing) {
  const PointRecord point = measure_quick(
      experiment_of(2, {{"once", all_reduce}, {"wrong", wrong_on_the_last_rank}}), /*check_only=*/true);
  EXPECT_EQ(point.stopped, "checked only");
  EXPECT_FALSE(point.variants[0].time_ns);
  EXPECT_EQ(to_string(point.variants[1].status), "wrong");
  EXPECT_NE(point.variants[1].detail.find("(at n=1)"), std::string::npos) << point.variants[1].detail;
}

}  // namespace
}  // namespace fathom::lab
