// A checkpoint's weights in device memory, in the packed layout of the GPU's kernels
// (kernels/gemm/packed_weights.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "core/view.h"
#include "cuda/device_buffer.h"
#include "kernels/gemm/packed_weights.h"
#include "kernels/sampling/screened_argmax.h"
#include "model/config.h"
#include "model/shard.h"
#include "model/weights.h"

namespace fathom::model {

// All on the device.
struct GpuLayerWeights {
  View<const float, 1> attn_norm;  // [H]
  kernels::PackedMatrix qkv;       // queries, keys, values, in RowOrder::rotary_pairs
  View<const float, 1> sinks;      // [heads]
  kernels::PackedMatrix out;       // its columns are those of padded heads
  View<const float, 1> mlp_norm;   // [H]
  View<const bf16, 2> router;      // [E, H]
  View<const float, 1> router_bias;
  kernels::PackedExperts mlp1;  // in RowOrder::gate_pairs
  kernels::PackedExperts mlp2;
};

class GpuWeights {
 public:
  // Whether the GPU's kernels can run this model; the error names what they can't do.
  static Status check(const Config& config, const Weights& weights);
  // Bytes of device memory that they take. `config` is that of a rank's part (model/shard.h).
  // `screening`: with an int8 copy of the unembedding (kernels/sampling/screened_argmax.h).
  static int64_t bytes(const Config& config, const ShardOptions& shards = {}, bool screening = false);

  // Copies and packs; returns when that is done. `progress` is called with the bytes done so far and in all.
  // The checkpoint must pass check(). Throws NotEnoughMemory.
  GpuWeights(const Config& config, const Weights& weights, Device& device, ThreadPool& threads,
             const std::function<void(int64_t done, int64_t total)>& progress, bool screening = false);

  View<const bf16, 2> embedding() const { return embedding_.as({vocab_size_, hidden_}); }
  const kernels::PackedMatrix& unembedding() const { return unembedding_; }
  const kernels::ScreeningWeights& screening() const { return screening_; }  // without rows: there is none
  View<const float, 1> norm() const { return norm_; }
  const std::vector<GpuLayerWeights>& layers() const { return layers_; }
  int64_t first_expert() const { return first_expert_; }  // Weights::first_expert

 private:
  class Upload;

  View<const float, 1> floats(Upload& upload, const NormWeights& weights);
  kernels::PackedMatrix attention_in(Upload& upload, const Config& config, const LayerWeights& w);
  kernels::PackedMatrix attention_out(Upload& upload, const Config& config, const LayerWeights& w);
  kernels::PackedExperts experts(Upload& upload, const ExpertMatrices& matrices,
                                 const View<const bf16, 2>& bias, kernels::RowOrder order);
  template <class T>
  T* keep(int64_t size);

  Device& device_;
  int64_t vocab_size_, hidden_, first_expert_;
  std::vector<DeviceBuffer<std::byte>> memory_;
  DeviceBuffer<bf16> embedding_;
  kernels::PackedMatrix unembedding_;
  kernels::ScreeningWeights screening_;
  View<const float, 1> norm_;
  std::vector<GpuLayerWeights> layers_;
};

}  // namespace fathom::model
