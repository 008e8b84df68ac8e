// Properties of pipeline schedules: every pass once, nothing before what it needs, the bubbles that the
// papers give, and no more activations than they promise.
#include "experiments/ch04_distributed/pipeline_parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "core/expect.h"

namespace fathom::lab::pipeline_parallel {
namespace {

// Dyadic, so that sums are exact.
const PassTimes kTimes[] = {{1, 1, 1}, {2, 2, 1}, {2, 3, 1}, {1.25, 1.5, 1}, {4, 4, 4}};

void for_all(const std::function<void(int stages, int micro_batches, const PassTimes& times)>& check) {
  for (const int stages : {1, 2, 3, 4, 5, 8})
    for (const int micro_batches :
         {stages, stages + 1, 2 * stages - 1, 2 * stages, 4 * stages, 5 * stages + 3})
      for (const PassTimes& times : kTimes) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << micro_batches << " micro-batches");
        check(stages, micro_batches, times);
      }
}

double whole(const PassTimes& t) { return t.forward + t.input_gradient + t.weight_gradient; }

void expect_every_pass_once(const Schedule& schedule, int micro_batches, int chunks, bool split) {
  for (const std::vector<Pass>& passes : schedule) {
    std::set<std::tuple<int, int, int>> seen;
    for (const Pass& pass : passes) {
      EXPECT_TRUE(seen.insert({pass.kind, pass.micro_batch, pass.chunk}).second);
      EXPECT_EQ(pass.kind == Pass::input_gradient || pass.kind == Pass::weight_gradient,
                split && pass.kind != Pass::forward);
      EXPECT_TRUE(pass.micro_batch >= 0 && pass.micro_batch < micro_batches);
      EXPECT_TRUE(pass.chunk >= 0 && pass.chunk < chunks);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), micro_batches * chunks * (split ? 3 : 2));
  }
}

TEST(PipelineSchedule, GpipeHasTheBubbleOfAllStagesAndKeepsEverything) {
  for_all([](int stages, int micro_batches, const PassTimes& times) {
    const Schedule schedule = gpipe(stages, micro_batches);
    expect_every_pass_once(schedule, micro_batches, 1, false);
    const ModelledRun run = modelled(schedule, times);
    ASSERT_TRUE(run.complete);
    EXPECT_DOUBLE_EQ(run.bubble, (stages - 1) * whole(times));
    EXPECT_EQ(run.kept, micro_batches);
  });
}

TEST(PipelineSchedule, OneFOneBHasTheSameBubbleAndKeepsNoMoreThanStages) {
  for_all([](int stages, int micro_batches, const PassTimes& times) {
    const Schedule schedule = one_f_one_b(stages, micro_batches);
    expect_every_pass_once(schedule, micro_batches, 1, false);
    const ModelledRun run = modelled(schedule, times);
    ASSERT_TRUE(run.complete);
    EXPECT_DOUBLE_EQ(run.bubble, (stages - 1) * whole(times));
    for (int stage = 0; stage < stages; ++stage)
      EXPECT_EQ(run.kept_by[static_cast<size_t>(stage)], std::min(stages - stage, micro_batches));
  });
}

TEST(PipelineSchedule, InterleavedHasAChunksShareOfTheBubble) {
  for_all([](int stages, int micro_batches, const PassTimes& times) {
    if (micro_batches % stages != 0) {
      EXPECT_THROW(interleaved(stages, micro_batches, 2), ContractError);
      return;
    }
    EXPECT_EQ(interleaved(stages, micro_batches, 1), one_f_one_b(stages, micro_batches));
    for (const int chunks : {2, 4}) {
      const Schedule schedule = interleaved(stages, micro_batches, chunks);
      expect_every_pass_once(schedule, micro_batches, chunks, false);
      const ModelledRun run = modelled(schedule, times);
      ASSERT_TRUE(run.complete);
      EXPECT_DOUBLE_EQ(run.bubble, (stages - 1) * whole(times) / chunks);
      // Narayanan et al., 2021: the first stage keeps that of stages and a share of stages - 1 more.
      EXPECT_LE(run.kept, stages * chunks + stages - 1);
    }
  });
}

TEST(PipelineSchedule, ZeroBubbleH1HasAThirdOfTheBubbleAndKeepsNoMore) {
  for_all([](int stages, int micro_batches, const PassTimes& times) {
    const Schedule schedule = zero_bubble_h1(stages, micro_batches);
    expect_every_pass_once(schedule, micro_batches, 1, true);
    const ModelledRun run = modelled(schedule, times);
    ASSERT_TRUE(run.complete);
    EXPECT_DOUBLE_EQ(run.bubble,
                     (stages - 1) * (times.forward + times.input_gradient - times.weight_gradient));
    EXPECT_LE(run.kept, std::max(1, stages));
  });
}

// How often a stage makes each pass of DualPipe, by direction and micro-batch: forward, input's gradient,
// weights' gradient.
using Made = std::map<std::tuple<int, int, int>, int>;
Made made_by(const std::vector<Pass>& passes) {
  Made made;
  for (const Pass& pass : passes) {
    const bool both = pass.kind == Pass::forward_and_backward;
    if (both || pass.kind == Pass::forward) ++made[{0, pass.chunk, pass.micro_batch}];
    if (pass.kind == Pass::backward || pass.kind == Pass::input_gradient)
      ++made[{1, pass.chunk, pass.micro_batch}];
    if (pass.kind == Pass::backward || pass.kind == Pass::weight_gradient)
      ++made[{2, pass.chunk, pass.micro_batch}];
    if (both) {
      ++made[{1, pass.backward_chunk, pass.backward_micro_batch}];
      ++made[{2, pass.backward_chunk, pass.backward_micro_batch}];
    }
  }
  return made;
}

TEST(PipelineSchedule, DualpipeMakesEveryPassOfBothDirectionsOnce) {
  for (const int stages : {2, 4, 6, 8})
    for (const int micro_batches : {2 * stages, 2 * stages + 2, 5 * stages}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << micro_batches << " micro-batches");
      for (const std::vector<Pass>& passes : dualpipe(stages, micro_batches)) {
        const Made made = made_by(passes);
        EXPECT_EQ(static_cast<int>(made.size()), 3 * micro_batches);
        for (const auto& [pass, times] : made) {
          EXPECT_EQ(times, 1);
          EXPECT_LT(std::get<2>(pass), micro_batches / 2);
        }
      }
    }
}

// Of an event simulation that was made apart: no messages, F = 1, B = 2 with W = 1 of it, both at once 3.
TEST(PipelineSchedule, DualpipeTakesAsLongAsPublished) {
  const auto run = [](int stages, int micro_batches) {
    const ModelledRun modelled_run = modelled(dualpipe(stages, micro_batches), {}, Parts::both_ways);
    EXPECT_TRUE(modelled_run.complete);
    return modelled_run;
  };
  EXPECT_DOUBLE_EQ(run(4, 8).time, 26);
  EXPECT_DOUBLE_EQ(run(4, 8).bubble, 2);
  EXPECT_DOUBLE_EQ(run(8, 20).time, 66);
  EXPECT_DOUBLE_EQ(run(8, 20).bubble, 6);
  EXPECT_DOUBLE_EQ(modelled(one_f_one_b(8, 20), {}).time, 81);
  // Both at once in less time than one after the other: the stage that waits least waits 3.
  const PassTimes overlapped{.forward_and_backward = 2.4};
  EXPECT_NEAR(modelled(dualpipe(8, 20), overlapped, Parts::both_ways).bubble, 3.0, 1e-9);
}

// (stages / 2 - 1)(F&B + B - 3 W), and activations of stages + 1 micro-batches.
TEST(PipelineSchedule, DualpipeHasTheBubbleAndTheActivationsOfThePaper) {
  for (const int stages : {2, 4, 6, 8})
    for (const int micro_batches : {2 * stages, 4 * stages, 5 * stages})
      for (const PassTimes& given : kTimes) {
        PassTimes times            = given;
        times.forward_and_backward = whole(times);
        const ModelledRun run      = modelled(dualpipe(stages, micro_batches), times, Parts::both_ways);
        ASSERT_TRUE(run.complete);
        const double published =
            (stages / 2 - 1) * (whole(times) + times.input_gradient - 2 * times.weight_gradient);
        SCOPED_TRACE(testing::Message() << stages << " stages, " << micro_batches << " micro-batches");
        // The paper's figure has passes of equal length; longer gradients of inputs fill some of the bubble.
        if (times.forward == times.input_gradient)
          EXPECT_DOUBLE_EQ(run.bubble, published);
        else
          EXPECT_LT(run.bubble, published + 1e-9);
        for (const int kept : run.kept_by) EXPECT_EQ(kept, stages + 1);
      }
}

TEST(PipelineSchedule, FewerMicroBatchesThanStagesStillRun) {
  for (int micro_batches = 1; micro_batches < 6; ++micro_batches)
    for (const Schedule& schedule :
         {gpipe(6, micro_batches), one_f_one_b(6, micro_batches), zero_bubble_h1(6, micro_batches)})
      EXPECT_TRUE(modelled(schedule, {}).complete);
}

TEST(PipelineSchedule, TheModelSeesACircleAndAMissingPass) {
  Schedule circle = one_f_one_b(2, 2);
  std::swap(circle[0][0], circle[0].back());  // a backward pass before its forward pass
  EXPECT_FALSE(modelled(circle, {}).complete);
  Schedule missing = gpipe(2, 2);
  missing[0].erase(missing[0].begin());
  EXPECT_FALSE(modelled(missing, {}).complete);
}

TEST(PipelineSchedule, ContractsAreChecked) {
  EXPECT_THROW(gpipe(0, 1), ContractError);
  EXPECT_THROW(one_f_one_b(1, 0), ContractError);
  EXPECT_THROW(dualpipe(3, 8), ContractError);
  EXPECT_THROW(dualpipe(4, 9), ContractError);
  EXPECT_THROW(dualpipe(4, 6), ContractError);
}

}  // namespace
}  // namespace fathom::lab::pipeline_parallel
