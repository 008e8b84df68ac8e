// gpt-oss's forward pass on a GPU: the residual stream in fp32, the operands of matrix products in bf16.
// Everything is enqueued on one stream, nothing waits, and no launch depends on computed values, so that a
// pass can be captured into a graph. model/gpu_step_cost.h lists the launches with their costs.
//
// Several GPUs (tensor parallel, model/shard.h): each has a GptOssGpu with its part of the model, which
// join() connects. Twice a layer their parts are summed into each residual stream, in the kernel that would
// add them anyway (kernels/collectives/all_reduce_add.h), and each stores its part of the logits in the
// memory of rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/view.h"
#include "cuda/device_buffer.h"
#include "cuda/stream.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/collectives/all_reduce_add.h"
#include "kernels/gemm/linear_gpu.h"
#include "model/config.h"
#include "model/gpu_kv_cache.h"
#include "model/gpu_weights.h"

namespace fathom::model {

// The input of one step, on the device. Rows that decode attention computes one by one come first, then those
// of prompts, which `tiles` divides for prefill attention. Padding has position -1, slot -1 and tiles of no
// rows.
struct GpuBatch {
  View<const int32_t, 1> tokens;  // [T]
  // [T]; >= 0: the token is prev_sampled(prev_sampled_index), which the host need not know.
  View<const int32_t, 1> prev_sampled_index;
  View<const int32_t, 1> prev_sampled;  // tokens of earlier steps
  View<const int32_t, 1> positions;     // [T]
  View<const int32_t, 1> sequence;      // [T]
  int64_t decode_rows = 0;
  View<const kernels::PrefillTile, 1> tiles;
  int64_t max_seq_len = 0;      // at least position + 1 of every row
  View<const int32_t, 1> pass;  // [1]: number of the pass, from 1 on; for several ranks
  // For layers of full attention, and for sliding ones: the slot of each row's key and value (page * 64 +
  // position in the page), and the block table, [S, P].
  struct KvMetadata {
    View<const int32_t, 1> slot_mapping;
    View<const int32_t, 2> block_table;
  };
  KvMetadata full, window;
};

// Rungs of decode steps of few rows. Results are the same bits.
struct GpuDecodeOptions {
  bool fused_experts = false;  // both layers of the experts in one launch (experts_gemv_fused)
  // The output projection starts to fetch its weights before decode attention has its queries.
  bool early_output_projection = false;
};

class GptOssGpu {
 public:
  // `weights` and `device` must outlive it. With SumOrder::one, and where all rows of all batches are in
  // tiles, a row's numbers depend on its sequence alone: not on the other rows, nor on how its sequence was
  // divided into batches. Throws NotEnoughMemory.
  GptOssGpu(const Config& config, const GpuWeights& weights, int64_t max_rows, int64_t max_logit_rows,
            kernels::SumOrder order, Device& device, const GpuDecodeOptions& options = {}, int64_t rank = 0,
            int64_t ranks = 1);
  // Bytes of device memory that it takes.
  static int64_t bytes(const Config& config, int64_t max_rows, int64_t max_logit_rows, int64_t ranks = 1);

  // Makes these the ranks of one model, in order. Their GPUs have peer access (cuda/peer_access.h), and their
  // weights are the parts of the ranks. Each is constructed for as many ranks.
  static void join(std::span<GptOssGpu* const> ranks);

  // All layers, for a batch of at most max_rows. Stores the rows' keys and values in `kv`.
  void forward(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  // The same in regions, for piecewise CUDA graphs: before_attention(), then attention(l) and
  // after_attention(l) for each layer. Those around attention read the batch's tokens, positions and slot
  // mappings, but no block tables.
  void before_attention(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  void attention(size_t layer, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  void after_attention(size_t layer, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  // What after_attention() consists of. The first two end with a sum over ranks: where kernels are launched
  // one by one, all ranks' are launched before anything that follows. (CUDA may wait for the GPU before it
  // loads another kernel, and the GPU for a rank that has no work yet.)
  void project_out(size_t layer, const GpuBatch& batch, StreamRef stream);
  void mlp(size_t layer, const GpuBatch& batch, StreamRef stream);
  void project_qkv(size_t layer, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);

  // Computes the logits [R, V] of the given rows of the last batch (-1: padding), in rows `first` .. of a
  // buffer of max_logit_rows rows of rank 0. All of them are there for the kernels that follow on rank 0.
  void logits(const GpuBatch& batch, View<const int32_t, 1> rows, int64_t first, StreamRef stream);
  // The tokens of the same rows instead, at their places in `sampled`, without all logits: rows `first` .. of
  // the buffer are overwritten. The ids are those of logits() and sample_tokens(). Only where can_screen(R),
  // and for rules that can_be_screened().
  void screened_tokens(View<const int32_t, 1> rows, int64_t first, View<const kernels::SamplingRow, 1> rules,
                       View<int32_t, 1> sampled, StreamRef stream);
  bool can_screen(int64_t rows) const {
    return weights_.screening().rows > 0 && rows >= 1 && rows <= kernels::kMaxGemvRows && ranks() == 1 &&
           order_ == kernels::SumOrder::by_rows;
  }
  const float* logits_of(int64_t row) const { return logits_.data() + row * config_.vocab_size; }

 private:
  bool sliding(size_t layer) const { return config_.layers[layer] == Attention::sliding; }
  int64_t ranks() const { return peers_.layout.ranks; }
  // Sum number `index` of 2 in each layer; after them one place is the barrier's, and one is nobody's.
  kernels::CollectiveCall sum(const GpuBatch& batch, size_t layer, int index) const;
  void add_experts(size_t layer, const GpuBatch& batch, StreamRef stream);
  // The last norm of the given rows, [R, H].
  View<const bf16, 2> last_norm(View<const int32_t, 1> rows, StreamRef stream);
  // What the next norm adds to x: nothing where the sum over ranks has done so.
  View<const float, 3> expert_outputs(int64_t rows) const;

  const Config config_;
  const GpuWeights& weights_;
  const int64_t max_rows_, max_logit_rows_;
  const kernels::SumOrder order_;
  const GpuDecodeOptions options_;
  const int64_t query_width_;        // of all query heads, padded
  const int64_t intermediate_size_;  // of an expert, padded
  float concentration_ = 1;
  kernels::Peers peers_;
  DeviceBuffer<std::byte> receive_;  // from other ranks
  float* all_logits_ = nullptr;      // of rank 0
  DeviceBuffer<float> partial_;      // this rank's part of the output projection
  DeviceBuffer<float> x_, rope_table_, frequencies_, expert_weights_, expert_outputs_, logits_;
  DeviceBuffer<bf16> normed_, q_, attn_out_, sorted_, activations_, logit_rows_;
  DeviceBuffer<int32_t> expert_ids_, expert_offsets_, sorted_ids_;
  DeviceBuffer<uint32_t> grid_barrier_;
  DeviceBuffer<kernels::ScreenedArgmaxState> screened_state_;
};

}  // namespace fathom::model
