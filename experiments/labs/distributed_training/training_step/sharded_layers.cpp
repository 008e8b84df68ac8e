#include "sharded_layers.h"

#include <algorithm>
#include <utility>

#include "core/expect.h"

namespace fathom::lab::distributed_training {
namespace {

int64_t bytes_of(const std::vector<std::vector<float>>& buffers, const Codes& codes) {
  int64_t bytes = codes.bytes();
  for (const auto& buffer : buffers) bytes += static_cast<int64_t>(buffer.size() * sizeof(float));
  return bytes;
}

template <class T>
size_t longest(const std::vector<std::span<T>>& shards) {
  size_t most = 0;
  for (const auto& shard : shards) most = std::max(most, shard.size());
  return most;
}

}  // namespace

LayerGather::LayerGather(comm::AsyncGroup& async, std::vector<std::span<const float>> shards,
                         const std::vector<int64_t>& order, Wire wire)
    : async_(async),
      shards_(std::move(shards)),
      wire_(wire),
      ahead_(async.overlapped() ? 1 : 0),
      buffers_(ahead_ + 1),
      work_(ahead_ + 1) {
  std::unique_copy(order.begin(), order.end(), std::back_inserter(order_));
  for (auto& buffer : buffers_) buffer.resize(longest(shards_) * static_cast<size_t>(async.group().size()));
}

size_t LayerGather::whole_floats(size_t at) const {
  return shards_[static_cast<size_t>(order_[at])].size() * static_cast<size_t>(async_.group().size());
}

// Gather i fills buffer i modulo their number, whose layer, i - 1 - ahead_, nobody uses any more.
void LayerGather::gather_up_to(size_t end) {
  for (end = std::min(end, order_.size()); started_ < end; ++started_) {
    const std::span<const float> shard = shards_[static_cast<size_t>(order_[started_])];
    const size_t slot                  = started_ % buffers_.size();
    const std::span<float> whole(buffers_[slot].data(), whole_floats(started_));
    work_[slot] = async_.start(
        [this, shard, whole](comm::Group& group) { all_gather(group, wire_, shard, whole, codes_); });
  }
}

void LayerGather::begin() {
  started_ = used_ = 0;
  gather_up_to(ahead_);
}

const float* LayerGather::weights(int64_t layer) {
  if (used_ == 0 || order_[used_ - 1] != layer) {
    FATHOM_EXPECT(used_ < order_.size() && order_[used_] == layer, "another layer is next in order");
    gather_up_to(++used_ + ahead_);
    async_.wait(work_[(used_ - 1) % work_.size()]);
  }
  return buffers_[(used_ - 1) % buffers_.size()].data();
}

int64_t LayerGather::bytes() const { return bytes_of(buffers_, codes_); }

GradientScatter::GradientScatter(comm::AsyncGroup& async, std::vector<std::span<float>> shards, Wire wire,
                                 bool keep_whole)
    : async_(async),
      shards_(std::move(shards)),
      wire_(wire),
      keep_whole_(keep_whole),
      buffers_(keep_whole           ? shards_.size()
               : async.overlapped() ? 2
                                    : 1),
      work_(buffers_.size()) {
  const auto ranks = static_cast<size_t>(async.group().size());
  for (size_t b = 0; b < buffers_.size(); ++b)
    buffers_[b].resize(ranks * (keep_whole ? shards_[b].size() : longest(shards_)));
}

float* GradientScatter::whole(int64_t layer) {
  turn_ = keep_whole_ ? static_cast<size_t>(layer) : (turn_ + 1) % buffers_.size();
  async_.wait(work_[turn_]);
  return buffers_[turn_].data();
}

void GradientScatter::ready(int64_t layer) {
  const std::span<float> shard = shards_[static_cast<size_t>(layer)];
  const std::span<const float> whole(buffers_[turn_].data(),
                                     shard.size() * static_cast<size_t>(async_.group().size()));
  work_[turn_] = async_.start(
      [this, whole, shard](comm::Group& group) { reduce_scatter(group, wire_, whole, shard, codes_); });
}

void GradientScatter::finish() {
  for (const comm::AsyncGroup::Work work : work_) async_.wait(work);
}

int64_t GradientScatter::bytes() const { return bytes_of(buffers_, codes_); }

}  // namespace fathom::lab::distributed_training
