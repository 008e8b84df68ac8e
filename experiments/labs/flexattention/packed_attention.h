// The fused attention over a problem's documents: calls of kernels/attention/flash_attention.h.
#pragma once

#include <memory>

#include "cuda/device_buffer.h"
#include "experiments/labs/flexattention/packed_documents.h"
#include "kernels/attention/flash_attention.h"

namespace fathom::lab::flexattention {

// The problem's tiles, with lists in this memory.
inline kernels::BlockMask block_mask(const PackedDocuments& p, View<uint32_t, 2> blocks,
                                     View<int32_t, 1> counts) {
  const auto* tiles = reinterpret_cast<const kernels::AttentionTile*>(p.tiles.data());
  return {.tiles = {tiles, {p.tiles.extent(0)}}, .blocks = blocks, .counts = counts};
}

inline void build(const PackedDocuments& p, const kernels::BlockMask& to, kernels::KeptBlocks kept,
                  StreamRef stream) {
  kernels::build_block_mask(to, p.head_size(), kernels::CausalDocument{p.begin.data()}, kept, stream);
}

inline void attend(const PackedDocuments& p, const kernels::BlockMask& blocks, StreamRef stream) {
  const kernels::RaggedAttention a{
      .q = p.q, .k = p.k, .v = p.v, .sinks = {}, .scale = p.scale(), .out = p.out, .lse = p.lse};
  const kernels::CausalDocument mask{p.begin.data()};
  const auto attend_with = [&](const auto& score) {
    if (p.head_size() == 64)
      kernels::flash_attention<64>(a, blocks, mask, score, stream);
    else
      kernels::flash_attention<128>(a, blocks, mask, score, stream);
  };
  if (p.reach < 0)
    attend_with(kernels::PlainScore{});
  else
    attend_with(kernels::RelativeBias{p.bias.data(), static_cast<int>(p.reach)});
}

// Attention with lists that are built now, into memory of their own, and serve every call.
inline Call attend_with_lists(const PackedDocuments& p, kernels::KeptBlocks kept, StreamRef stream) {
  Device& device      = *find_device({0});
  const int64_t tiles = p.blocks.extent(0), most = p.blocks.extent(1);
  const auto blocks = std::make_shared<const DeviceBuffer<uint32_t>>(device, tiles * most);
  const auto counts = std::make_shared<const DeviceBuffer<int32_t>>(device, tiles);
  build(p, block_mask(p, blocks->as({tiles, most}), counts->view()), kept, stream);
  return [blocks, counts, tiles, most](const PackedDocuments& q, StreamRef into) {
    attend(q, block_mask(q, blocks->as({tiles, most}), counts->view()), into);
  };
}

}  // namespace fathom::lab::flexattention
