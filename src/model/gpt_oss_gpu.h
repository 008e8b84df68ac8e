// gpt-oss's forward pass on a GPU (specs/gpt-oss.md section 2): the residual stream in fp32, what matrices
// are multiplied with in bf16. Everything is enqueued on one stream, nothing waits, and nothing depends on
// values, so that a pass can be captured into a graph.
#pragma once

#include <cstdint>

#include "core/device_buffer.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/packed_linear.h"
#include "kernels/paged_attention_many.h"
#include "model/config.h"
#include "model/gpu_kv_cache.h"
#include "model/gpu_weights.h"

namespace fathom::model {

// One step, all of it on the device. Rows that stand for themselves come first (decoding), then those of
// prompts, which `tiles` divides among blocks. Position, slot and tile of padding: -1, -1, no rows.
struct GpuBatch {
  View<const int32_t, 1> tokens;     // [T]
  View<const int32_t, 1> source;     // [T]; >= 0: the token is sampled(source), which the host may not know
  View<const int32_t, 1> sampled;    // of earlier steps
  View<const int32_t, 1> positions;  // [T]
  View<const int32_t, 1> sequence;   // [T]
  int64_t single_rows = 0;
  View<const kernels::PromptTile, 1> tiles;
  int64_t longest = 0;  // at least position + 1 of every row
  // Of the layers that see all, and of the sliding ones: where a row's key and value go (page * 64 + place),
  // and every sequence's pages, [S, P].
  struct Group {
    View<const int32_t, 1> slots;
    View<const int32_t, 2> pages;
  };
  Group full, window;
};

class GptOssGpu {
 public:
  // `weights` and `device` must outlive it. With SumOrder::one, and batches all of tiles, a row's numbers
  // depend on its sequence alone: not on the other rows, nor on which batches its sequence came in. Throws
  // NotEnoughMemory.
  GptOssGpu(const Config& config, const GpuWeights& weights, int64_t max_rows, int64_t max_logit_rows,
            kernels::SumOrder order, Device& device);
  // Of device memory that it takes.
  static int64_t bytes(const Config& config, int64_t max_rows, int64_t max_logit_rows);

  // All layers for a batch of at most max_rows; keys and values of the rows are then in `kv`.
  void forward(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  // The same in regions: enter(), then attend(l) and leave(l) for each layer. Of a batch, enter() and leave()
  // depend on tokens, sources, positions and slots alone.
  void enter(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  void attend(size_t layer, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  void leave(size_t layer, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);

  // Logits [R, V] of rows of the last batch (-1: padding), in memory that has room for max_logit_rows, from
  // its row `first` on.
  View<float, 2> logits(View<const int32_t, 1> rows, int64_t first, StreamRef stream);
  const float* logits_of(int64_t row) const { return logits_.data() + row * config_.vocab_size; }

 private:
  void heads(size_t layer, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream);
  void mlp(size_t layer, const GpuBatch& batch, StreamRef stream);
  bool sliding(size_t layer) const { return config_.layers[layer] == Attention::sliding; }

  const Config config_;
  const GpuWeights& weights_;
  const int64_t max_rows_, max_logit_rows_;
  const kernels::SumOrder order_;
  const int64_t query_width_;  // of all query heads, padded
  const int64_t units_;        // of an expert, padded
  float concentration_ = 1;
  DeviceBuffer<float> x_, turns_, frequencies_, expert_weights_, slots_, logits_;
  DeviceBuffer<bf16> normed_, q_, attended_, sorted_, gated_, chosen_;
  DeviceBuffer<int32_t> expert_ids_, first_, slot_;
};

}  // namespace fathom::model
