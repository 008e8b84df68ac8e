// Decode attention over a cache in 4 bits, or with values in 4 bits: kernels/attention/decode_attention.h.
#include "kernels/attention/decode_attention.cuh"

namespace fathom::kernels {

void decode_attention(View<const bf16, 3> q, const K8V4KvPages& kv, View<const float, 1> sinks, float scale,
                      int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out,
                      StreamRef stream) {
  decode::launch_decode_attention<K8V4KvFragments<decode::kKeys>>(q, kv, sinks, scale, window, rows, longest,
                                                                  out, stream);
}
void decode_attention(View<const bf16, 3> q, const Nvfp4KvPages& kv, View<const float, 1> sinks, float scale,
                      int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out,
                      StreamRef stream) {
  decode::launch_decode_attention<Nvfp4KvFragments<decode::kKeys>>(q, kv, sinks, scale, window, rows, longest,
                                                                   out, stream);
}

}  // namespace fathom::kernels
