// The last product of a decode step reads 1.2 GB of gpt-oss-20b's 3.7, to find one token. An int8 copy of the
// matrix bounds every logit. Can the token be found, the same one, with half of the bytes?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/cpus.h"
#include "core/gumbel.h"
#include "core/rng.h"
#include "model/ops.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax_cpu {
namespace {

// A model's weights are the same at every call; x is not. The last point's are kept.
void fill(bf16* to, int64_t count) {
  static std::vector<bf16> kept;
  if (std::ssize(kept) != count) {
    kept.resize(static_cast<size_t>(count));
    fill_normal(kept.data(), count, 1, 0, 0.02);
  }
  std::memcpy(to, kept.data(), kept.size() * sizeof(bf16));
}

}  // namespace

Unembedding::Unembedding(const Point& at, Arena& arena)
    : rows(at["rows"]),
      vocabulary(at["vocabulary"]),
      inputs(at["inputs"]),
      temperature(at.real("temperature")),
      x(arena.input<float>({rows, inputs}, Normal{.mean = 0, .stddev = 1})),
      w(arena.input<bf16>({vocabulary, inputs},
                          generate<bf16>([](bf16* to, int64_t count, uint64_t) { fill(to, count); }))),
      ids(arena.output<int32_t>({rows})),
      logits(arena.workspace<float>({rows, vocabulary})),
      scratch(arena.workspace<uint8_t>(
          {model::cpu_ops().scratch_bytes({.rows         = rows + 1,
                                           .hidden       = inputs,
                                           .intermediate = 32,
                                           .heads        = 1,
                                           .head_dim     = 64,
                                           .experts      = 1,
                                           .top_k        = 1,
                                           .threads      = std::max(64, host_threads())})})) {}

void Unembedding::choose() const {
  for (int64_t t = 0; t < rows; ++t) {
    const std::span<const float> y(&logits(t, 0), static_cast<size_t>(vocabulary));
    const model::DrawRule of_row = rule(t);
    ids(t) =
        static_cast<int32_t>(temperature > 0 ? gumbel_argmax(y, temperature, of_row.seed, of_row.position)
                                             : std::max_element(y.begin(), y.end()) - y.begin());
  }
}

// The copy, as the fewer bytes.
Cost Unembedding::cost() const {
  if (rows == 0) return {};
  return {.read    = vocabulary * inputs * 34 / 32 + 8 * vocabulary + x.bytes(),
          .written = ids.bytes(),
          .flops   = 2.0 * static_cast<double>(rows * vocabulary * inputs)};
}

// Sums in fp32 may change places where they are within rounding.
void Unembedding::check(Checker& checker) const {
  checker.values("ids", ids, [&](int64_t t) -> int64_t {
    const model::DrawRule of_row = rule(t);
    std::vector<double> score(static_cast<size_t>(vocabulary));
    double magnitude = 0;
    int64_t best     = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      double y = 0, size = 0;
      for (int64_t k = 0; k < inputs; ++k) {
        const double product =
            static_cast<double>(static_cast<float>(w(v, k))) * static_cast<double>(x(t, k));
        y += product;
        size += std::abs(product);
      }
      magnitude = std::max(magnitude, size);
      score[static_cast<size_t>(v)] =
          temperature > 0 ? y / temperature + gumbel(of_row.seed, of_row.position, v) : y;
      if (score[static_cast<size_t>(v)] > score[static_cast<size_t>(best)]) best = v;
    }
    const double off = 0x1p-17 * magnitude / (temperature > 0 ? temperature : 1);
    const bool close = ids(t) >= 0 && ids(t) < vocabulary &&
                       score[static_cast<size_t>(ids(t))] >= score[static_cast<size_t>(best)] - off;
    return close ? ids(t) : best;
  });
}

const Experiment<Unembedding> unembedding{
    .question =
        "A token is the argmax of 40960 logits, drawn or greedy. What is gained on a CPU where an int8 copy "
        "of the unembedding rules out most of its rows, and only the others are read?",
    .limit    = Limit::memory,
    .axes     = {{"rows", {1, 8}}, {"vocabulary", {40960}}, {"inputs", {2880}}, {"temperature", {1.0}}},
    .check_at = {{"rows", {0, 1, 3}},
                 {"vocabulary", {1, 7, 3001}},
                 {"inputs", {31, 192}},
                 {"temperature", {0.0, 0.5}}},
    .variants =
        {
            {.id         = "all_logits",
             .launch     = all_logits,
             .techniques = {"simd", "thread_parallel_loops"},
             .idea       = "all logits, then their argmax: the engine's ops",
             .prediction = predict::nothing(),
             .threads    = kAllThreads},
            {.id         = "screened",
             .techniques = {"simd", "thread_parallel_loops", "weight_quantization"},
             .idea       = "int8 bounds, then the rows that may win: the engine's way",
             .prediction = predict::ratio_at_least(1.6),
             .kind       = Kind::engine,
             .op         = "kernels/gemm/linear_int8_cpu.cpp",
             .threads    = kAllThreads,
             .prepare    = screened},
        },
    .catalog = {"serving-016"},
};
FATHOM_REGISTER(unembedding);

}  // namespace fathom::lab::screened_argmax_cpu
