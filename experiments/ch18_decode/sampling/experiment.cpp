// The end of a decode step: one token of 201088 is drawn from the likeliest that together have nine tenths of
// the probability. The definition sorts. Is a sort needed?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/rng.h"
#include "sampling.h"

namespace fathom::lab::sampling {
namespace {

using kernels::SamplingRow;

// A seed for each row.
auto rules_of(float top_p) {
  return generate<uint8_t>([top_p](uint8_t* data, int64_t bytes, uint64_t seed) {
    const auto rows = static_cast<int32_t>(bytes / static_cast<int64_t>(sizeof(SamplingRow)));
    for (int32_t r = 0; r < rows; ++r) {
      const SamplingRow rule{
          .top_p = top_p, .seed = seed + static_cast<uint64_t>(r), .position = 100 + r, .place = r};
      std::memcpy(data + static_cast<size_t>(r) * sizeof rule, &rule, sizeof rule);
    }
  });
}

// In (0, 1): engine/sampler.cpp.
double uniform(uint64_t seed, int64_t position) {
  const auto at    = static_cast<uint64_t>(position);
  const auto words = philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<double>((uint64_t{words[1]} << 32 | words[0]) >> 11) + 0.5) * 0x1p-53;
}

// The relative error of a sum of weights, in fp32's round-off. A weight is exp(d) with d down to -30.5 (below
// that, 2^-44, tokens may be left out), rounded three times, and 4 for the exponential; a sum over a row goes
// through at max 110 additions, in lanes, warps, blocks.
constexpr double kError = (3 * 30.5 + 4 + 110) * 0x1p-24;

// The tokens that a row's random number may draw, when sums have errors up to kError.
class Reference {
 public:
  Reference(const float* logits, int64_t vocabulary, const SamplingRow& rule)
      : weights_(static_cast<size_t>(vocabulary)), may_(static_cast<size_t>(vocabulary), kNever) {
    const double max = *std::max_element(logits, logits + vocabulary);
    double total     = 0;
    for (size_t i = 0; i < weights_.size(); ++i)
      total += weights_[i] = std::exp((logits[i] - max) / rule.temperature);
    cut(logits, rule.top_p, total);
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (may_[i] == kSurely) min_total_ += weights_[i];
      if (may_[i] != kNever) max_total_ += weights_[i];
    }
    u_ = uniform(rule.seed, rule.position);
  }

  // Whether some rounding within kError draws this token: it is within top-p, and the target lies between the
  // running sums before it and with it.
  bool accepts(int64_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(weights_.size()) || may_[static_cast<size_t>(id)] == kNever)
      return false;
    double before = 0, with = 0;
    for (size_t i = 0; i <= static_cast<size_t>(id); ++i) {
      if (may_[i] == kSurely && i < static_cast<size_t>(id)) before += weights_[i];
      if (may_[i] != kNever) with += weights_[i];
    }
    return before <= u_ * max_total_ * (1 + 2 * kError) && with >= u_ * min_total_ * (1 - 2 * kError);
  }

  // The token drawn without rounding.
  int64_t id() const {
    double left = u_ * min_total_;
    int64_t id  = 0;
    for (size_t i = 0; i < weights_.size() && left >= 0; ++i)
      if (may_[i] == kSurely) {
        left -= weights_[i];
        id = static_cast<int64_t>(i);
      }
    return id;
  }

 private:
  enum May : uint8_t { kNever, kPerhaps, kSurely };

  // Likeliest first, lower ids first among equals: a token is in while those before it have less than top_p.
  void cut(const float* logits, double top_p, double total) {
    if (top_p >= 1) return std::fill(may_.begin(), may_.end(), kSurely);
    // Tokens of less weight than this have together less than 1 - top_p, and are not in.
    const double light = (1 - top_p - 2 * kError) * total / static_cast<double>(weights_.size());
    std::vector<size_t> heavy;
    for (size_t i = 0; i < weights_.size(); ++i)
      if (weights_[i] >= light) heavy.push_back(i);
    std::stable_sort(heavy.begin(), heavy.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    double before = 0;
    for (const size_t i : heavy) {
      if (before >= (top_p + 2 * kError) * total) break;
      may_[i] = before < (top_p - 2 * kError) * total ? kSurely : kPerhaps;
      before += weights_[i];
    }
  }

  std::vector<double> weights_;
  std::vector<May> may_;
  double min_total_ = 0, max_total_ = 0, u_ = 0;
};

}  // namespace

// With this deviation some tens of tokens have 0.9 of the probability, as is usual in text.
Choice::Choice(const Point& at, Arena& arena)
    : rows(at["rows"]),
      vocabulary(at["vocabulary"]),
      logits(arena.input<float>({rows, vocabulary}, Normal{.mean = 0, .stddev = 6})),
      ids(arena.output<int32_t>({rows})),
      keys(arena.workspace<uint64_t>({2, rows * vocabulary})),
      sums(arena.workspace<double>({rows * vocabulary})),
      last(arena.workspace<uint64_t>({rows})),
      scratch(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(rows * vocabulary <= INT32_MAX && rows <= 1 << 14,
                "sorted: 31 bits for an index, and 14 for the row in a key");
  const auto bytes = arena.input<uint8_t>({rows * static_cast<int64_t>(sizeof(SamplingRow))},
                                          rules_of(static_cast<float>(at.real("top_p"))));
  rules            = {reinterpret_cast<const SamplingRow*>(bytes.data()), {rows}};
}

Cost Choice::cost() const { return {.read = logits.bytes() + rules.bytes(), .written = ids.bytes()}; }

void Choice::check(Checker& checker) const {
  checker.values("ids", ids, [&](int64_t r) -> int64_t {
    const Reference reference(&logits(r, 0), vocabulary, rules(r));
    return reference.accepts(ids(r)) ? ids(r) : reference.id();
  });
}

const Experiment<Choice> choice{
    .question =
        "What does it take to sample with top-p from 201088 logits: with a sort, and with a search for the "
        "threshold logit?",
    .limit    = Limit::none,  // a chain of rounds, each over all CTAs of a cluster (notes.md)
    .axes     = {{"rows", {64, 16, 1}}, {"vocabulary", {201088}}, {"top_p", {0.9}}},
    .check_at = {{"rows", {0, 1, 5}}, {"vocabulary", {4, 8, 1000, 32772}}, {"top_p", {0.3, 0.9, 0.999}}},
    .variants =
        {
            {.id         = "sorted",
             .launch     = on_gpu(sorted),
             .techniques = {},
             .idea       = "CUB's radix sort of all rows, running sums, two binary searches",
             .prediction = predict::nothing()},
            {.id         = "pivots",
             .launch     = on_gpu(pivots),
             .techniques = {"kernel_fusion", "warp_shuffle", "vectorization"},
             .idea       = "a CTA a row: 8 pivots cut the interval of the threshold logit, again and again",
             .prediction = predict::ratio(10)},
            {.id         = "cluster",
             .launch     = on_gpu(cluster),
             .techniques = {"kernel_fusion", "warp_shuffle", "vectorization", "clusters", "dsmem"},
             .idea       = "the same with a row in the shared memory of a cluster of 8 CTAs",
             .prediction = predict::ratio_at_least(8),
             .needs      = {machine::Feature::clusters}},
            {.id         = "searched",
             .launch     = on_gpu(searched),
             .techniques = {"kernel_fusion", "clusters", "dsmem"},
             .idea       = "the engine's op: as cluster, with compaction, top-k, min-p and greedy rows",
             .prediction = predict::ratio_at_least(6),
             .kind       = Kind::engine,
             .op         = "kernels/sampling/sample.cu",
             .needs      = {machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
};
FATHOM_REGISTER(choice);

}  // namespace fathom::lab::sampling
