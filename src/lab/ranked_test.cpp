// The shape "ranked", with two processes on this machine.
#include "lab/ranked.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

namespace fathom::lab {
namespace {

class Collect final : public Events {
 public:
  void phase(std::string_view, std::string_view, double) override {}
  void point(const PointRecord& point) override { points.push_back(point); }
  void profiled(const Point&, std::string_view, const Profile&) override {}
  std::vector<PointRecord> points;
};

// An all-reduce through shared memory: everybody writes, everybody reads all.
uint64_t all_reduce(const Point&, const Rank& me, uint64_t nonce) {
  auto* slots = reinterpret_cast<std::atomic<uint64_t>*>(me.shared().data());
  slots[me.rank()].store(nonce);
  me.barrier();
  uint64_t sum = 0;
  for (int rank = 0; rank < me.size(); ++rank) sum += slots[rank].load();
  me.barrier();
  return sum;
}

// The same, thirty times over: more work, same answer.
uint64_t all_reduce_slowly(const Point& at, const Rank& me, uint64_t nonce) {
  uint64_t sum = 0;
  for (int i = 0; i < 30; ++i) sum = all_reduce(at, me, nonce);
  return sum;
}

uint64_t asks_nobody(const Point&, const Rank& me, uint64_t nonce) {
  return nonce * static_cast<uint64_t>(me.size());
}

PointRecord measure_two(const RankedExperiment& experiment) {
  Collect events;
  MeasureOptions options;
  options.run.quick = true;
  options.run.seed  = 11;
  measure_ranked(info_of(experiment), options, events);
  EXPECT_EQ(events.points.size(), 1u);
  return events.points.at(0);
}

TEST(Ranked, TwoProcessesMeetAndAreTimedTogether) {
  const RankedExperiment experiment{
      .question = "all-reduce", .ranks = 2, .variants = {{"once", all_reduce}, {"often", all_reduce_slowly}}};
  const PointRecord point = measure_two(experiment);
  ASSERT_EQ(point.variants.size(), 2u);
  for (const VariantRecord& variant : point.variants) {
    EXPECT_EQ(to_string(variant.status), "ok") << variant.detail;
    EXPECT_EQ(variant.samples_ns.size(), 40u);
  }
  // Thirty times the work takes longer, whatever the machine does meanwhile.
  EXPECT_GT(point.variants[1].time_ns->median, point.variants[0].time_ns->median);
  EXPECT_TRUE(point.variants[1].verdict.has_value());
}

TEST(Ranked, AStepThatMetNobodyIsWrong) {
  const RankedExperiment experiment{.question = "all-reduce",
                                    .ranks    = 2,
                                    .variants = {{"honest", all_reduce}, {"asks_nobody", asks_nobody}}};
  const PointRecord point = measure_two(experiment);
  EXPECT_EQ(to_string(point.variants[0].status), "ok");
  EXPECT_EQ(to_string(point.variants[1].status), "wrong");
  EXPECT_EQ(point.variants[1].caught_by, "nonce");
  EXPECT_FALSE(point.variants[1].time_ns);
}

TEST(Ranked, ARankThatDiesEndsThePointAndNotTheProgram) {
  const RankedExperiment experiment{
      .question = "one leaves",
      .ranks    = 2,
      .variants = {{"leaves", [](const Point& at, const Rank& me, uint64_t nonce) {
                      static int steps = 0;
                      if (me.rank() == 1 && ++steps == 10) _exit(3);
                      return all_reduce(at, me, nonce);
                    }}}};
  const PointRecord point = measure_two(experiment);
  EXPECT_EQ(to_string(point.variants[0].status), "crashed");
}

TEST(Ranked, OneRankAndThreeRanks) {
  for (const int ranks : {1, 3}) {
    const RankedExperiment experiment{
        .question = "all-reduce", .ranks = ranks, .variants = {{"once", all_reduce}}};
    EXPECT_EQ(to_string(measure_two(experiment).variants[0].status), "ok") << ranks;
  }
}

}  // namespace
}  // namespace fathom::lab
