// The loops of machine/stream_kernels.h in AVX-512. Run only where the processor has it.
#include <immintrin.h>

#include "machine/stream_kernels.h"

// Behind the includes: their inline functions must run on every processor.
#pragma GCC target("avx512f")

namespace fathom::machine {
namespace {

struct Simd {
  using Vector = __m512i;
  static Vector load(const std::byte* at) { return _mm512_load_si512(reinterpret_cast<const Vector*>(at)); }
  static void store(std::byte* at, Vector v) { _mm512_store_si512(reinterpret_cast<Vector*>(at), v); }
  static void stream(std::byte* at, Vector v) { _mm512_stream_si512(reinterpret_cast<Vector*>(at), v); }
  static Vector zero() { return _mm512_setzero_si512(); }
  static Vector pattern() { return _mm512_set1_epi32(1); }  // any bytes, to write
  static Vector exclusive_or(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
};

}  // namespace
}  // namespace fathom::machine

#include "machine/stream_kernels_simd.inc"

namespace fathom::machine {

const StreamKernels kStreamAvx512         = {"AVX-512",
                                             {read<1>, write<1>, write_nontemporal<1>, copy<1>, copy_nontemporal<1>}};
const StreamKernels kStreamAvx512FourWays = {
    "AVX-512, 4 ranges", {read<4>, write<4>, write_nontemporal<4>, copy<4>, copy_nontemporal<4>}};

}  // namespace fathom::machine
