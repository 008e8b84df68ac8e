// The kernels of a forward pass on the GPU (model/gpt_oss_gpu.h) with the cost that each of them declares
// (kernels/cost.h), for profiles. Computed only where a profile asks for it; needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cost.h"
#include "model/config.h"
#include "model/gpu_kv_cache.h"

namespace fathom::model {

// All launches of one op in a pass.
struct KernelCost {
  // The kernel's name in a profile contains both: "wgmma_gemm_kernel", and what tells its instances apart,
  // "SwigluEpilogue".
  std::string kernel, instance;
  int64_t launches = 0;
  kernels::Cost cost;
  // The cost is that of as many experts as random routing is expected to hit: the host does not know how many
  // it was. Exact where a pass has a single token.
  bool expected = false;
};

// What a pass computes, as the host knows it.
struct PassExtents {
  // Rows first .. first + count of a sequence.
  struct Rows {
    int64_t first = 0, count = 0;
  };

  int64_t rows = 0;               // T, with padding
  std::vector<Rows> decodes;      // computed by decode attention: not padding
  std::vector<Rows> prompts;      // computed by prefill attention
  int64_t logit_rows    = 0;      // whose token is sampled, with padding
  int64_t filtered_rows = 0;      // of those, with top-k, top-p or min-p
  bool fixed_order      = false;  // SumOrder::one
  int64_t ranks         = 1;      // of which this GPU is one, and `config` is its part's
  bool fused_experts    = false;  // GpuDecodeOptions
  bool screened         = false;  // by GptOssGpu::screened_tokens
};

std::vector<KernelCost> kernel_costs(const Config& config, KvFormat format, const PassExtents& pass);

// Adds the costs of another pass, op by op.
void add_costs(std::vector<KernelCost>& sum, const std::vector<KernelCost>& costs);

}  // namespace fathom::model
