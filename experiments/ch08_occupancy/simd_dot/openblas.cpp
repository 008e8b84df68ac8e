// out = sum of a(i) b(i)                       n elements, fp32
//
// bytes   8 n
// flops   2 n
// limit   bandwidth of the level that holds the arrays
// idea    the library: OpenBLAS on one thread
#include <dlfcn.h>
#include <stdlib.h>

#include "dot.h"

namespace fathom::lab::simd_dot {
namespace {

// The part of OpenBLAS's C interface (cblas.h) that we use.
using Sdot = float (*)(int n, const float* x, int x_step, const float* y, int y_step);

}  // namespace

Launch<Dot> prepare_openblas(const Dot&, Context&) {
  // OpenBLAS starts its threads when it loads, and they spin for a while beside the next timed call.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  FATHOM_EXPECT(library, "libopenblas.so.0 does not load: install libopenblas0");
  const auto sdot = reinterpret_cast<Sdot>(dlsym(library, "cblas_sdot"));
  FATHOM_EXPECT(sdot, "libopenblas.so.0 has no cblas_sdot");
  return [sdot](const Dot& p, Context&) {
    p.out(0) = sdot(static_cast<int>(p.a.extent(0)), p.a.data(), 1, p.b.data(), 1);
  };
}

}  // namespace fathom::lab::simd_dot
