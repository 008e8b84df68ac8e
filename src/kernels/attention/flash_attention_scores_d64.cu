// Attention with heads of 64 dimensions and changed scores: kernels/attention/flash_attention.h.
#include "kernels/attention/flash_attention.cuh"

namespace fathom::kernels {

template void flash_attention<64>(const RaggedAttention&, const BlockMask&, const CausalDocument&,
                                  const RelativeBias&, StreamRef);
template void flash_attention<64>(const RaggedAttention&, const BlockMask&, const EveryKey&, const Alibi&,
                                  StreamRef);
template void flash_attention<64>(const RaggedAttention&, const BlockMask&, const SlidingWindow&,
                                  const SoftCap&, StreamRef);

}  // namespace fathom::kernels
