// Decode attention over a cache in 4 bits, or with values in 4 bits: kernels/attention/decode_attention.h.
#include "kernels/attention/decode_attention.cuh"

namespace fathom::kernels::decode {

template void launch_decode_attention<K8V4KvFragments<kKeys>>(View<const bf16, 3>, const K8V4KvPages&,
                                                              View<const float, 1>, float, int64_t,
                                                              const PagedRows&, int64_t, View<bf16, 3>,
                                                              StreamRef, Dependents);
template void launch_decode_attention<Nvfp4KvFragments<kKeys>>(View<const bf16, 3>, const Nvfp4KvPages&,
                                                               View<const float, 1>, float, int64_t,
                                                               const PagedRows&, int64_t, View<bf16, 3>,
                                                               StreamRef, Dependents);

}  // namespace fathom::kernels::decode
