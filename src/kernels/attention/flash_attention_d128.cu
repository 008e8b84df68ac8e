// Attention with heads of 128 dimensions and plain scores, under every mask:
// kernels/attention/flash_attention.h.
#include "kernels/attention/flash_attention.cuh"

namespace fathom::kernels {

template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const Causal&, const PlainScore&,
                                   StreamRef);
template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const SlidingWindow&,
                                   const PlainScore&, StreamRef);
template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const PrefixLm&,
                                   const PlainScore&, StreamRef);
template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const CausalDocument&,
                                   const PlainScore&, StreamRef);
template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const BlockSparse&,
                                   const PlainScore&, StreamRef);

}  // namespace fathom::kernels
