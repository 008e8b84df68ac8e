// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   memory bandwidth
// idea    the library: OpenBLAS's extension somatcopy, B = alpha op(A), one thread
#include <dlfcn.h>
#include <stdlib.h>

#include "transpose.h"

namespace fathom::lab::transpose_cpu {
namespace {

// The part of OpenBLAS's C interface (cblas.h) that we use.
constexpr int kRowMajor = 101, kTranspose = 112;
using Somatcopy = void (*)(int order, int trans, int rows, int columns, float alpha, const float* a, int lda,
                           float* b, int ldb);

}  // namespace

Launch<Transpose> prepare_openblas(const Transpose&, Context&) {
  // OpenBLAS starts its threads when it loads, and they spin for a while beside the next timed call.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  FATHOM_EXPECT(library, "libopenblas.so.0 does not load: install libopenblas0");
  const auto somatcopy = reinterpret_cast<Somatcopy>(dlsym(library, "cblas_somatcopy"));
  FATHOM_EXPECT(somatcopy, "libopenblas.so.0 has no cblas_somatcopy: it is OpenBLAS's own extension");
  return [somatcopy](const Transpose& p, Context&) {
    const int n = static_cast<int>(p.in.extent(0));
    if (n == 0) return;  // OpenBLAS rejects a leading dimension of 0
    somatcopy(kRowMajor, kTranspose, n, n, 1.0f, p.in.data(), n, p.out.data(), n);
  };
}

}  // namespace fathom::lab::transpose_cpu
