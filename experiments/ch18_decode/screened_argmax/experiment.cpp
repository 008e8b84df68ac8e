// The last product of a decode step reads 1.2 GB of gpt-oss-20b's 3.7, to find one token. An int8 copy of the
// matrix bounds every logit. Can the token be found, the same one, with half of the bytes?
#include "lab/experiment.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/gumbel.h"
#include "core/rng.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax {
namespace {

using kernels::SamplingRow;

// A model's weights are the same at every call; x is not. The last point's are kept.
struct Made {
  Weights of{};
  std::vector<bf16> plain;  // in the checkpoint's layout, for the check
  std::vector<uint8_t> packed;
};
const Made& weights_of(const Weights& of) {
  static Made made;
  if (made.of != of) {
    made = {of, std::vector<bf16>(static_cast<size_t>(of.vocabulary * of.inputs)),
            std::vector<uint8_t>(static_cast<size_t>(of.bytes()))};
    fill_normal(made.plain.data(), of.vocabulary * of.inputs, 1, 0, 0.02);
    pack(made.packed.data(), made.plain.data(), of);
  }
  return made;
}

auto rules_of(double temperature) {
  return generate<uint8_t>([temperature](uint8_t* data, int64_t bytes, uint64_t seed) {
    const auto rows = static_cast<int32_t>(bytes / static_cast<int64_t>(sizeof(SamplingRow)));
    for (int32_t r = 0; r < rows; ++r) {
      const SamplingRow rule{.temperature = static_cast<float>(temperature),
                             .seed        = seed + static_cast<uint64_t>(r),
                             .position    = 100 + r,
                             .place       = r};
      std::memcpy(data + static_cast<size_t>(r) * sizeof rule, &rule, sizeof rule);
    }
  });
}

}  // namespace

Unembedding::Unembedding(const Point& at, Arena& arena)
    : weights{at["vocabulary"], at["inputs"]},
      rows(at["rows"]),
      x(arena.input<bf16>({rows, weights.inputs}, Normal{.mean = 0, .stddev = 1})),
      memory(arena.input<uint8_t>({weights.bytes()},
                                  generate<uint8_t>([of = weights](uint8_t* to, int64_t bytes, uint64_t) {
                                    std::memcpy(to, weights_of(of).packed.data(), static_cast<size_t>(bytes));
                                  }))),
      ids(arena.output<int32_t>({rows})),
      logits(arena.workspace<float>({rows, weights.vocabulary})) {
  const auto bytes = arena.input<uint8_t>({rows * static_cast<int64_t>(sizeof(SamplingRow))},
                                          rules_of(at.real("temperature")));
  rules            = {reinterpret_cast<const SamplingRow*>(bytes.data()), {rows}};
}

// The copy, as the fewer bytes.
Cost Unembedding::cost() const {
  if (rows == 0) return {};
  return {.read      = weights.screening(nullptr).bytes() + x.bytes(),
          .written   = ids.bytes(),
          .flops     = 2.0 * static_cast<double>(rows * weights.vocabulary * weights.inputs),
          .flop_type = DType::bf16};
}

// Sums in fp32 may change places where they are within rounding.
void Unembedding::check(Checker& checker) const {
  const View<const bf16, 2> w(weights_of(weights).plain.data(), {weights.vocabulary, weights.inputs});
  checker.values("ids", ids, [&](int64_t t) -> int64_t {
    const SamplingRow& rule = rules(t);
    std::vector<float> row(static_cast<size_t>(weights.inputs));
    for (size_t k = 0; k < row.size(); ++k) row[k] = static_cast<float>(x(t, static_cast<int64_t>(k)));
    std::vector<double> score(static_cast<size_t>(weights.vocabulary));
    double magnitude = 0;
    int64_t best     = 0;
    for (int64_t v = 0; v < weights.vocabulary; ++v) {
      const bf16* of_w = &w(v, 0);
      double y = 0, size = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        const double product = static_cast<double>(static_cast<float>(of_w[k]) * row[k]);
        y += product;
        size += std::abs(product);
      }
      magnitude = std::max(magnitude, size);
      score[static_cast<size_t>(v)] =
          rule.temperature > 0 ? y / rule.temperature + gumbel(rule.seed, rule.position, v) : y;
      if (score[static_cast<size_t>(v)] > score[static_cast<size_t>(best)]) best = v;
    }
    const double off = 0x1p-17 * (magnitude / (rule.temperature > 0 ? rule.temperature : 1) + 32);
    const bool close = ids(t) >= 0 && ids(t) < weights.vocabulary &&
                       score[static_cast<size_t>(ids(t))] >= score[static_cast<size_t>(best)] - off;
    return close ? ids(t) : best;
  });
}

const Experiment<Unembedding> unembedding{
    .question =
        "A token is the argmax of 40960 logits, drawn or greedy. What is gained where an int8 copy of the "
        "unembedding rules out most of its rows, and only the others are read?",
    .limit    = Limit::memory,
    .axes     = {{"rows", {1, 8}}, {"vocabulary", {40960}}, {"inputs", {2880}}, {"temperature", {1.0}}},
    .check_at = {{"rows", {0, 1, 3, 8}},
                 {"vocabulary", {32768, 32780}},
                 {"inputs", {64, 192}},
                 {"temperature", {0.0, 0.5}}},
    .variants =
        {
            {.id         = "all_logits",
             .launch     = on_gpu(all_logits),
             .techniques = {"tensor_cores", "packing", "programmatic_dependent_launch"},
             .idea       = "all logits, then their argmax: the engine's ops",
             .prediction = predict::share_at_least(0.45),
             .needs      = {machine::Feature::clusters, machine::Feature::wgmma}},
            {.id         = "screened",
             .techniques = {"tensor_cores", "packing", "weight_quantization",
                            "programmatic_dependent_launch"},
             .idea       = "int8 bounds, then the rows that may win: the engine's op",
             .prediction = predict::ratio_at_least(1.4),
             .kind       = Kind::engine,
             .op         = "kernels/sampling/screened_argmax.h",
             .prepare    = prepared_on_gpu(screened),
             .needs      = {machine::Feature::clusters, machine::Feature::wgmma}},
        },
    .backend = Backend::cuda,
    .catalog = {"serving-016"},
};
FATHOM_REGISTER(unembedding);

}  // namespace fathom::lab::screened_argmax
