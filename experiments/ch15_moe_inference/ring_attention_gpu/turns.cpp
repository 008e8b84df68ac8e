#include "turns.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "core/expect.h"
#include "cuda/check.h"
#include "kernels/attention/attention_tiles.h"

namespace fathom::lab::ring_attention_gpu {
namespace {

std::vector<void*> memory_of(const RingAttention& p) {
  return {p.queries.data(), p.keys.data(), p.values.data(), p.out.data(), p.nonces.data()};
}
constexpr size_t kNonces = 4;  // among them

std::vector<kernels::AttentionTile> tiles_of(int64_t rows, int64_t keys, Turn::Keys which) {
  const std::array<int32_t, 2> q = {0, static_cast<int32_t>(rows)}, k = {0, static_cast<int32_t>(keys)};
  std::vector<kernels::AttentionTile> tiles = kernels::attention_tiles(q, k, kHeadDim);
  if (which == Turn::Keys::before)
    for (kernels::AttentionTile& tile : tiles) tile.position += static_cast<int32_t>(rows);
  return tiles;
}

}  // namespace

Turn::Turn(int64_t rows, int64_t keys, Keys which, Context& context) {
  const std::vector<kernels::AttentionTile> tiles = tiles_of(rows, keys, which);
  const std::array<int32_t, 2> offsets            = {0, static_cast<int32_t>(keys)};
  Device& device                                  = *context.rank->device();
  most_                                           = kernels::most_key_blocks(offsets, kHeadDim);
  const auto n                                    = static_cast<int64_t>(tiles.size());
  tiles_                                          = {device, n};
  blocks_                                         = {device, n * most_};
  counts_                                         = {device, n};
  if (n == 0) return;
  device.to_device(tiles_.data(), tiles.data(), tiles_.bytes());
  kernels::build_block_mask(list(), kHeadDim, kernels::Causal{}, kernels::KeptBlocks::visible,
                            context.stream);
}

kernels::BlockMask Turn::list() const {
  return {.tiles  = View<const kernels::AttentionTile, 1>(tiles_.view()),
          .blocks = blocks_.as({tiles_.size(), most_}),
          .counts = counts_.view()};
}

void Turn::run(ConstRows q, ConstRows k, ConstRows v, Rows out, View<float, 2> lse, StreamRef stream) const {
  kernels::flash_attention<kHeadDim>(
      {.q = q, .k = k, .v = v, .sinks = {}, .scale = kScale, .out = out, .lse = lse}, list(),
      kernels::Causal{}, kernels::PlainScore{}, stream);
}

Exchange::Exchange(const RingAttention& p, const Rank& me)
    : own_(me.rank()), peers_(me, memory_of(p), kSignals + 1), side_(SideStream::Priority::first) {
  for (const void* memory : memory_of(p)) memory_.push_back(memory);
}

// Nobody writes into a rank's memory while it is at the step before.
void Exchange::begin(StreamRef main) {
  ++step_;
  begins_.record(main);
  begins_.wait_on(stream());
  signal(kSignals, stream());
  wait(kSignals, stream());
}

void Exchange::push(ConstRows rows, Rows to_like, int64_t first, StreamRef stream) const {
  const auto found = std::find(memory_.begin(), memory_.end(), static_cast<const void*>(to_like.data()));
  FATHOM_EXPECT(found != memory_.end(), "a rank pushes into the memory that it was told of");
  if (rows.size() == 0) return;
  bf16* const to =
      peers_.address<bf16>(other(), static_cast<size_t>(found - memory_.begin())) + first * kHeads * kHeadDim;
  FATHOM_CUDA(cudaMemcpyPeerAsync(to, other(), rows.data(), own_, static_cast<size_t>(rows.bytes()), stream));
}

void Exchange::push_nonce(const RingAttention& p, StreamRef stream) const {
  FATHOM_CUDA(cudaMemcpyPeerAsync(peers_.address<uint64_t>(other(), kNonces) + 2 * own_, other(),
                                  &p.nonces(own_, 0), own_, static_cast<size_t>(p.nonce_bytes()), stream));
}

void Exchange::end(StreamRef main) const {
  ends_.record(stream());
  ends_.wait_on(main);
}

void copy(ConstRows from, Rows to, StreamRef stream) {
  if (from.size() == 0) return;
  FATHOM_CUDA(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(from.bytes()),
                              cudaMemcpyDeviceToDevice, stream));
}

}  // namespace fathom::lab::ring_attention_gpu
