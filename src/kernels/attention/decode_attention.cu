// Decode attention over a cache in bf16 or FP8: kernels/attention/decode_attention.h.
#include "kernels/attention/decode_attention.cuh"

namespace fathom::kernels {

void decode_attention(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                      int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out,
                      StreamRef stream) {
  if (const auto* fp8 = std::get_if<Fp8KvPages>(&kv))
    decode::launch_decode_attention<Fp8KvFragments<decode::kKeys>>(q, *fp8, sinks, scale, window, rows,
                                                                   longest, out, stream);
  else
    decode::launch_decode_attention<Bf16KvFragments<decode::kKeys>>(
        q, std::get<Bf16KvPages>(kv), sinks, scale, window, rows, longest, out, stream);
}

}  // namespace fathom::kernels
