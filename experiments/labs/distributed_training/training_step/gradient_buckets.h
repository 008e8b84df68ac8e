// Sums of gradients over ranks, bucket by bucket, while the backward pass goes on to earlier layers
// (PyTorch's DDP: Li et al., 2020, arXiv 2006.15704).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/async_group.h"

namespace fathom::lab::distributed_training {

class GradientBuckets {
 public:
  // gradients: those of all layers, one after another; layer l has layer_floats[l] of them. A bucket takes
  // whole layers until it has `bucket_bytes`; it is sent then, or when the first layer is ready.
  GradientBuckets(comm::AsyncGroup& async, std::span<float> gradients,
                  const std::vector<int64_t>& layer_floats, int64_t bucket_bytes);

  // The layer's gradient is complete. A backward pass comes to the last layer first.
  void ready(int64_t layer);
  // After layer 0: returns when all gradients are sums over ranks.
  void finish();

  int64_t buckets_sent() const { return buckets_; }  // by all passes

 private:
  comm::AsyncGroup& async_;
  std::span<float> gradients_;
  std::vector<size_t> first_;  // of each layer, and the end of the last
  size_t bucket_floats_;
  int64_t next_;       // the layer that is expected
  size_t bucket_end_;  // of the bucket that is being filled
  int64_t buckets_ = 0;
  comm::AsyncGroup::Work last_;
};

}  // namespace fathom::lab::distributed_training
