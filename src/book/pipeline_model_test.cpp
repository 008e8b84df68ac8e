#include "book/pipeline_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace fathom::book {
namespace {

constexpr Schedule kSchedules[] = {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved,
                                   Schedule::zero_bubble, Schedule::dualpipe};

const PipelineModel& run(const Pipeline& pipeline) {
  static const auto model = std::make_unique<PipelineModel>();
  EXPECT_EQ(impossible(pipeline), Impossible::none);
  model->run(pipeline);
  return *model;
}

// The golden values of the book.
TEST(PipelineModel, BubblesOfTheBook) {
  for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    const PipelineModel& small = run({.schedule = schedule, .stages = 4, .microbatches = 8});
    EXPECT_DOUBLE_EQ(small.total(), 33);
    EXPECT_NEAR(small.bubble(), 0.2727, 5e-5);
    const PipelineModel& large = run({.schedule = schedule, .stages = 8, .microbatches = 32});
    EXPECT_DOUBLE_EQ(large.total(), 117);
    EXPECT_NEAR(large.bubble(), 0.1795, 5e-5);
  }
}

// Chapter 17: 8 stages wait for 21, 7 and 6, by the published formulas.
TEST(PipelineModel, WaitingTimesOfTheBook) {
  const auto waits = [](Schedule schedule) {
    const PipelineModel& model = run({.schedule = schedule, .stages = 8, .microbatches = 32});
    return model.total() - model.busy(0);
  };
  EXPECT_DOUBLE_EQ(waits(Schedule::one_f_one_b), 21);
  EXPECT_DOUBLE_EQ(waits(Schedule::zero_bubble), 7);
  EXPECT_DOUBLE_EQ(waits(Schedule::dualpipe), 6);
}

TEST(PipelineModel, TimesAreThoseOfThePublishedFormulas) {
  for (int p : {1, 2, 3, 4, 5, 7, 8, 13, 16})
    for (int m : {1, 2, 4, 8, 13, 16, 26, 32, 64}) {
      const double f = 1, b = 2, w = 1;
      EXPECT_DOUBLE_EQ(run({Schedule::gpipe, p, m, 1, f, b, w}).total(), (m + p - 1) * (f + b));
      EXPECT_DOUBLE_EQ(run({Schedule::one_f_one_b, p, m, 1, f, b, w}).total(), (m + p - 1) * (f + b))
          << p << " " << m;
      if (m >= p) {
        EXPECT_DOUBLE_EQ(run({Schedule::zero_bubble, p, m, 1, f, b, w}).total(),
                         m * (f + b) + (p - 1) * (f + b - 2 * w))
            << p << " " << m;
      }
      for (int v : {1, 2, 3, 4})
        if (m % p == 0) {
          EXPECT_NEAR(run({Schedule::interleaved, p, m, v, f, b, w}).total(),
                      m * (f + b) + (p - 1) * (f + b) / v, 1e-9)
              << p << " " << m << " " << v;
        }
      if (p % 2 == 0 && m % 2 == 0 && m >= 2 * p) {
        EXPECT_DOUBLE_EQ(run({Schedule::dualpipe, p, m, 1, f, b, w, f + b}).total(),
                         m * (f + b) + (p / 2 - 1) * (f + b + b - 3 * w))
            << p << " " << m;
      }
    }
}

// Of what a stage holds at most: all microbatches; as many as stages follow; the published p + 1 of DualPipe.
TEST(PipelineModel, ActivationsHeldAreThoseOfThePapers) {
  for (int p : {1, 2, 4, 8})
    for (int m : {1, 3, 16, 32})
      for (int stage = 0; stage < p; ++stage) {
        EXPECT_EQ(run({.schedule = Schedule::gpipe, .stages = p, .microbatches = m}).most_held(stage), m);
        EXPECT_EQ(run({.schedule = Schedule::one_f_one_b, .stages = p, .microbatches = m}).most_held(stage),
                  std::min(m, p - stage));
        EXPECT_LE(run({.schedule = Schedule::zero_bubble, .stages = p, .microbatches = m}).most_held(stage),
                  p);
        if (p % 2 == 0 && m >= 2 * p && m % 2 == 0) {
          EXPECT_EQ(run({.schedule = Schedule::dualpipe, .stages = p, .microbatches = m}).most_held(stage),
                    p + 1);
        }
      }
  const PipelineModel& model =
      run({.schedule = Schedule::interleaved, .stages = 4, .microbatches = 16, .chunks = 2});
  EXPECT_EQ(model.most_held(0), (2 * 3 + 4 + 1) / 2.0);
}

// The backward passes that the paper's figure splits: on stage s from an end s + 1, and two more for each
// stage between it and the middle.
TEST(PipelineModel, DualpipePostponesAsPublished) {
  for (int p : {2, 4, 8, 16}) {
    const PipelineModel& model = run({.schedule = Schedule::dualpipe, .stages = p, .microbatches = 32});
    for (int stage = 0; stage < p; ++stage) {
      int postponed = 0;
      for (int i = 0; i < model.ops(stage); ++i)
        postponed += model.op(stage, i).kind == OpKind::weight_gradient;
      const int from_end = std::min(stage, p - 1 - stage);
      EXPECT_EQ(postponed, from_end + 1 + 2 * (p / 2 - from_end - 1)) << p << " " << stage;
    }
  }
}

// Every pass once, in an order that the data allow, one at a time on a stage, and not before a transfer ends.
void expect_valid(const Pipeline& p) {
  const PipelineModel& model = run(p);
  const int parts = p.schedule == Schedule::interleaved ? p.chunks : p.schedule == Schedule::dualpipe ? 2 : 1;
  const int of_part  = p.schedule == Schedule::dualpipe ? p.microbatches / 2 : p.microbatches;
  const double share = p.schedule == Schedule::interleaved ? 1.0 / p.chunks : 1;
  // Places of the model: (copy, position from its first layer).
  const auto position = [&](int stage, int part) {
    if (p.schedule == Schedule::dualpipe) return std::pair{part, part == 0 ? stage : p.stages - 1 - stage};
    return std::pair{0, part * p.stages + stage};
  };
  const int last = p.schedule == Schedule::interleaved ? p.stages * p.chunks - 1 : p.stages - 1;
  using Pass     = std::tuple<char, int, int, int>;  // kind, copy, position, microbatch
  std::map<Pass, std::pair<double, double>> times;
  std::map<Pass, int> stage_of;
  double end = 0;
  for (int stage = 0; stage < p.stages; ++stage) {
    double free = 0;
    for (int i = 0; i < model.ops(stage); ++i) {
      const PipelineOp& op = model.op(stage, i);
      EXPECT_GE(op.begin, free);
      free              = op.end;
      end               = std::max(end, op.end);
      const auto record = [&](char kind, int part, int microbatch) {
        ASSERT_LT(part, parts);
        ASSERT_LT(microbatch, of_part);
        const auto [copy, at] = position(stage, part);
        const Pass pass{kind, copy, at, microbatch};
        ASSERT_TRUE(times.insert({pass, {op.begin, op.end}}).second);
        stage_of[pass] = stage;
      };
      const double took = op.end - op.begin;
      switch (op.kind) {
        case OpKind::forward:
          EXPECT_NEAR(took, p.forward * share, 1e-9);
          record('F', op.part, op.microbatch);
          break;
        case OpKind::backward:
          EXPECT_NEAR(took, p.backward * share, 1e-9);
          record('B', op.backward_part, op.backward_microbatch);
          record('W', op.backward_part, op.backward_microbatch);
          break;
        case OpKind::input_gradient:
          EXPECT_NEAR(took, p.backward - p.weight, 1e-9);
          record('B', op.backward_part, op.backward_microbatch);
          break;
        case OpKind::weight_gradient:
          EXPECT_NEAR(took, p.weight, 1e-9);
          record('W', op.backward_part, op.backward_microbatch);
          break;
        case OpKind::forward_and_backward:
          EXPECT_NEAR(took, p.both, 1e-9);
          record('F', op.part, op.microbatch);
          record('B', op.backward_part, op.backward_microbatch);
          record('W', op.backward_part, op.backward_microbatch);
          break;
      }
    }
  }
  EXPECT_DOUBLE_EQ(end, model.total());
  EXPECT_EQ(times.size(), 3u * static_cast<size_t>(p.stages * parts * of_part));
  for (const auto& [pass, when] : times) {
    const auto [kind, copy, at, microbatch] = pass;
    std::vector<Pass> before;
    if (kind == 'F' && at > 0) before.push_back({'F', copy, at - 1, microbatch});
    if (kind == 'B') before.push_back({'F', copy, at, microbatch});
    if (kind == 'B' && at < last) before.push_back({'B', copy, at + 1, microbatch});
    for (const Pass& needed : before) {
      ASSERT_TRUE(times.count(needed));
      const double transfer = stage_of[needed] == stage_of[pass] ? 0 : p.transfer;
      EXPECT_GE(when.first + 1e-9, times[needed].second + transfer) << kind << " " << at << " " << microbatch;
    }
    if (kind == 'W') {
      EXPECT_GE(when.second, (times[{'B', copy, at, microbatch}].second));
    }
  }
  // What is held, from the passes' times alone.
  for (int stage = 0; stage < p.stages; ++stage) {
    double most = 0;
    for (int i = 0; i < model.ops(stage); ++i) {
      const double now = model.op(stage, i).begin;
      double held      = 0;
      for (int part = 0; part < parts; ++part)
        for (int microbatch = 0; microbatch < of_part; ++microbatch) {
          const auto [copy, at] = position(stage, part);
          held += times[{'F', copy, at, microbatch}].first <= now &&
                  times[{'W', copy, at, microbatch}].second > now;
        }
      EXPECT_NEAR(model.held(stage, now), held * share, 1e-9);
      most = std::max(most, held * share);
    }
    EXPECT_NEAR(model.most_held(stage), most, 1e-9);
  }
}

TEST(PipelineModel, EverySchedulesPassesAreInOrder) {
  for (Schedule schedule : kSchedules)
    for (int p : {1, 2, 3, 4, 8})
      for (int m : {1, 2, 6, 7, 16, 24})
        for (int v : {1, 3})
          for (double transfer : {0.0, 0.3}) {
            const Pipeline pipeline{schedule, p, m, v, 1, 2.5, 0.9, 3.1, transfer};
            if (impossible(pipeline) == Impossible::none) expect_valid(pipeline);
          }
}

TEST(PipelineModel, OneStageNeverWaits) {
  for (Schedule schedule :
       {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble}) {
    const PipelineModel& model = run({.schedule = schedule, .stages = 1, .microbatches = 5});
    EXPECT_DOUBLE_EQ(model.total(), 15);
    EXPECT_NEAR(model.bubble(), 0, 1e-12);
  }
}

TEST(PipelineModel, TimesOfNothing) {
  const PipelineModel& model = run({.forward = 0, .backward = 0, .weight = 0});
  EXPECT_EQ(model.total(), 0);
  EXPECT_EQ(model.bubble(), 0);
}

TEST(PipelineModel, RefusesWhatAScheduleCannotDo) {
  EXPECT_EQ(impossible({.stages = 0}), Impossible::out_of_range);
  EXPECT_EQ(impossible({.stages = 17}), Impossible::out_of_range);
  EXPECT_EQ(impossible({.microbatches = 0}), Impossible::out_of_range);
  EXPECT_EQ(impossible({.microbatches = 65}), Impossible::out_of_range);
  EXPECT_EQ(impossible({.backward = 1, .weight = 2}), Impossible::out_of_range);
  EXPECT_EQ(impossible({.schedule = Schedule::interleaved, .microbatches = 6}),
            Impossible::microbatches_not_a_multiple);
  EXPECT_EQ(impossible({.schedule = Schedule::dualpipe, .stages = 3}), Impossible::stages_not_even);
  EXPECT_EQ(impossible({.schedule = Schedule::dualpipe, .microbatches = 9}),
            Impossible::microbatches_not_even);
  EXPECT_EQ(impossible({.schedule = Schedule::dualpipe, .microbatches = 6}),
            Impossible::too_few_microbatches);
  EXPECT_EQ(impossible({.schedule = Schedule::dualpipe}), Impossible::none);
}

}  // namespace
}  // namespace fathom::book
