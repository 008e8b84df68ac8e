#include "launch/training_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::launch {
namespace {

TrainingRun run_of(const char* model, const char* mesh) {
  return {
      .model = find_model_shape(model).value(), .mesh = comm::parse_mesh(mesh).value(), .gpu_bytes = 1e15};
}

std::string why(const TrainingRun& run) {
  const auto plan = plan_training(run);
  return plan ? "" : plan.error().message;
}

// What their authors publish: 8.03, 70.6 and 405.9 billion.
TEST(ModelShapes, HaveThePublishedNumbersOfParameters) {
  EXPECT_NEAR(find_model_shape("llama-3-8b").value().parameters(), 8.030e9, 1e6);
  EXPECT_NEAR(find_model_shape("llama-3-70b").value().parameters(), 70.554e9, 1e6);
  EXPECT_NEAR(find_model_shape("llama-3-405b").value().parameters(), 405.85e9, 1e7);
  EXPECT_NE(find_model_shape("llama").error().message.find("llama-3-8b"), std::string::npos);
}

// ZeRO's table (2020, figure 1) counts 2 bytes of weights and 12 of optimizer a parameter; gradients are
// fp32.
TEST(TrainingPlan, DataParallelRanksShareTheOptimizerAlone) {
  const double parameters = find_model_shape("llama-3-8b").value().parameters();
  const TrainingPlan plan = plan_training(run_of("llama-3-8b", "dp8")).value();
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_DOUBLE_EQ(plan.stages[0].weights, 2 * parameters);
  EXPECT_DOUBLE_EQ(plan.stages[0].gradients, 4 * parameters);
  EXPECT_DOUBLE_EQ(plan.stages[0].optimizer, 12 * parameters / 8);
  EXPECT_EQ(plan.micro_batches, 8);
  EXPECT_EQ(plan.bubble, 0);
  ASSERT_EQ(plan.axes.size(), 1u);
  EXPECT_DOUBLE_EQ(plan.axes[0].sent_bytes, 7.0 / 8 * 6 * parameters);
}

// All ranks together hold the model once, and the norms' few numbers on each tp rank.
TEST(TrainingPlan, ModelParallelRanksHoldTheModelOnce) {
  const double parameters = find_model_shape("llama-3-70b").value().parameters();
  for (const char* mesh : {"tp8", "pp2_tp4", "pp2_dp1_tp4"}) {
    const TrainingPlan plan = plan_training(run_of("llama-3-70b", mesh)).value();
    double weights          = 0;
    for (const StageMemory& stage : plan.stages) weights += stage.weights;
    EXPECT_NEAR(weights * (plan.stages.size() == 2 ? 4 : 8), 2 * parameters, 1e-3 * parameters) << mesh;
  }
}

TEST(TrainingPlan, RanksOfTheLastAxisAreNeighbours) {
  const TrainingPlan plan = plan_training(run_of("llama-3-8b", "pp2_dp2_tp2")).value();
  EXPECT_EQ(plan.ranks, 8);
  EXPECT_EQ(plan.axes[0].stride, 4);
  EXPECT_EQ(plan.axes[1].stride, 2);
  EXPECT_EQ(plan.axes[2].stride, 1);
  EXPECT_EQ(plan.coordinate(5, 0), 1);  // 5 = 1 * 4 + 0 * 2 + 1
  EXPECT_EQ(plan.coordinate(5, 1), 0);
  EXPECT_EQ(plan.coordinate(5, 2), 1);
}

TEST(TrainingPlan, NvlinkIsForGroupsWithinADomain) {
  TrainingRun run   = run_of("llama-3-8b", "pp2_dp2_tp2");
  const auto nvlink = [&](int domain) {
    run.domain = domain;
    std::vector<bool> links;
    const TrainingPlan plan = plan_training(run).value();
    for (const AxisPlan& axis : plan.axes) links.push_back(axis.nvlink);
    return links;
  };
  EXPECT_EQ(nvlink(8), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(nvlink(4), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(nvlink(2), (std::vector<bool>{false, false, true}));
  run.domain = 1;
  EXPECT_NE(why(run).find("tp2 crosses NVLink domains of 1"), std::string::npos) << why(run);
  run        = run_of("llama-3-8b", "tp4_dp2");  // neighbours are dp's
  run.domain = 4;
  EXPECT_NE(why(run).find("write it last"), std::string::npos) << why(run);
  run.domain = 8;
  EXPECT_EQ(why(run), "");
  run        = run_of("llama-3-8b", "dp2_tp4");  // domains that do not begin where a group does
  run.domain = 6;
  EXPECT_NE(why(run).find("tp4 crosses"), std::string::npos) << why(run);
}

// A tiny model, counted by hand.
TEST(TrainingPlan, BytesAndFlopsAreThoseOfASmallModelByHand) {
  TrainingRun run{.model        = {"tiny", 4, 8, 2, 2, 4, 16, 32},
                  .mesh         = comm::parse_mesh("pp2_dp2_tp2").value(),
                  .sequence     = 4,
                  .micro_batch  = 2,
                  .global_batch = 12};
  const TrainingPlan plan = plan_training(run).value();
  EXPECT_EQ(plan.micro_batches, 3);
  EXPECT_DOUBLE_EQ(plan.bubble, 0.25);
  // Attention 4 * 8 * 8, MLP 3 * 8 * 16.
  EXPECT_EQ(run.model.layer_matrices(), 640);
  const double states = 2 * 4 * 2 * 8;  // bytes of hidden states of a micro-batch
  EXPECT_DOUBLE_EQ(plan.axes[0].sent_bytes, 3 * states / 2);
  EXPECT_DOUBLE_EQ(plan.axes[2].sent_bytes, 3 * 2 * 8 * 0.5 * states);  // micro-batches, layers of a stage
  // A stage: 2 layers of 640 / 2 + 16 numbers, 32 * 8 / 2 of the embedding; the last one 8 of a norm.
  EXPECT_DOUBLE_EQ(plan.stages[0].weights, 2 * (2 * 336 + 128));
  EXPECT_DOUBLE_EQ(plan.stages[1].weights, 2 * (2 * 336 + 128 + 8));
  EXPECT_DOUBLE_EQ(plan.axes[1].sent_bytes, 0.5 * 6 * 808);
  // A token and layer: 4 * 8 + 2 * 8 + 2 * 8 + 3 * 16 numbers of 2 bytes, over 2 ranks; 8 tokens, 2 layers;
  // two micro-batches in flight in the first stage, one in the last, which has logits of 6 bytes.
  EXPECT_DOUBLE_EQ(plan.stages[0].activations, 2 * 8 * 2 * 112);
  EXPECT_DOUBLE_EQ(plan.stages[1].activations, 8 * 2 * 112 + 8 * 16 * 6);
  // 48 tokens over 8 ranks; matrices without the input embedding, attention over half of 4 positions.
  const double per_token = 6 * (4 * (640 + 16) + 256 + 8) + 6 * 4 * 8 * 4;
  EXPECT_DOUBLE_EQ(plan.flops, 48.0 / 8 * per_token);
}

TEST(TrainingPlan, WhatDoesNotDivideIsNamed) {
  EXPECT_NE(why(run_of("llama-3-8b", "pp3_tp2")).find("layers (32) do not divide by pp (3)"),
            std::string::npos);
  EXPECT_NE(why(run_of("llama-3-8b", "tp16")).find("key-value heads (8)"), std::string::npos);
  TrainingRun run  = run_of("llama-3-8b", "dp8");
  run.global_batch = 12;
  EXPECT_NE(why(run).find("sequences of a step (12)"), std::string::npos);
  EXPECT_NE(why(run_of("llama-3-8b", "ep8")).find("not ep"), std::string::npos);
}

TEST(TrainingPlan, WhatDoesNotFitIsRefusedWithItsParts) {
  TrainingRun run = run_of("llama-3-70b", "tp8");
  run.gpu_bytes   = 80e9;
  for (const char* said :
       {"a rank of stage 0 needs 17", "17.6 GB weights", "35.3 GB gradients", "80.0 GB", "more of tp"})
    EXPECT_NE(why(run).find(said), std::string::npos) << why(run);
}

TEST(TrainingPlan, OfTooManyRanksIsRefused) {
  TrainingRun run  = run_of("llama-3-8b", "pp2_dp8388608_tp8");
  run.global_batch = 8388608;
  const auto plan  = plan_training(run);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("134217728 ranks"), std::string::npos) << plan.error().message;
}

}  // namespace
}  // namespace fathom::launch
