// The loops of machine/stream_kernels.h in AVX2. Run only where the processor has it.
#include <immintrin.h>

#include "machine/stream_kernels.h"

// Behind the includes: their inline functions must run on every processor.
#pragma GCC target("avx2")

namespace fathom::machine {
namespace {

struct Simd {
  using Vector = __m256i;
  static Vector load(const std::byte* at) { return _mm256_load_si256(reinterpret_cast<const Vector*>(at)); }
  static void store(std::byte* at, Vector v) { _mm256_store_si256(reinterpret_cast<Vector*>(at), v); }
  static void stream(std::byte* at, Vector v) { _mm256_stream_si256(reinterpret_cast<Vector*>(at), v); }
  static Vector zero() { return _mm256_setzero_si256(); }
  static Vector pattern() { return _mm256_set1_epi8(1); }  // any bytes, to write
  static Vector exclusive_or(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
};

}  // namespace
}  // namespace fathom::machine

#include "machine/stream_kernels_simd.inc"

namespace fathom::machine {

const StreamKernels kStreamAvx2         = {"AVX2",
                                           {read<1>, write<1>, write_nontemporal<1>, copy<1>, copy_nontemporal<1>}};
const StreamKernels kStreamAvx2FourWays = {
    "AVX2, 4 ranges", {read<4>, write<4>, write_nontemporal<4>, copy<4>, copy_nontemporal<4>}};

}  // namespace fathom::machine
