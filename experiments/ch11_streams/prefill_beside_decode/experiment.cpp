// Prefill is bound by the tensor cores, decode by memory. Beside each other, could each use what the other
// leaves idle?
#include "lab/experiment.h"

#include <cmath>

#include "phases.h"

namespace fathom::lab::prefill_beside_decode {

Phases::Phases(const Point& at, Arena& arena)
    : x(arena.input<bf16>({at["tokens"], at["width"]}, Uniform{-1, 1})),
      w(arena.input<bf16>({at["outputs"], at["width"]}, Uniform{-1, 1})),
      v(arena.input<bf16>({at["width"]}, Uniform{-1, 1})),
      u(arena.input<bf16>({at["decode_rows"], at["width"]}, Uniform{-1, 1})),
      prefill(arena.output<bf16>({at["tokens"], at["outputs"]})),
      decode(arena.output<float>({at["decode_rows"]})),
      scratch(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(at["width"] > 0 && at["width"] % 8 == 0, "rows are read 16 bytes at a time");
  FATHOM_EXPECT(at["outputs"] % 8 == 0, "cuBLASLt wants rows that begin at multiples of 16 bytes");
}

Cost Phases::cost() const {
  return {.read      = x.bytes() + w.bytes() + v.bytes() + u.bytes(),
          .written   = prefill.bytes() + decode.bytes(),
          .flops     = 2.0 * static_cast<double>(x.size()) * static_cast<double>(w.extent(0)),
          .flop_type = DType::bf16};
}

void Phases::check(Checker& checker) const {
  const auto dot = [](const bf16* a, const bf16* b, int64_t n) {
    Sum sum{.length = n};
    for (int64_t k = 0; k < n; ++k) {
      const double term = static_cast<double>(static_cast<float>(a[k])) * static_cast<float>(b[k]);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  };
  checker.values("prefill", prefill,
                 [&](int64_t t, int64_t n) { return dot(&x(t, 0), &w(n, 0), x.extent(1)); });
  checker.values("decode", decode, [&](int64_t r) { return dot(v.data(), &u(r, 0), v.size()); });
}

namespace {

const Experiment<Phases> phases{
    .question =
        "How much of a decode step disappears beside a prefill when the two get streams of their own?",
    .limit    = Limit::tensor_flops,
    .axes     = {{"tokens", {2048}}, {"outputs", {8192}}, {"decode_rows", {32768}}, {"width", {4096}}},
    .check_at = {{"tokens", {0, 1, 17}},
                 {"outputs", {8, 72}},
                 {"decode_rows", {0, 1, 31, 33, 1300}},
                 {"width", {8, 264}}},
    .variants =
        {
            {.id         = "one_stream",
             .techniques = {"tensor_cores", "vectorization", "warp_shuffle"},
             .idea       = "decode, then prefill",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(one_stream)},
            {.id         = "two_streams",
             .techniques = {"tensor_cores", "vectorization", "warp_shuffle", "streams", "events"},
             .idea       = "both in streams of their own",
             .prediction = predict::ratio(1.02),
             .prepare    = prepared_on_gpu(two_streams)},
            {.id         = "decode_first",
             .techniques = {"tensor_cores", "vectorization", "warp_shuffle", "streams", "events",
                            "stream_priorities"},
             .idea       = "decode with a high priority",
             .prediction = predict::ratio(1.02),
             .prepare    = prepared_on_gpu(decode_first)},
            {.id         = "confined_decode",
             .techniques = {"tensor_cores", "vectorization", "warp_shuffle", "streams", "events",
                            "stream_priorities"},
             .idea       = "decode on at most 32 multiprocessors",
             .prediction = predict::ratio_at_least(1.05),
             .prepare    = prepared_on_gpu(confined_decode)},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-005"},
};
FATHOM_REGISTER(phases);

}  // namespace
}  // namespace fathom::lab::prefill_beside_decode
