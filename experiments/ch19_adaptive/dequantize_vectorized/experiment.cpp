// Numbers of 4 or 8 bits make scalar code slower, not faster: a thread still loads, and waits for, one
// element at a time, and now that is a byte. How wide must its loads be?
#include "lab/experiment.h"
#include "dequantize.h"

namespace fathom::lab::dequantize_vectorized {

Dequantize::Dequantize(const Point& at, Arena& arena)
    : fp4(at.text("format") == "mxfp4"),
      eights(arena.input<fp8_e4m3>({fp4 ? 0 : at["n"]}, Normal{0, 30})),
      pairs(arena.input<uint8_t>({fp4 ? at["n"] / 2 : 0}, Uniform{0, 256})),
      scales(arena.input<uint8_t>({at["n"] / kBlock}, Uniform{107, 148})),
      out(arena.output<bf16>({at["n"]})) {
  FATHOM_EXPECT(at["n"] % kBlock == 0, "n must be whole blocks of 32 numbers with one scale");
}

Cost Dequantize::cost() const {
  return {.read    = eights.bytes() + pairs.bytes() + scales.bytes(),
          .written = out.bytes(),
          .flops   = 2 * static_cast<double>(out.size())};
}

double Dequantize::expected(int64_t i) const {
  const float code = fp4 ? static_cast<float>(fp4_e2m1::from_bits(pairs(i / 2) >> (i % 2 == 0 ? 0 : 4) & 0xf))
                         : static_cast<float>(eights(i));
  return static_cast<double>(code) * static_cast<float>(e8m0::from_bits(scales(i / kBlock)));
}

const Experiment<Dequantize> dequantize{
    .question = "How wide must loads of 8-bit and 4-bit codes be to dequantize at the rate of memory?",
    .limit    = Limit::memory,
    .axes     = {{"format", {"mxfp8", "mxfp4"}}, {"n", {int64_t{1} << 28}}},
    .check_at = {{"n", {0, 32, 96, 8160, 8192, 8224, 32 * 10007}}, {"format", {"mxfp8", "mxfp4"}}},
    .variants =
        {
            {.id         = "bytes_1",
             .launch     = on_gpu(bytes_1),
             .techniques = {"coalescing"},
             .idea       = "a byte of codes for each thread",
             .prediction = predict::share(0.3)},
            {.id         = "bytes_4",
             .launch     = on_gpu(bytes_4),
             .techniques = {"coalescing", "vectorization", "weight_quantization"},
             .idea       = "4 bytes for each thread: 4 or 8 numbers",
             .prediction = predict::ratio(2.5)},
            {.id         = "bytes_16",
             .launch     = on_gpu(bytes_16),
             .techniques = {"coalescing", "vectorization", "weight_quantization"},
             .idea       = "16 bytes for each thread: 16 or 32 numbers",
             .prediction = predict::share_at_least(0.85)},
            {.id         = "bytes_16_shuffled",
             .launch     = on_gpu(bytes_16_shuffled),
             .techniques = {"coalescing", "vectorization", "warp_shuffle", "weight_quantization"},
             .idea       = "the same loads; lanes exchange codes, so that stores of a warp have no gaps",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "codes_8",
             .launch     = on_gpu(codes_8),
             .techniques = {},
             .idea = "the op: 8 codes a load, which a store of 16 bytes has in bf16; four loads in flight",
             .prediction = predict::share_at_least(0.9),
             .kind       = Kind::engine,
             .op         = "kernels/quant/dequantize.cu"},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-023"},
};
FATHOM_REGISTER(dequantize);

}  // namespace fathom::lab::dequantize_vectorized
