// e4m3 has 3 bits of mantissa, and the tensor cores keep about 14 bits of a sum. A scale for each block of
// 128 mends the first, a sum in fp32 the second. Both are work for the CUDA cores. What does it cost?
#include "lab/experiment.h"

#include <cmath>

#include "experiments/labs/matmul/cublaslt.h"

namespace fathom::lab::matmul {
namespace {

int64_t blocks_of(int64_t n) { return (n + 127) / 128; }

View<const float, 2> scales_in(Arena& arena, int64_t rows, int64_t columns, bool own) {
  const auto all = arena.input<float>({rows, (columns + 3) / 4 * 4}, own ? Uniform{0.25, 4} : Uniform{1, 1});
  return {all.data(), {rows, columns}, {all.stride(0), 1}};
}

}  // namespace

GemmFp8::GemmFp8(const Point& at, Arena& arena)
    : m(at["size"]),
      n(m),
      k(m),
      own_scales(at["own_scales"] != 0),
      a(arena.input<fp8_e4m3>({m, k}, Normal{})),
      b(arena.input<fp8_e4m3>({n, k}, Normal{})),
      a_scales(scales_in(arena, blocks_of(k), m, own_scales)),
      b_scales(scales_in(arena, blocks_of(n), blocks_of(k), own_scales)),
      scratch(arena.workspace<char>({int64_t{32} << 20})),
      out(arena.output<bf16>({m, n})) {
  FATHOM_EXPECT(m % 16 == 0,
                "the size is a multiple of 16: a row is a whole number of 16-byte vectors (-a size=4096)");
}

Cost GemmFp8::cost() const {
  return {.read      = a.bytes() + b.bytes() + 4 * (a_scales.size() + b_scales.size()),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .flop_type = DType::fp8_e4m3};
}

Sum GemmFp8::expected(int64_t i, int64_t j) const {
  Sum sum;
  double squares = 0;
  for (int64_t l = 0; l < k; ++l) {
    const double product = static_cast<double>(static_cast<float>(a(i, l))) * static_cast<float>(b(j, l)) *
                           a_scales(l / 128, i) * b_scales(j / 128, l / 128);
    sum.value += product;
    squares += product * product;
  }
  // The roundings are those of sums in the tensor cores, 14 bits of their size at the time, about the root of
  // the squares. With own scales all variants sum only 128 products there.
  sum.magnitude  = std::sqrt(squares);
  sum.length     = own_scales ? 4 : (k + 31) / 32;
  sum.accumulate = DType::fp16;
  return sum;
}

namespace {

const Experiment<GemmFp8> fp8{
    .question = "What do scales of blocks and sums in fp32 cost an fp8 matrix product?",
    .limit    = Limit::tensor_flops,
    // Timed with scales of 1, so that variants with one scale for a tensor compute the same. Times do not
    // depend on the scales' values.
    .axes  = {{"size", {8192, 4096}}, {"own_scales", {0}}},
    .quick = {{"size", {4096}}},
    // Around a block of k (128), and tiles of 128, 192 and 256; 656 is once around the ring of stages.
    .check_at = {{"size", {0, 16, 112, 144, 272, 656}}, {"own_scales", {0, 1}}},
    .variants =
        {
            {.id         = "cublaslt",
             .idea       = "cublasLtMatmul, a scale for each tensor, the heuristic's first algorithm",
             .prediction = predict::share(0.86),
             .prepare    = prepared_on_gpu<GemmFp8>(cublaslt),
             .up_to      = {{"own_scales", 0}}},
            {.id         = "cublaslt_fastest",
             .idea       = "the fastest of all the algorithms that it offers, found by trial",
             .prediction = predict::ratio(1),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<GemmFp8>(cublaslt_fastest),
             .up_to      = {{"own_scales", 0}}},
            {.id         = "cublaslt_block_scales",
             .idea       = "the same with scales of blocks",
             .prediction = predict::ratio(0.87),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<GemmFp8>(cublaslt_block_scales)},
            {.id         = "per_tensor",
             .launch     = on_gpu(fp8_per_tensor),
             .techniques = {"fp8"},
             .idea       = "the op gemm_fp8: one scale, sums stay in the tensor cores",
             .prediction = predict::ratio(0.98),
             .kind       = Kind::engine,
             .op         = "kernels/gemm/gemm_fp8.cu",
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma},
             .up_to      = {{"own_scales", 0}}},
            {.id         = "two_parts",
             .launch     = on_gpu(fp8_two_parts),
             .techniques = {"fp8"},
             .idea       = "scales of blocks: 128 x 256 a CTA, partial sums of half of it at a time",
             .prediction = predict::ratio(0.68),
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
            {.id         = "scales_by_tma",
             .launch     = on_gpu(fp8_scales_by_tma),
             .techniques = {"fp8"},
             .idea       = "scales of blocks: 128 x 192 a CTA, scales by TMA with their block of k",
             .prediction = predict::ratio(0.88),
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
            {.id         = "turns",
             .launch     = on_gpu(fp8_turns),
             .techniques = {"fp8"},
             .idea       = "the same, and one warpgroup multiplies while the other adds",
             .prediction = predict::ratio_at_least(0.9),
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
            {.id         = "block_scales",
             .launch     = on_gpu(fp8_block_scales),
             .techniques = {"fp8"},
             .idea       = "the op gemm_fp8_block_scaled: 128 x 192 a CTA, partial sums of all of it",
             .prediction = predict::ratio(0.8),
             .kind       = Kind::engine,
             .op         = "kernels/gemm/gemm_fp8.cu",
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
        },
    .backend = Backend::cuda,
    .catalog = {"quant-002"},
    .group   = "matmul",
};
FATHOM_REGISTER(fp8);

}  // namespace
}  // namespace fathom::lab::matmul
