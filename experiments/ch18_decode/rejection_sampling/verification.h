// Which of the drafted tokens does a step keep, so that the text has the target's law? Four answers, as plain
// code over laws (vectors of V probabilities): the same functions serve the experiment and the enumeration
// that proves their law (verification_test.cpp). The engine draws tokens another way, coupled_draw.h.
//
//   chain     Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding", ICML
//   2023 block     Sun, Mendlovic, Leviathan, Aharoni, Beirami, Ro, Suresh, "Block Verification Accelerates
//             Speculative Decoding", 2024 (arXiv 2403.10444)
//   siblings  several candidates for one place, drawn without replacement (as in SpecInfer and EAGLE)
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace fathom::lab::rejection_sampling {

using Law  = std::vector<double>;  // of the next token
using Text = std::vector<int>;

// Where decisions come from: random numbers, or an enumeration of all of them.
class Chance {
 public:
  virtual ~Chance()                                 = default;
  virtual bool happens(double probability)          = 0;
  virtual int draw(std::span<const double> weights) = 0;  // not all 0; they need not sum to 1
};

// weights(v) = max(scale p(v) - q(v), 0). Returns their sum.
inline double rest(double scale, std::span<const double> p, std::span<const double> q, Law& weights) {
  weights.resize(p.size());
  double sum = 0;
  for (size_t v = 0; v < p.size(); ++v) sum += weights[v] = std::max(scale * p[v] - q[v], 0.0);
  return sum;
}

// One token of p in place of a rejected one. The rest is empty only where rounding rejected a token that p
// has as often as q.
inline int draw_rest(double scale, std::span<const double> p, std::span<const double> q, Chance& chance) {
  Law weights;
  return rest(scale, p, q, weights) > 0 ? chance.draw(weights) : chance.draw(p);
}

// The models: target(text) and drafter(text) are the laws of the token after the context and `text`; drafts
// were drawn from the drafter's, with its temperature and filters applied. All return the tokens that the
// step yields: a prefix of the draft and one token more.

template <class Models>
Text verify_chain(const Models& models, const Text& draft, Chance& chance) {
  Text text;
  for (const int token : draft) {
    const Law &p = models.target(text), &q = models.drafter(text);
    const auto v = static_cast<size_t>(token);
    if (!chance.happens(std::min(1.0, p[v] / q[v]))) {
      text.push_back(draw_rest(1, p, q, chance));
      return text;
    }
    text.push_back(token);
  }
  text.push_back(chance.draw(models.target(text)));
  return text;
}

// Judges all prefixes and keeps the longest that passes, so that a token which the target likes less may be
// kept for the sake of those after it.
template <class Models>
Text verify_block(const Models& models, const Text& draft, Chance& chance) {
  Text prefix, kept;
  Law weights;
  double likely = 1, likely_of_kept = 1;  // P_i
  for (size_t i = 1; i <= draft.size(); ++i) {
    const auto v = static_cast<size_t>(draft[i - 1]);
    likely       = std::min(1.0, likely * models.target(prefix)[v] / models.drafter(prefix)[v]);
    prefix.push_back(draft[i - 1]);
    double passes = likely;
    if (i < draft.size()) {
      const double m = rest(likely, models.target(prefix), models.drafter(prefix), weights);
      passes         = m > 0 ? m / (m + 1 - likely) : 0;
    }
    if (!chance.happens(passes)) continue;
    kept           = prefix;
    likely_of_kept = likely;
  }
  const Law& p = models.target(kept);
  kept.push_back(kept.size() == draft.size() ? chance.draw(p)
                                             : draw_rest(likely_of_kept, p, models.drafter(kept), chance));
  return kept;
}

// `candidates`: for the next place, all different, drawn one after the other from what was left of the
// drafter's law. Yields the accepted one and a token after it, or one token in their place.
template <class Models>
Text verify_siblings(const Models& models, const Text& candidates, Chance& chance) {
  Law p = models.target(Text{}), q = models.drafter(Text{}), weights;
  for (const int token : candidates) {
    const auto v = static_cast<size_t>(token);
    if (chance.happens(std::min(1.0, p[v] / q[v]))) return {token, chance.draw(models.target(Text{token}))};
    const double left = rest(1, p, q, weights);
    if (left <= 0) break;
    for (size_t i = 0; i < p.size(); ++i) p[i] = weights[i] / left;
    const double others = 1 - q[v];
    if (others <= 0) break;
    q[v] = 0;
    for (double& each : q) each /= others;
  }
  return {chance.draw(p)};
}

// What the drafter draws.
template <class Models>
Text draft_chain(const Models& models, size_t length, Chance& chance) {
  Text text;
  while (text.size() < length) text.push_back(chance.draw(models.drafter(text)));
  return text;
}
template <class Models>
Text draft_siblings(const Models& models, size_t count, Chance& chance) {
  Law q = models.drafter(Text{});
  Text candidates;
  while (candidates.size() < count && std::any_of(q.begin(), q.end(), [](double w) { return w > 0; })) {
    candidates.push_back(chance.draw(q));
    q[static_cast<size_t>(candidates.back())] = 0;
  }
  return candidates;
}

}  // namespace fathom::lab::rejection_sampling
