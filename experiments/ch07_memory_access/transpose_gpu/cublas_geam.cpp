// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   DRAM bandwidth. H200: n = 16384 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    the library: C = alpha op(A) + beta op(B) with alpha = 1, beta = 0
#include <dlfcn.h>

#include <memory>

#include "cuda/cublas.h"
#include "lab/problem.h"
#include "transpose.h"

namespace fathom::lab::transpose_gpu {

Call cublas_geam(const Transpose&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  // The library is open already: this only returns its handle.
  void* library = dlopen(cublas()->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto sgeam =
      reinterpret_cast<decltype(&cublasSgeam)>(library ? dlsym(library, "cublasSgeam") : nullptr);
  if (!sgeam) throw Unavailable("needs_library", cublas()->path + " has no cublasSgeam");
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  return [handle, sgeam](const Transpose& p, StreamRef stream) {
    const int n = static_cast<int>(p.in.extent(0));
    if (n == 0) return;  // cuBLAS rejects a leading dimension of 0
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    const float one = 1, zero = 0;
    // With beta = 0 the second matrix is not read; it must only be one that C may be.
    FATHOM_CUBLAS(sgeam(handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, n, n, &one, p.in.data(), n, &zero,
                        p.out.data(), n, p.out.data(), n));
  };
}

}  // namespace fathom::lab::transpose_gpu
