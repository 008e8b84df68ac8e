// Layers of which each rank keeps a shard (FSDP: Zhao et al., 2023, arXiv 2304.11277; ZeRO stage 3). With an
// overlapped AsyncGroup the next layer's weights are gathered while this layer computes, and the gradients of
// the layer before are summed and scattered meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/async_group.h"
#include "wire.h"

namespace fathom::lab::distributed_training {

class LayerGather {
 public:
  // shards: this rank's, of each layer. order: the layers as a step comes to them; a layer that is needed
  // twice in a row is gathered once.
  LayerGather(comm::AsyncGroup& async, std::vector<std::span<const float>> shards,
              const std::vector<int64_t>& order, Wire wire);

  // Of a step, once the shards hold its weights. Gathers the first layer ahead.
  void begin();
  // The whole weights of the layer, next in order or the same again. Gathers the one after ahead; what an
  // earlier call returned for another layer is overwritten from here on.
  const float* weights(int64_t layer);

  int64_t gathers() const { return static_cast<int64_t>(order_.size()); }  // of a step
  int64_t bytes() const;                                                   // of whole layers and of codes

 private:
  size_t whole_floats(size_t at) const;
  void gather_up_to(size_t end);

  comm::AsyncGroup& async_;
  std::vector<std::span<const float>> shards_;
  std::vector<int64_t> order_;
  Wire wire_;
  Codes codes_;
  size_t ahead_;                             // gathers beyond the layer in use: 0 or 1
  std::vector<std::vector<float>> buffers_;  // ahead_ + 1
  std::vector<comm::AsyncGroup::Work> work_;
  size_t started_ = 0, used_ = 0;  // gathers of this step: order_[used_ - 1] is in use
};

class GradientScatter {
 public:
  // shards: where the sums go, of each layer. keep_whole: gradients of all layers are kept until they are
  // ready, so that several backward passes can add to them; else only those of the layers in work are.
  GradientScatter(comm::AsyncGroup& async, std::vector<std::span<float>> shards, Wire wire, bool keep_whole);

  // Memory for the whole gradient of the layer; what is in it is this layer's only with keep_whole.
  float* whole(int64_t layer);
  // What whole() gave last for the layer is complete: its sums go to the shards.
  void ready(int64_t layer);
  // Returns when all shards have their sums.
  void finish();

  int64_t bytes() const;  // of whole gradients and of codes

 private:
  comm::AsyncGroup& async_;
  std::vector<std::span<float>> shards_;
  Wire wire_;
  Codes codes_;
  bool keep_whole_;
  std::vector<std::vector<float>> buffers_;   // of each layer, or in turn
  std::vector<comm::AsyncGroup::Work> work_;  // that reads the buffer
  size_t turn_ = 0;
};

}  // namespace fathom::lab::distributed_training
