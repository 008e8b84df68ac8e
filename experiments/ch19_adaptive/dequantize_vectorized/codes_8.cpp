#include "dequantize.h"
#include "kernels/quant/quantize.h"

namespace fathom::lab::dequantize_vectorized {

// The op's views are writable; it only reads codes and scales.
void codes_8(const Dequantize& p, StreamRef stream) {
  const int64_t n = p.out.size();
  const View<bf16, 2> out(p.out.data(), {1, n});
  auto* const scales = reinterpret_cast<e8m0*>(const_cast<uint8_t*>(p.scales.data()));
  if (p.fp4)
    kernels::dequantize(
        kernels::views<kernels::Mxfp4>(1, n, const_cast<uint8_t*>(p.pairs.data()), scales, nullptr), out,
        stream);
  else
    kernels::dequantize(
        kernels::views<kernels::Mxfp8>(1, n, const_cast<fp8_e4m3*>(p.eights.data()), scales, nullptr), out,
        stream);
}

}  // namespace fathom::lab::dequantize_vectorized
