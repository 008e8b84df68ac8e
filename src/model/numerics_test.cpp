#include "model/numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "model/kv_rounding.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

class Numerics : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_synthetic_checkpoint({.shape = ModelShape::tiny, .seed = 3}, folder.path(), threads));
    checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder.path()).value());
    tokens.resize(11);
    std::iota(tokens.begin(), tokens.end(), 5);
  }
  std::vector<OpNumerics> trace(const Ops& ops, const Ops* reference = nullptr) {
    return trace_numerics(*checkpoint, tokens, ops, reference, threads);
  }

  TempFolder folder;
  ThreadPool threads{2};
  std::unique_ptr<Checkpoint> checkpoint;
  std::vector<TokenId> tokens;
};

TEST_F(Numerics, EachOpOfEachLayerHasAnEntry) {
  const auto seen      = trace(cpu_ops());
  const Config& config = checkpoint->config;
  ASSERT_EQ(std::ssize(seen), 1 + 12 * config.num_hidden_layers + 2);
  EXPECT_EQ(seen.front().op, "embedding");
  EXPECT_EQ(seen.front().values, 11 * config.hidden_size);
  EXPECT_EQ(seen.back().op, "logits");
  EXPECT_EQ(seen.back().values, config.vocab_size);
  EXPECT_EQ(seen.back().layer, config.num_hidden_layers);
  const int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  for (const OpNumerics& op : seen) {
    EXPECT_EQ(op.not_finite, 0) << op.op;
    EXPECT_GT(op.rms, 0) << op.op;
    EXPECT_GE(op.largest, op.rms) << op.op;
    if (op.op == "q" || op.op == "attention") {
      EXPECT_EQ(op.values, 11 * heads * config.head_dim);
    }
    if (op.op == "k after RoPE") {
      EXPECT_EQ(op.values, 11 * kv_heads * config.head_dim);
    }
    if (op.op == "router weights") {
      EXPECT_EQ(op.values, 11 * config.num_experts_per_tok);
      EXPECT_LE(op.largest, 1);
    }
  }
}

// The embedding's rows are in the checkpoint: rms and largest by hand.
TEST_F(Numerics, MagnitudesAreThoseOfTheValues) {
  tokens            = {7};
  const auto seen   = trace(reference_ops()).front();
  const auto& table = std::get<View<const bf16, 2>>(checkpoint->weights.embedding);
  double squares = 0, largest = 0;
  for (int64_t i = 0; i < table.extent(1); ++i) {
    const double x = static_cast<float>(table(7, i));
    squares += x * x;
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_DOUBLE_EQ(seen.rms, std::sqrt(squares / static_cast<double>(table.extent(1))));
  EXPECT_EQ(seen.largest, largest);
}

TEST_F(Numerics, ErrorsAreAgainstTheReferencePass) {
  const auto same = trace(cpu_ops(), &cpu_ops());
  for (const OpNumerics& op : same) EXPECT_EQ(op.reference_error, 0) << op.op;
  const auto other_order = trace(cpu_ops(), &reference_ops());
  EXPECT_EQ(other_order.front().reference_error, 0);  // a copy
  EXPECT_GT(other_order.back().reference_error, 0);
  EXPECT_LT(other_order.back().reference_error, 1e-4);
  // The cache is rounded after RoPE: nothing before attention in the first layer differs.
  const auto rounded = trace(cpu_ops_rounding_kv(KvFormat::nvfp4), &cpu_ops());
  for (const OpNumerics& op : rounded) {
    if (op.op == "attention") break;
    EXPECT_EQ(op.reference_error, 0) << op.op;
  }
  EXPECT_GT(rounded.back().reference_error, 100 * other_order.back().reference_error);
}

// A pass whose op leaves a value that is not finite, once: in the third call of the experts.
thread_local int calls_of_experts = 0;
TEST_F(Numerics, TheFirstOpThatLeavesNoNumberIsFound) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    static thread_local float written;
    written          = bad;
    calls_of_experts = 0;
    Ops ops          = cpu_ops();
    ops.experts = [](View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                     const kernels::ExpertWeights& w, View<float, 2> y, const Execution& on) {
      cpu_ops().experts(x, experts, weights, w, y, on);
      if (++calls_of_experts == 3) y(4, 9) = written;
    };
    const auto seen = trace(ops);
    const auto first =
        std::find_if(seen.begin(), seen.end(), [](const auto& op) { return op.not_finite > 0; });
    ASSERT_NE(first, seen.end());
    EXPECT_EQ(first->layer, 2);
    EXPECT_EQ(first->op, "residual after experts");
    EXPECT_EQ(first->not_finite, 1);
    EXPECT_TRUE(std::isfinite(first->rms) && std::isfinite(first->largest));
    // The norm of a row divides by an infinite rms, which leaves zeros beside the infinity; NaN fills the
    // row.
    EXPECT_EQ((first + 1)->not_finite, std::isnan(bad) ? checkpoint->config.hidden_size : 1);
  }
}

TEST_F(Numerics, OneTokenAndTheMostThatFit) {
  for (const int64_t count : {int64_t{1}, int64_t{63}, kMostNumericsTokens}) {
    tokens.assign(static_cast<size_t>(count), 3);
    EXPECT_EQ(trace(cpu_ops()).front().values, count * checkpoint->config.hidden_size);
  }
}

}  // namespace
}  // namespace fathom::model
