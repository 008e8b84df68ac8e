// The last step of a decode step: one token out of 201088, drawn from the likeliest that together have nine
// tenths of the probability. The definition begins with "sort". Must one?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "choice.h"
#include "core/rng.h"

namespace fathom::lab::token_choice {
namespace {

using kernels::TokenRule;

// A seed of its own for each row.
auto rules_of(float top_p) {
  return generate<uint8_t>([top_p](uint8_t* data, int64_t bytes, uint64_t seed) {
    const auto rows = static_cast<int32_t>(bytes / static_cast<int64_t>(sizeof(TokenRule)));
    for (int32_t r = 0; r < rows; ++r) {
      const TokenRule rule{
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
// through at most 110 additions, in lanes, warps, blocks.
constexpr double kError = (3 * 30.5 + 4 + 110) * 0x1p-24;

// Which tokens may be drawn with a row's random number, when sums may err by kError.
class Reference {
 public:
  Reference(const float* logits, int64_t vocabulary, const TokenRule& rule)
      : weights_(static_cast<size_t>(vocabulary)), may_(static_cast<size_t>(vocabulary), kNever) {
    const double most = *std::max_element(logits, logits + vocabulary);
    double total      = 0;
    for (size_t i = 0; i < weights_.size(); ++i)
      total += weights_[i] = std::exp((logits[i] - most) / rule.temperature);
    cut(logits, rule.top_p, total);
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (may_[i] == kSurely) least_total_ += weights_[i];
      if (may_[i] != kNever) most_total_ += weights_[i];
    }
    u_ = uniform(rule.seed, rule.position);
  }

  // Is there a way to round by which this token is drawn? It is in, and the running sums before it and with
  // it are on the two sides of the target.
  bool accepts(int64_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(weights_.size()) || may_[static_cast<size_t>(id)] == kNever)
      return false;
    double before = 0, with = 0;
    for (size_t i = 0; i <= static_cast<size_t>(id); ++i) {
      if (may_[i] == kSurely && i < static_cast<size_t>(id)) before += weights_[i];
      if (may_[i] != kNever) with += weights_[i];
    }
    return before <= u_ * most_total_ * (1 + 2 * kError) && with >= u_ * least_total_ * (1 - 2 * kError);
  }

  // Without rounding.
  int64_t id() const {
    double left = u_ * least_total_;
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

  // The likeliest first, the lower id where two are equal: in as long as those before have less than top_p.
  void cut(const float* logits, double top_p, double total) {
    if (top_p >= 1) return std::fill(may_.begin(), may_.end(), kSurely);
    // Tokens lighter than this have together less than what top_p leaves over, and are not among them.
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
  double least_total_ = 0, most_total_ = 0, u_ = 0;
};

}  // namespace

// So spread that some tens of tokens have 0.9 of the probability, as is usual in text.
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
                "who sorts has 31 bits to count with, and 14 for rows in a key");
  const auto bytes = arena.input<uint8_t>({rows * static_cast<int64_t>(sizeof(TokenRule))},
                                          rules_of(static_cast<float>(at.real("top_p"))));
  rules            = {reinterpret_cast<const TokenRule*>(bytes.data()), {rows}};
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
        "What does it take to draw a token from 201088 logits cut to their top-p: with a sort, and with "
        "a search for the logit where the cut is?",
    .limit    = Limit::memory,
    .axes     = {{"rows", {64, 16, 1}}, {"vocabulary", {201088}}, {"top_p", {0.9}}},
    .check_at = {{"rows", {0, 1, 5}}, {"vocabulary", {4, 8, 1000, 32772}}, {"top_p", {0.3, 0.9, 1.0}}},
    .variants =
        {
            {.id         = "sorted",
             .launch     = on_gpu(sorted),
             .techniques = {},
             .idea       = "CUB's radix sort of all rows, running sums, two binary searches",
             .prediction = predict::nothing()},
            {.id         = "searched",
             .launch     = on_gpu(searched),
             .techniques = {"kernel_fusion", "clusters", "dsmem"},
             .idea       = "the engine's op: one kernel, a row in the shared memory of a cluster, no sort",
             .prediction = predict::ratio_at_least(6),
             .needs      = {machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
};
FATHOM_REGISTER(choice);

}  // namespace fathom::lab::token_choice
