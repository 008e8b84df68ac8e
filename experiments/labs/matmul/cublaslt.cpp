// out = a b^T                 m x n, k deep; bf16, fp32, tf32 or e4m3
//
// flops   2 m n k
// limit   tensor cores, and for fp32 the FMA of the CUDA cores
// idea    the library
#include "experiments/labs/matmul/cublaslt.h"

#include <memory>
#include <string>
#include <type_traits>

#include "core/expect.h"
#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"

namespace fathom::lab::matmul {
namespace {

LtMatmul::BlockScales scales_of(const GemmFp8& p) { return {p.a_scales.data(), p.b_scales.data()}; }

template <class P>
LtMatmul plan_of(const P& p, bool block_scales) {
  constexpr DType kIn  = dtype_of<typename decltype(p.a)::value_type>;
  constexpr DType kOut = dtype_of<typename decltype(p.out)::value_type>;
  if constexpr (std::is_same_v<P, GemmFp8>)
    if (block_scales) {
      const LtMatmul::BlockScales scales = scales_of(p);
      return {kIn, kOut, false, p.m, p.n, p.k, &scales};
    }
  return {kIn, kOut, std::is_same_v<P, GemmTf32>, p.m, p.n, p.k};
}

template <class P>
Call<P> call_of(const P& p, StreamRef stream, bool tune, bool block_scales = false) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return [](const P&, StreamRef) {};
  const auto plan = std::make_shared<LtMatmul>(plan_of(p, block_scales));
  FATHOM_EXPECT(static_cast<int64_t>(plan->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  if (tune) plan->tune(p.a.data(), p.b.data(), p.out.data(), p.scratch.data(), stream);
  return [plan, block_scales](const P& q, StreamRef s) {
    if constexpr (std::is_same_v<P, GemmFp8>)
      if (block_scales) plan->set_scales(scales_of(q));
    plan->run(q.a.data(), q.b.data(), q.out.data(), q.scratch.data(), s);
  };
}

}  // namespace

Call<Gemm> cublaslt(const Gemm& p, StreamRef stream) { return call_of(p, stream, false); }
Call<Gemm> cublaslt_fastest(const Gemm& p, StreamRef stream) { return call_of(p, stream, true); }
Call<GemmFp32> cublaslt(const GemmFp32& p, StreamRef stream) { return call_of(p, stream, false); }
Call<GemmFp32> cublaslt_fastest(const GemmFp32& p, StreamRef stream) { return call_of(p, stream, true); }
Call<GemmTf32> cublaslt(const GemmTf32& p, StreamRef stream) { return call_of(p, stream, false); }
Call<GemmTf32> cublaslt_fastest(const GemmTf32& p, StreamRef stream) { return call_of(p, stream, true); }
Call<GemmFp8> cublaslt(const GemmFp8& p, StreamRef stream) { return call_of(p, stream, false); }
Call<GemmFp8> cublaslt_fastest(const GemmFp8& p, StreamRef stream) { return call_of(p, stream, true); }
Call<GemmFp8> cublaslt_block_scales(const GemmFp8& p, StreamRef stream) try {
  return call_of(p, stream, true, true);
} catch (const SystemError& error) {  // a cuBLASLt without them, or a shape that it does not take
  throw Unavailable("needs_library", std::string("cuBLASLt with scales of blocks: ") + error.what());
}

}  // namespace fathom::lab::matmul
