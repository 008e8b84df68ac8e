// Attention with changed scores: kernels/attention/flash_attention.h.
#include "kernels/attention/flash_attention.cuh"

namespace fathom::kernels {

template void flash_attention<64>(const RaggedAttention&, const BlockMask&, const CausalDocument&,
                                  const RelativeBias&, StreamRef);
template void flash_attention<64>(const RaggedAttention&, const BlockMask&, const EveryKey&, const Alibi&,
                                  StreamRef);
template void flash_attention<64>(const RaggedAttention&, const BlockMask&, const SlidingWindow&,
                                  const SoftCap&, StreamRef);

template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const CausalDocument&,
                                   const RelativeBias&, StreamRef);
template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const EveryKey&, const Alibi&,
                                   StreamRef);
template void flash_attention<128>(const RaggedAttention&, const BlockMask&, const SlidingWindow&,
                                   const SoftCap&, StreamRef);

}  // namespace fathom::kernels
