// Weights of 4 bits are a quarter of the bytes of bf16 weights, and a decode step's time is that of reading
// them. But each must be unpacked before it is multiplied. How much of the gain is left, and for how many
// rows?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "projection.h"

namespace fathom::lab::int4_gemv_gpu {
namespace {

// Different rows of weights, used in turn: generating all of them would take longer than the rest of the run.
constexpr int64_t kDistinct = 509;

// A row of the checkpoint's layout, and its numbers in bf16.
struct Row {
  std::vector<uint8_t> codes, zeros;
  std::vector<fp16> scales;
  std::vector<bf16> numbers;

  Row(const Weights& of, std::mt19937_64& random)
      : codes(static_cast<size_t>(of.inputs / 2)),
        zeros(static_cast<size_t>(of.groups())),
        scales(zeros.size()),
        numbers(static_cast<size_t>(of.inputs)) {
    for (uint8_t& two : codes) two = static_cast<uint8_t>(random());
    for (uint8_t& zero : zeros) zero = random() % 16;
    // 4 significant bits: times a code of 4 bits, bf16 has them exactly.
    for (fp16& scale : scales) scale = fp16(static_cast<float>(8 + random() % 8) / 512);
    for (size_t k = 0; k < numbers.size(); ++k) {
      const size_t g = k / static_cast<size_t>(of.group);
      const int code = codes[k / 2] >> (k % 2 * 4) & 15;
      numbers[k]     = bf16(static_cast<float>(scales[g]) * static_cast<float>(code - zeros[g]));
    }
  }
};

template <class T>
void put(uint8_t* array, int64_t row, const std::vector<T>& numbers) {
  const size_t bytes = numbers.size() * sizeof(T);
  std::memcpy(array + static_cast<size_t>(row) * bytes, numbers.data(), bytes);
}

void generate_weights(uint8_t* memory, const Weights& of) {
  std::mt19937_64 random(1);
  std::vector<Row> rows;
  for (int64_t r = 0; r < std::min(of.rows(), kDistinct); ++r) rows.emplace_back(of, random);
  for (int64_t r = 0; r < of.rows(); ++r) {
    const Row& row = rows[static_cast<size_t>(r % kDistinct)];
    put(memory, r, row.codes);
    put(memory + of.scales_at(), r, row.scales);
    put(memory + of.zeros_at(), r, row.zeros);
    put(memory + of.bf16_at(), r, row.numbers);
  }
  pack(memory, of);
}

// A model's weights are the same at every call; x is not. The harness refills inputs some sixty times, and
// making a point's weights takes half a second: the last point's are kept.
void fill(uint8_t* memory, const Weights& of) {
  static Weights last{};
  static std::unique_ptr<uint8_t[]> kept;
  if (!kept || of != last) {
    kept.reset();
    kept = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(of.bytes()));
    generate_weights(kept.get(), of);
    last = of;
  }
  std::memcpy(memory, kept.get(), static_cast<size_t>(of.bytes()));
}

}  // namespace

Projection::Projection(const Point& at, Arena& arena)
    : weights{at["matrices"], at["outputs"], at["inputs"], at["group"]},
      rows(at["rows"]),
      x(arena.input<bf16>({weights.matrices, rows, weights.inputs}, Uniform{-1, 1})),
      memory(arena.input<uint8_t>(
          {weights.bytes()},
          generate<uint8_t>([of = weights](uint8_t* to, int64_t, uint64_t) { fill(to, of); }))),
      out(arena.output<float>({weights.matrices, rows, weights.outputs})),
      scratch(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(weights.inputs % 64 == 0, "packed weights have whole units of 64 inputs");
}

// The bytes of the 4-bit weights, for all variants: the least that must be read.
Cost Projection::cost() const {
  return {.read      = x.bytes() + weights.packed(memory.data()).bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(rows * weights.inputs) * static_cast<double>(weights.rows()),
          .flop_type = DType::bf16};
}

Sum Projection::expected(int64_t m, int64_t t, int64_t n) const {
  const kernels::Int4Matrices w = weights.int4(memory.data());
  Sum sum{.length = weights.inputs};
  for (int64_t k = 0; k < weights.inputs; ++k) {
    const int64_t g      = k / weights.group;
    const int code       = w.codes(m, n, k / 2) >> (k % 2 * 4) & 15;
    const double product = static_cast<double>(static_cast<float>(x(m, t, k))) *
                           static_cast<double>(static_cast<float>(w.scales(m, n, g))) *
                           (code - w.zeros(m, n, g));
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const Experiment<Projection> int4_gemv{
    .question =
        "Weights of 4 bits are a quarter of the bytes of bf16 weights, but each must be unpacked. How much "
        "of "
        "the gain is left for one row, and for eight, on the CUDA cores and on the tensor cores?",
    .limit = Limit::memory,
    // 8 matrices of 4096 x 4096 are 70 MB in 4 bits, more than L2 holds; all forms of the weights are 405 MB,
    // which the host copies at every refill.
    .axes  = {{"rows", {1, 8}},
              {"outputs", {4096, 2880}},
              {"inputs", {4096}},
              {"group", {128}},
              {"matrices", {8}}},
    .quick = {{"outputs", {2880}}, {"matrices", {4}}},
    // Around units of 16 outputs and 64 inputs, CTAs of 128 outputs, and rows that end inside a step. Outputs
    // are multiples of 4, because cuBLASLt wants each matrix's results aligned to 16 bytes.
    .check_at = {{"rows", {0, 1, 3, 8}},
                 {"outputs", {20, 132}},
                 {"inputs", {64, 1088}},
                 {"group", {128, 64}},
                 {"matrices", {3}}},
    .variants =
        {
            {.id         = "bf16_weights",
             .launch     = on_gpu(bf16_weights),
             .techniques = {"vectorization", "warp_shuffle"},
             .idea       = "a warp for each output reads bf16 weights, 16 bytes a lane",
             .prediction = predict::nothing()},
            {.id         = "cublaslt",
             .techniques = {"tensor_cores"},
             .idea       = "cublasLtMatmul on bf16 weights, planned once",
             .prediction = predict::share(0.16),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cublaslt),
             .syncs      = true},  // held back until its calls are enqueued, the GPU is waited for
            {.id         = "int4_weights",
             .launch     = on_gpu(int4_weights),
             .techniques = {"vectorization", "warp_shuffle", "weight_quantization"},
             .idea       = "the same kernel as the baseline; codes are unpacked on the CUDA cores",
             .prediction = predict::ratio_at_least(1.8)},
            {.id         = "tensor_cores",
             .launch     = on_gpu(tensor_cores),
             .techniques = {"weight_quantization", "tensor_cores", "packing", "persistent_kernel",
                            "warp_specialization", "tma", "programmatic_dependent_launch"},
             .idea       = "the engine's op: codes packed as fragments, a scale multiplied once a group",
             .prediction = predict::share_at_least(0.75),
             .kind       = Kind::engine,
             .op         = "kernels/quant/int4_gemv.cu",
             .needs      = {machine::Feature::tma}},
        },
    .backend = Backend::cuda,
    .catalog = {"quant-009", "quant-010"},
};
FATHOM_REGISTER(int4_gemv);

}  // namespace
}  // namespace fathom::lab::int4_gemv_gpu
