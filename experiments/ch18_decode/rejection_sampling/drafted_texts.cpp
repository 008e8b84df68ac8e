#include "drafted_texts.h"

#include <cmath>
#include <numeric>

#include "coupled_draw.h"
#include "lab/metric.h"

namespace fathom::lab::rejection_sampling {
namespace {

Law softmax(const float* logits, const float* noise, double apart) {
  Law law(static_cast<size_t>(kVocabulary));
  double sum = 0;
  for (size_t v = 0; v < law.size(); ++v)
    sum += law[v] =
        std::exp(static_cast<double>(logits[v]) + (noise ? apart * static_cast<double>(noise[v]) : 0));
  for (double& each : law) each /= sum;
  return law;
}

}  // namespace

DraftedTexts::DraftedTexts(const Point& at, Arena& arena)
    : trials(at["trials"]),
      apart(at.real("apart")),
      logits(arena.input<float>({kContexts, int64_t{kPlaces} + 1, kVocabulary}, Normal{0, 2})),
      noise(arena.input<float>({kContexts, int64_t{kPlaces}, kVocabulary}, Normal{0, 1})),
      seed(arena.input<int32_t>({1}, Uniform{0, 1 << 30})),
      first(arena.output<float>({kContexts, kVocabulary})),
      steps(arena.output<float>({kContexts, 2})) {}

Cost DraftedTexts::cost() const {
  return {.read = logits.bytes() + noise.bytes(), .written = first.bytes() + steps.bytes()};
}

Laws DraftedTexts::laws(int64_t context) const {
  Laws laws;
  for (int64_t place = 0; place <= int64_t{kPlaces}; ++place) {
    laws.p.push_back(softmax(&logits(context, place, 0), nullptr, 0));
    if (place < int64_t{kPlaces})
      laws.q.push_back(softmax(&logits(context, place, 0), &noise(context, place, 0), apart));
  }
  return laws;
}

void DraftedTexts::run(const std::function<Step(const Laws&, uint32_t)>& step) const {
  const double n = static_cast<double>(std::max<int64_t>(trials, 1));
  for (int64_t context = 0; context < kContexts; ++context) {
    const Laws of = laws(context);
    std::vector<int64_t> count(static_cast<size_t>(kVocabulary));
    int64_t accepted = 0, tokens = 0;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const Step made = step(of, static_cast<uint32_t>(context * trials + trial));
      ++count[static_cast<size_t>(made.first)];
      accepted += made.accepted;
      tokens += static_cast<int64_t>(made.tokens);
    }
    for (int64_t v = 0; v < kVocabulary; ++v)
      first(context, v) = static_cast<float>(static_cast<double>(count[static_cast<size_t>(v)]) / n);
    steps(context, 0) = static_cast<float>(static_cast<double>(accepted) / n);
    steps(context, 1) = static_cast<float>(static_cast<double>(tokens) / n);
  }
}

// A share of n trials is within six deviations of its probability; 6 / n more for tokens that hardly come.
Sum DraftedTexts::expected(int64_t context, int64_t token) const {
  if (trials == 0) return {};
  const double p = laws(context).p[0][static_cast<size_t>(token)], n = static_cast<double>(trials);
  const double tolerance = 6 * std::sqrt(p * (1 - p) / n) + 6 / n;
  return {.value = p, .magnitude = tolerance / (4 * traits(DType::fp32).round_off)};
}

void DraftedTexts::check(Checker& checker) const {
  checker.values("first", first, [&](int64_t context, int64_t token) { return expected(context, token); });
}

void DraftedTexts::metrics(CallMetrics& metrics) const {
  if (trials == 0) return;
  double accepted = 0, tokens = 0, rejection = 0, cdf = 0, gumbel = 0;
  for (int64_t context = 0; context < kContexts; ++context) {
    const Laws of = laws(context);
    accepted += static_cast<double>(steps(context, 0)) / kContexts;
    tokens += static_cast<double>(steps(context, 1)) / kContexts;
    rejection += accepted_by_rejection(of.p[0], of.q[0]) / kContexts;
    cdf += same_by_inverse_cdf(of.p[0], of.q[0]) / kContexts;
    gumbel += same_by_gumbel_max(of.p[0], of.q[0]) / kContexts;
  }
  metrics["first_accepted"]   = {accepted, "higher"};
  metrics["tokens_per_step"]  = {tokens, "higher"};
  metrics["total_variation"]  = {1 - rejection, "lower"};
  metrics["theory_rejection"] = {rejection, "higher"};
  metrics["theory_cdf"]       = {cdf, "higher"};
  metrics["theory_gumbel"]    = {gumbel, "higher"};
}

bool Numbers::happens(double probability) { return uniform(seed_, step_, used_++) < probability; }

int Numbers::draw(std::span<const double> weights) {
  double left = uniform(seed_, step_, used_++) * std::accumulate(weights.begin(), weights.end(), 0.0);
  int last    = 0;
  for (size_t v = 0; v < weights.size(); ++v) {
    if (weights[v] == 0) continue;
    last = static_cast<int>(v);
    if ((left -= weights[v]) < 0) break;
  }
  return last;
}

}  // namespace fathom::lab::rejection_sampling
