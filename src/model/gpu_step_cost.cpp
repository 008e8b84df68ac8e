#include "model/gpu_step_cost.h"

#include <algorithm>

#include "kernels/attention/attention_cost.h"
#include "kernels/attention/rope_table.h"
#include "kernels/collectives/all_reduce_add.h"
#include "kernels/embedding/embedding_gpu.h"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/moe/experts_cost.h"
#include "kernels/moe/permute.h"
#include "kernels/moe/rmsnorm_router.h"
#include "kernels/norm/add_rmsnorm.h"
#include "kernels/sampling/sample.h"
#include "kernels/sampling/screened_argmax.h"

namespace fathom::model {
namespace {

using kernels::AttentionReach;
using kernels::Cost;
using kernels::kHeadDim;
using kernels::padded;

class Collector {
 public:
  void launch(const char* kernel, const char* instance, const Cost& cost, bool expected = false) {
    add_costs(costs, {{kernel, instance, 1, cost, expected}});
  }
  std::vector<KernelCost> costs;
};

AttentionReach reach_of(const std::vector<PassExtents::Rows>& all, int64_t window) {
  AttentionReach reach;
  for (const auto& rows : all) reach.add(rows.first, rows.count, window);
  return reach;
}

}  // namespace

void add_costs(std::vector<KernelCost>& sum, const std::vector<KernelCost>& costs) {
  for (const KernelCost& cost : costs) {
    const auto same = std::find_if(sum.begin(), sum.end(), [&](const KernelCost& one) {
      return one.kernel == cost.kernel && one.instance == cost.instance;
    });
    if (same == sum.end()) {
      sum.push_back(cost);
      continue;
    }
    same->launches += cost.launches;
    same->cost += cost.cost;
    same->expected = same->expected || cost.expected;
  }
}

// In the order of GptOssGpu::forward and logits.
std::vector<KernelCost> kernel_costs(const Config& c, KvFormat format, const PassExtents& pass) {
  const int64_t T = pass.rows, H = c.hidden_size, E = c.num_local_experts, top_k = c.num_experts_per_tok;
  const int64_t heads = c.num_attention_heads, kv_heads = c.num_key_value_heads, R = pass.logit_rows;
  const int64_t units = padded(c.intermediate_size), depth = padded(H);
  const int64_t N          = pass.ranks;
  const bool few           = T <= kernels::kMaxGemvRows && !pass.fixed_order;
  const bool few_logits    = R <= kernels::kMaxGemvRows && !pass.fixed_order;
  const auto linear_kernel = [](bool gemv) { return gemv ? "linear_gemv" : "wgmma_gemm_kernel"; };

  // Padding has no experts, and leaves the cache as it is.
  const int64_t tokens = reach_of(pass.decodes, 0).rows + reach_of(pass.prompts, 0).rows;
  const double hit     = kernels::expected_experts_hit(E, top_k, tokens);
  const bool expected  = tokens > 1 && top_k < E;

  Collector to;
  to.launch("embedding_kernel", "", kernels::embedding_cost(T, H));
  to.launch("rope_table_kernel", "", kernels::rope_table_cost(T));
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const int64_t position_bytes = kv_position_bytes(c.layers[l], format);
    to.launch("add_rmsnorm_bf16_kernel", "", kernels::add_rmsnorm_cost(T, H, l == 0 || N > 1 ? 0 : top_k));
    to.launch(linear_kernel(few), "RopeKvWriteEpilogue",
              kernels::qkv_rope_cost(T, tokens, heads, kv_heads, depth, position_bytes));
    const int64_t window = c.layers[l] == Attention::sliding ? c.sliding_window : 0;
    if (const AttentionReach reach = reach_of(pass.decodes, window); reach.rows > 0)
      to.launch("decode_attention_kernel", "",
                kernels::attention_cost(reach, heads, kv_heads, position_bytes));
    if (const AttentionReach reach = reach_of(pass.prompts, window); reach.rows > 0)
      to.launch("prefill_attention_kernel", "",
                kernels::attention_cost(reach, heads, kv_heads, position_bytes));
    if (N == 1) {
      to.launch(linear_kernel(few), "LinearEpilogue<true>",
                kernels::linear_add_cost(T, padded(H), heads * kHeadDim, H, true));
    } else {
      to.launch(linear_kernel(few), "LinearEpilogue<false>",
                kernels::linear_cost(T, padded(H), heads * kHeadDim, H, true));
      to.launch("all_reduce_add_kernel", "", kernels::all_reduce_add_cost(T, 1, H, N));
    }
    to.launch("rmsnorm_router_kernel", "", kernels::rmsnorm_router_cost(T, H, E, top_k));
    const int64_t expert_rows = tokens * top_k;
    const auto up             = [&](int64_t rows) {
      return kernels::experts_up_cost(hit, expert_rows, rows, H, 2 * units, depth);
    };
    const Cost down = kernels::experts_down_cost(hit, expert_rows, H, padded(H), units);
    if (few && pass.fused_experts) {
      Cost both = up(tokens);
      both += down;
      to.launch("experts_gemv_fused_mxfp4_kernel", "", both, expected);
    } else if (few) {
      to.launch("experts_gemv_mxfp4_kernel", "UpProjection", up(tokens), expected);
      to.launch("experts_gemv_mxfp4_kernel", "DownProjection", down, expected);
    } else {
      to.launch("sort_by_expert_kernel", "", kernels::sort_by_expert_cost(T * top_k, E));
      to.launch("gather_rows_kernel", "", kernels::gather_rows_cost(expert_rows, H));
      to.launch("wgmma_gemm_kernel", "SwigluEpilogue", up(expert_rows), expected);
      to.launch("wgmma_gemm_kernel", "WeightedEpilogue", down, expected);
    }
    if (N > 1) to.launch("all_reduce_add_kernel", "", kernels::all_reduce_add_cost(T, top_k, H, N));
  }
  if (R == 0) return to.costs;
  to.launch("add_rmsnorm_bf16_kernel", "", kernels::add_rmsnorm_rows_cost(R, H, N > 1 ? 0 : top_k));
  if (pass.screened) {
    to.launch("screen_kernel", "", kernels::screen_cost(R, padded(c.vocab_size), depth));
    to.launch("rescore_kernel", "", kernels::rescore_cost(R, padded(c.vocab_size), depth));
    return to.costs;
  }
  to.launch(linear_kernel(few_logits), "LinearEpilogue<false>",
            kernels::linear_cost(R, padded(c.vocab_size / N), depth, c.vocab_size / N, false));
  to.launch("sample_kernel", "", kernels::sample_cost(R, pass.filtered_rows, c.vocab_size));
  return to.costs;
}

}  // namespace fathom::model
