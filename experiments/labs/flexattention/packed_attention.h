// The fused attention over a problem's documents: calls of kernels/attention/flash_attention.h.
#pragma once

#include <functional>
#include <memory>

#include "cuda/device_buffer.h"
#include "experiments/labs/flexattention/packed_documents.h"
#include "kernels/attention/flash_attention.h"

namespace fathom::lab::flexattention {

inline View<const kernels::AttentionTile, 1> as_tiles(View<const int32_t, 2> words) {
  return {reinterpret_cast<const kernels::AttentionTile*>(words.data()), {words.extent(0)}};
}

// Lists the blocks of these tiles now, into memory of their own, which serves every call: the tiles, and what
// the mask shows of them, do not depend on a seed.
template <class Mask>
std::function<kernels::BlockMask(View<const int32_t, 2>)> listed(View<const int32_t, 2> tiles, int64_t keys,
                                                                 int head_size, const Mask& mask,
                                                                 kernels::KeptBlocks kept, StreamRef stream) {
  const int64_t n = tiles.extent(0), block = kernels::attention_block_keys(head_size);
  const int64_t most = (keys + block - 1) / block;
  const auto blocks  = std::make_shared<const DeviceBuffer<uint32_t>>(*find_device({0}), n * most);
  const auto counts  = std::make_shared<const DeviceBuffer<int32_t>>(*find_device({0}), n);
  const auto of      = [blocks, counts, n, most](View<const int32_t, 2> these) {
    return kernels::BlockMask{
             .tiles = as_tiles(these), .blocks = blocks->as({n, most}), .counts = counts->view()};
  };
  kernels::build_block_mask(of(tiles), head_size, mask, kept, stream);
  return of;
}

inline kernels::RaggedAttention attention_of(const PackedDocuments& p) {
  return {.q = p.q, .k = p.k, .v = p.v, .sinks = {}, .scale = p.scale(), .out = p.out, .lse = p.lse};
}

template <class Mask, class Score>
void attend(const kernels::RaggedAttention& a, const kernels::BlockMask& blocks, const Mask& mask,
            const Score& score, StreamRef stream) {
  if (a.q.extent(2) == 64)
    kernels::flash_attention<64>(a, blocks, mask, score, stream);
  else
    kernels::flash_attention<128>(a, blocks, mask, score, stream);
}

inline kernels::CausalDocument mask_of(const PackedDocuments& p) { return {p.begin.data()}; }

// The tokens as one sequence, with the mask of documents, and the bias where there is one.
inline void attend_documents(const PackedDocuments& p, const kernels::BlockMask& blocks, StreamRef stream) {
  if (p.reach < 0)
    attend(attention_of(p), blocks, mask_of(p), kernels::PlainScore{}, stream);
  else
    attend(attention_of(p), blocks, mask_of(p),
           kernels::RelativeBias{p.bias.data(), static_cast<int>(p.reach)}, stream);
}

}  // namespace fathom::lab::flexattention
