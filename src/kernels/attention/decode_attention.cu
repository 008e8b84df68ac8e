// Decode attention over a cache in bf16 or FP8, and the choice by format:
// kernels/attention/decode_attention.h.
#include "kernels/attention/decode_attention.cuh"

#include <variant>

namespace fathom::kernels {
namespace decode {

// In decode_attention_fp4.cu, which compiles beside this file.
extern template void launch_decode_attention<K8V4KvFragments<kKeys>>(View<const bf16, 3>, const K8V4KvPages&,
                                                                     View<const float, 1>, float, int64_t,
                                                                     const PagedRows&, int64_t, View<bf16, 3>,
                                                                     StreamRef, Dependents);
extern template void launch_decode_attention<Nvfp4KvFragments<kKeys>>(View<const bf16, 3>,
                                                                      const Nvfp4KvPages&,
                                                                      View<const float, 1>, float, int64_t,
                                                                      const PagedRows&, int64_t,
                                                                      View<bf16, 3>, StreamRef, Dependents);

namespace {

template <class Kv>
struct FragmentsOf;
template <>
struct FragmentsOf<Bf16KvPages> {
  using Type = Bf16KvFragments<kKeys>;
};
template <>
struct FragmentsOf<Fp8KvPages> {
  using Type = Fp8KvFragments<kKeys>;
};
template <>
struct FragmentsOf<K8V4KvPages> {
  using Type = K8V4KvFragments<kKeys>;
};
template <>
struct FragmentsOf<Nvfp4KvPages> {
  using Type = Nvfp4KvFragments<kKeys>;
};

}  // namespace
}  // namespace decode

void decode_attention(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                      int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out,
                      StreamRef stream, Dependents dependents) {
  std::visit(
      [&]<class Kv>(const Kv& pages) {
        decode::launch_decode_attention<typename decode::FragmentsOf<Kv>::Type>(
            q, pages, sinks, scale, window, rows, longest, out, stream, dependents);
      },
      kv);
}

}  // namespace fathom::kernels
