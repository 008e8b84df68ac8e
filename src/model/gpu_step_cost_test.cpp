#include "model/gpu_step_cost.h"

#include <gtest/gtest.h>

#include "kernels/attention/attention_cost.h"
#include "kernels/moe/experts_cost.h"

namespace fathom::model {
namespace {

// gpt-oss-20b.
Config config() {
  Config c;
  c.num_hidden_layers   = 24;
  c.num_local_experts   = 32;
  c.num_experts_per_tok = 4;
  c.hidden_size = c.intermediate_size = 2880;
  c.vocab_size                        = 201088;
  c.head_dim                          = 64;
  c.num_attention_heads               = 64;
  c.num_key_value_heads               = 8;
  c.sliding_window                    = 128;
  c.mxfp4_experts                     = true;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    c.layers.push_back(l % 2 == 0 ? Attention::sliding : Attention::full);
  return c;
}

const KernelCost* find(const std::vector<KernelCost>& costs, const std::string& kernel,
                       const std::string& instance = "") {
  for (const KernelCost& one : costs)
    if (one.kernel == kernel && one.instance == instance) return &one;
  return nullptr;
}

kernels::Cost sum(const std::vector<KernelCost>& costs) {
  kernels::Cost all;
  for (const KernelCost& one : costs) all += one.cost;
  return all;
}

// One token reads every dense weight, its experts, its logits' weights and its context once.
TEST(GpuStepCost, ADecodeStepOfOneTokenReadsWhatTheFootprintSays) {
  const Config c             = config();
  constexpr int64_t kContext = 1000;
  const auto costs =
      kernel_costs(c, KvFormat::bf16, {.rows = 1, .decodes = {{kContext - 1, 1}}, .logit_rows = 1});
  const Footprint f   = footprint(c);
  const double full   = static_cast<double>(f.kv_bytes_per_token * kContext);
  const double window = static_cast<double>(f.kv_window_bytes);
  // Packing pads, and biases are fp32 there: within 3 %.
  const double read = static_cast<double>(f.bytes_read_by_token) + full + window;
  EXPECT_GT(sum(costs).read, read);
  EXPECT_LT(sum(costs).read, 1.03 * read);
  for (const KernelCost& one : costs) EXPECT_FALSE(one.expected) << one.kernel;

  EXPECT_EQ(find(costs, "linear_gemv", "RopeKvWriteEpilogue")->launches, 24);
  EXPECT_EQ(find(costs, "linear_gemv", "LinearEpilogue<true>")->launches, 24);
  EXPECT_EQ(find(costs, "linear_gemv", "LinearEpilogue<false>")->launches, 1);
  EXPECT_EQ(find(costs, "experts_gemv_mxfp4_kernel", "UpProjection")->launches, 24);
  EXPECT_EQ(find(costs, "add_rmsnorm_bf16_kernel")->launches, 25);
  EXPECT_EQ(find(costs, "sample_kernel")->launches, 1);
  EXPECT_EQ(find(costs, "prefill_attention_kernel"), nullptr);
  EXPECT_EQ(find(costs, "wgmma_gemm_kernel", "SwigluEpilogue"), nullptr);
}

TEST(GpuStepCost, AttentionReachesAsFarAsEachLayerSees) {
  const Config c   = config();
  const auto bytes = [&](KvFormat format) {
    const auto costs = kernel_costs(c, format, {.rows = 2, .decodes = {{999, 1}, {9, 1}}, .logit_rows = 2});
    return find(costs, "decode_attention_kernel")->cost;
  };
  const double q = 2 * 64 * 64 * 2;
  EXPECT_EQ(bytes(KvFormat::bf16).read, 24 * q + 12 * 8 * 256.0 * (1000 + 10 + 128 + 10));
  EXPECT_EQ(bytes(KvFormat::fp8).read, 24 * q + 12 * 8 * 136.0 * (1000 + 10 + 128 + 10));
  // Layers with a window stay in bf16 beside 4 bits.
  EXPECT_EQ(bytes(KvFormat::k8v4).read, 24 * q + 12 * 8 * (104.0 * (1000 + 10) + 256.0 * (128 + 10)));
  EXPECT_EQ(bytes(KvFormat::nvfp4).read, 24 * q + 12 * 8 * (72.0 * (1000 + 10) + 256.0 * (128 + 10)));
  EXPECT_EQ(bytes(KvFormat::bf16).flops, 12 * 4 * 64 * 64.0 * (1000 + 10 + 128 + 10));
}

TEST(GpuStepCost, ExpertsOfSeveralTokensAreAnExpectation) {
  const Config c = config();
  PassExtents pass{.rows = 16, .decodes = {}, .logit_rows = 16};
  for (int i = 0; i < 13; ++i) pass.decodes.push_back({i, 1});  // three rows of padding
  const auto costs = kernel_costs(c, KvFormat::bf16, pass);
  const auto* up   = find(costs, "wgmma_gemm_kernel", "SwigluEpilogue");
  ASSERT_NE(up, nullptr);
  EXPECT_TRUE(up->expected);
  EXPECT_TRUE(find(costs, "wgmma_gemm_kernel", "WeightedEpilogue")->expected);
  EXPECT_FALSE(find(costs, "wgmma_gemm_kernel", "RopeKvWriteEpilogue")->expected);
  const double hit = kernels::expected_experts_hit(32, 4, 13);
  EXPECT_DOUBLE_EQ(up->cost.read, 24 * kernels::experts_up_cost(hit, 13 * 4, 13 * 4, 2880, 5760, 2880).read);
  EXPECT_EQ(find(costs, "linear_gemv", "LinearEpilogue<false>"), nullptr);
}

TEST(GpuStepCost, ADecodePassAndAPrefillPassAddUp) {
  const Config c = config();
  const PassExtents decode{.rows = 8, .decodes = {{100, 1}}, .logit_rows = 8};
  const PassExtents prompt{.rows = 100, .prompts = {{0, 100}}};
  auto all               = kernel_costs(c, KvFormat::bf16, decode);
  const auto second      = kernel_costs(c, KvFormat::bf16, prompt);
  const kernels::Cost is = sum(all) + sum(second);
  add_costs(all, second);
  EXPECT_DOUBLE_EQ(sum(all).bytes(), is.bytes());
  EXPECT_DOUBLE_EQ(sum(all).flops, is.flops);
  EXPECT_EQ(find(all, "rmsnorm_router_kernel")->launches, 48);
  EXPECT_EQ(find(all, "prefill_attention_kernel")->launches, 24);
  EXPECT_EQ(find(second, "sample_kernel"), nullptr);  // nothing is sampled
}

// The same rows are summed in one order: by the kernels for many rows, whatever their number.
TEST(GpuStepCost, FixedOrderTakesTheKernelsForManyRows) {
  const auto costs = kernel_costs(config(), KvFormat::bf16,
                                  {.rows = 1, .prompts = {{5, 1}}, .logit_rows = 1, .fixed_order = true});
  EXPECT_EQ(find(costs, "linear_gemv", "RopeKvWriteEpilogue"), nullptr);
  EXPECT_EQ(find(costs, "experts_gemv_mxfp4_kernel", "UpProjection"), nullptr);
  EXPECT_EQ(find(costs, "wgmma_gemm_kernel", "SwigluEpilogue")->launches, 24);
  EXPECT_EQ(find(costs, "prefill_attention_kernel")->launches, 24);
}

// One launch does the work of two.
TEST(GpuStepCost, FusedExpertsCostWhatTheTwoLayersCost) {
  PassExtents pass{.rows = 2, .decodes = {{999, 1}, {9, 1}}, .logit_rows = 2};
  const auto two     = kernel_costs(config(), KvFormat::bf16, pass);
  pass.fused_experts = true;
  const auto one     = kernel_costs(config(), KvFormat::bf16, pass);
  EXPECT_EQ(find(one, "experts_gemv_fused_mxfp4_kernel")->launches, 24);
  EXPECT_EQ(find(one, "experts_gemv_mxfp4_kernel", "UpProjection"), nullptr);
  EXPECT_DOUBLE_EQ(sum(one).read, sum(two).read);
  EXPECT_DOUBLE_EQ(sum(one).written, sum(two).written);
  EXPECT_DOUBLE_EQ(sum(one).flops, sum(two).flops);
}

// The copy has half of the unembedding's bytes.
TEST(GpuStepCost, ScreeningReadsHalfOfTheUnembedding) {
  const Config c = config();
  PassExtents pass{.rows = 1, .decodes = {{999, 1}}, .logit_rows = 1};
  const auto all      = kernel_costs(c, KvFormat::bf16, pass);
  pass.screened       = true;
  const auto screened = kernel_costs(c, KvFormat::bf16, pass);
  EXPECT_EQ(find(screened, "linear_gemv", "LinearEpilogue<false>"), nullptr);
  EXPECT_EQ(find(screened, "sample_kernel"), nullptr);
  const double half = find(all, "linear_gemv", "LinearEpilogue<false>")->cost.read / 2;
  EXPECT_NEAR(find(screened, "screen_kernel")->cost.read, half, 0.01 * half);
  EXPECT_EQ(find(screened, "rescore_kernel")->launches, 1);
}

}  // namespace
}  // namespace fathom::model
