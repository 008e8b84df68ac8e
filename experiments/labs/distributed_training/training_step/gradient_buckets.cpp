#include "gradient_buckets.h"

#include <algorithm>

#include "core/expect.h"

namespace fathom::lab::distributed_training {

GradientBuckets::GradientBuckets(comm::AsyncGroup& async, std::span<float> gradients,
                                 const std::vector<int64_t>& layer_floats, int64_t bucket_bytes)
    : async_(async),
      gradients_(gradients),
      first_{0},
      bucket_floats_(static_cast<size_t>(std::max<int64_t>(1, bucket_bytes / int64_t{sizeof(float)}))),
      next_(static_cast<int64_t>(layer_floats.size()) - 1),
      bucket_end_(gradients.size()) {
  for (const int64_t floats : layer_floats) first_.push_back(first_.back() + static_cast<size_t>(floats));
  FATHOM_EXPECT(first_.back() == gradients.size(), "the layers' gradients are all gradients");
}

void GradientBuckets::ready(int64_t layer) {
  FATHOM_EXPECT(layer == next_ && layer >= 0,
                "a backward pass comes to the layers from the last to the first");
  --next_;
  const size_t begin = first_[static_cast<size_t>(layer)];
  if (layer > 0 && bucket_end_ - begin < bucket_floats_) return;
  const std::span<float> bucket = gradients_.subspan(begin, bucket_end_ - begin);
  last_                         = async_.start([bucket](comm::Group& group) { group.all_reduce(bucket); });
  bucket_end_                   = begin;
  ++buckets_;
}

void GradientBuckets::finish() {
  FATHOM_EXPECT(next_ < 0, "finish() comes after the first layer's gradient");
  async_.wait(last_);
  next_       = static_cast<int64_t>(first_.size()) - 2;
  bucket_end_ = gradients_.size();
}

}  // namespace fathom::lab::distributed_training
