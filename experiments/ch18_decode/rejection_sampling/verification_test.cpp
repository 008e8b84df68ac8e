// The law of what verification yields, by enumeration: every draft and every decision, with its probability.
// A step yields between one and k + 1 tokens; the target goes on until there are k + 1. The law of these is
// the target's, whatever the drafter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/rng.h"
#include "coupled_draw.h"
#include "verification.h"

namespace fathom::lab::rejection_sampling {
namespace {

// Laws that depend on the text so far, as a model's do.
class Tables {
 public:
  Tables(int vocabulary, uint64_t seed) : V(vocabulary), seed_(seed) {}
  virtual ~Tables() = default;
  const Law& target(const Text& text) const { return of(text, 0); }
  const Law& drafter(const Text& text) const { return of(text, 1); }
  const int V;

 protected:
  virtual void make(Law& law, const Text&, int which, uint64_t seed) const {
    fill_uniform(law.data(), V, seed + static_cast<uint64_t>(which), 0.05, 1);
  }

 private:
  const Law& of(const Text& text, int which) const {
    Law& law = laws_[which][text];
    if (!law.empty()) return law;
    law.resize(static_cast<size_t>(V));
    uint64_t seed = seed_;
    for (const int token : text) seed = 1000003 * seed + static_cast<uint64_t>(token) + 17;
    make(law, text, which, 2 * seed);
    double sum = 0;
    for (const double w : law) sum += w;
    for (double& w : law) w /= sum;
    return law;
  }
  uint64_t seed_;
  mutable std::map<Text, Law> laws_[2];
};

// One certain token each, the same or another by the text; and laws that share no token.
class OneHot final : public Tables {
 public:
  using Tables::Tables;
  void make(Law& law, const Text& text, int which, uint64_t) const override {
    for (size_t v = 0; v < law.size(); ++v)
      law[v] = v == (text.size() % 2 == 0 ? 0 : static_cast<size_t>(which)) % law.size() ? 1 : 0;
  }
};
class Disjoint final : public Tables {
 public:
  using Tables::Tables;
  void make(Law& law, const Text&, int which, uint64_t seed) const override {
    fill_uniform(law.data(), V, seed, 0.1, 1);
    for (size_t v = 0; v < law.size(); ++v)
      if (static_cast<int>(v % 2) == which) law[v] = 0;
  }
};

// Takes one path through the decisions; next() goes on to another until all were taken.
class Paths final : public Chance {
 public:
  bool happens(double probability) override {
    const double both[] = {1 - probability, probability};
    return draw(both) == 1;
  }
  int draw(std::span<const double> weights) override {
    double sum = 0;
    for (const double w : weights) sum += w;
    if (at_ == taken_.size()) taken_.push_back({0, static_cast<int>(weights.size())});
    const int choice = taken_[at_++].first;
    probability_ *= weights[static_cast<size_t>(choice)] / sum;
    return choice;
  }
  double probability() const { return probability_; }
  bool next() {
    while (!taken_.empty() && taken_.back().first + 1 == taken_.back().second) taken_.pop_back();
    at_ = 0, probability_ = 1;
    if (taken_.empty()) return false;
    ++taken_.back().first;
    return true;
  }

 private:
  std::vector<std::pair<int, int>> taken_;  // choice and number of choices
  size_t at_          = 0;
  double probability_ = 1;
};

using Verify = std::function<Text(const Tables&, size_t length, Chance&)>;  // drafts and verifies

// The largest difference between the law of the first `length` + 1 tokens and the target's.
double law_error(const Tables& models, size_t length, const Verify& verify) {
  std::map<Text, double> law;
  Paths paths;
  do {
    Text text = verify(models, length, paths);
    if (paths.probability() == 0) continue;  // decisions that never fall so
    while (text.size() < length + 1) text.push_back(paths.draw(models.target(text)));
    text.resize(length + 1);
    law[text] += paths.probability();
  } while (paths.next());
  double total = 0, worst = 0;
  for (const auto& [text, probability] : law) {
    double want = 1;
    for (size_t i = 0; i < text.size(); ++i)
      want *= models.target(
          Text(text.begin(), text.begin() + static_cast<int64_t>(i)))[static_cast<size_t>(text[i])];
    worst = std::max(worst, std::abs(probability - want));
    total += want;
  }
  return std::max(worst, std::abs(total - 1));  // a text that never came would be missing from the total
}

Text chain(const Tables& models, size_t length, Chance& chance) {
  return verify_chain(models, draft_chain(models, length, chance), chance);
}
Text block(const Tables& models, size_t length, Chance& chance) {
  return verify_block(models, draft_chain(models, length, chance), chance);
}
Text siblings(const Tables& models, size_t length, Chance& chance) {
  return verify_siblings(models, draft_siblings(models, length, chance), chance);
}

void for_all_models(const std::function<void(const Tables&, size_t length)>& f) {
  for (const int V : {1, 2, 3, 4})
    for (const size_t length : {0u, 1u, 2u, 3u}) {
      if (V == 4 && length == 3) continue;  // 4^7 texts and their decisions: three tokens show the same
      SCOPED_TRACE(testing::Message() << V << " tokens, " << length << " drafted");
      for (const uint64_t seed : {1u, 2u}) f(Tables(V, seed), length);
      f(OneHot(V, 0), length);
      if (V % 2 == 0) f(Disjoint(V, 3), length);
    }
}

TEST(Verification, EverySchemeYieldsTheTargetsLaw) {
  for_all_models([](const Tables& models, size_t length) {
    EXPECT_LT(law_error(models, length, chain), 1e-12);
    EXPECT_LT(law_error(models, length, siblings), 1e-12);
    EXPECT_LT(law_error(models, length, block), 1e-12);
  });
}

double tokens_a_step(const Tables& models, size_t length, const Verify& verify) {
  double sum = 0;
  Paths paths;
  do {
    const Text text = verify(models, length, paths);
    sum += paths.probability() * static_cast<double>(text.size());
  } while (paths.next());
  return sum;
}

// Theorem 1 of the block paper; for one drafted token they are the same.
TEST(Verification, ABlockKeepsAtLeastAsManyAsAChain) {
  double most = 0;
  for (const uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    const Tables models(3, seed);
    EXPECT_NEAR(tokens_a_step(models, 1, block), tokens_a_step(models, 1, chain), 1e-12);
    const double more = tokens_a_step(models, 3, block) - tokens_a_step(models, 3, chain);
    EXPECT_GT(more, -1e-12);
    most = std::max(most, more);
  }
  EXPECT_GT(most, 0.001);
}

TEST(Verification, AChainKeepsADraftWithOneMinusTheTotalVariation) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const Tables models(4, seed);
    EXPECT_NEAR(tokens_a_step(models, 1, chain) - 1,
                accepted_by_rejection(models.target({}), models.drafter({})), 1e-12);
  }
}

// Mistakes that have been made. Each must be seen by the enumeration above.
Text resampled_from_p(const Tables& models, size_t length, Chance& chance) {
  Text text;
  for (const int token : draft_chain(models, length, chance)) {
    const Law &p = models.target(text), &q = models.drafter(text);
    if (!chance.happens(std::min(1.0, p[static_cast<size_t>(token)] / q[static_cast<size_t>(token)]))) {
      text.push_back(chance.draw(p));
      return text;
    }
    text.push_back(token);
  }
  text.push_back(chance.draw(models.target(text)));
  return text;
}
Text prefix_dropped(const Tables& models, size_t length, Chance& chance) {
  const Text text = chain(models, length, chance);
  return text.size() == length + 1 ? text : Text{text.back()};
}
// The last token is drawn from the drafter's law where all drafts were right.
Text bonus_from_the_drafter(const Tables& models, size_t length, Chance& chance) {
  Text text = chain(models, length, chance);
  if (text.size() == length + 1) {
    text.pop_back();
    text.push_back(chance.draw(models.drafter(text)));
  }
  return text;
}
// The drafter drew at another temperature than the ratio is computed with.
Text q_before_temperature(const Tables& models, size_t length, Chance& chance) {
  Text draft;
  while (draft.size() < length) {
    Law hot = models.drafter(draft);
    for (double& w : hot) w = std::sqrt(w);
    draft.push_back(chance.draw(hot));
  }
  return verify_chain(models, draft, chance);
}
// Top-k of one cuts q after the draft was drawn from all of it.
Text filtered_after_the_draft(const Tables& models, size_t length, Chance& chance) {
  struct Cut {
    const Tables& models;
    mutable std::map<Text, Law> laws;
    const Law& target(const Text& text) const { return models.target(text); }
    const Law& drafter(const Text& text) const {
      Law& law = laws[text];
      if (law.empty()) {
        law             = models.drafter(text);
        const auto best = std::max_element(law.begin(), law.end());
        for (auto w = law.begin(); w != law.end(); ++w) *w = w == best ? 1 : 1e-9;
      }
      return law;
    }
  };
  const Cut cut{models, {}};
  return verify_chain(cut, draft_chain(models, length, chance), chance);
}
// One random number decides about two drafts: intervals of [0, 1] between the two thresholds.
Text one_number_twice(const Tables& models, size_t length, Chance& chance) {
  const Text draft = draft_chain(models, length, chance);
  if (length != 2) return verify_chain(models, draft, chance);
  const auto ratio = [&](const Text& text, int token) {
    const auto v = static_cast<size_t>(token);
    return std::min(1.0, models.target(text)[v] / models.drafter(text)[v]);
  };
  const double first = ratio({}, draft[0]), second = ratio({draft[0]}, draft[1]);
  const double low = std::min(first, second), high = std::max(first, second);
  const double intervals[] = {low, high - low, 1 - high};
  const int u              = chance.draw(intervals);
  if (u == 2 || (u == 1 && first == low))
    return {draw_rest(1, models.target({}), models.drafter({}), chance)};
  if (u == 1) return {draft[0], draw_rest(1, models.target({draft[0]}), models.drafter({draft[0]}), chance)};
  return {draft[0], draft[1], chance.draw(models.target(draft))};
}
// The rest after the first candidate is drawn with the drafter's law as it was.
Text siblings_with_the_old_q(const Tables& models, size_t length, Chance& chance) {
  Law p       = models.target({});
  const Law q = models.drafter({});
  Law weights;
  for (const int token : draft_siblings(models, length, chance)) {
    const auto v = static_cast<size_t>(token);
    if (chance.happens(std::min(1.0, p[v] / q[v]))) return {token, chance.draw(models.target({token}))};
    const double left = rest(1, p, q, weights);
    if (left <= 0) break;
    for (size_t i = 0; i < p.size(); ++i) p[i] = weights[i] / left;
  }
  return {chance.draw(p)};
}

TEST(Verification, TheEnumerationSeesWhatIsWrong) {
  const Tables models(3, 1);
  EXPECT_LT(law_error(models, 2, chain), 1e-12);
  EXPECT_GT(law_error(models, 2, resampled_from_p), 0.003);
  EXPECT_GT(law_error(models, 2, prefix_dropped), 0.003);
  EXPECT_GT(law_error(models, 2, bonus_from_the_drafter), 0.003);
  EXPECT_GT(law_error(models, 2, q_before_temperature), 0.003);
  EXPECT_GT(law_error(models, 2, filtered_after_the_draft), 0.003);
  EXPECT_GT(law_error(models, 2, one_number_twice), 0.001);
  EXPECT_GT(law_error(models, 3, siblings_with_the_old_q), 0.001);
}

// Pearson's statistic of `trials` draws.
template <class Draw>
double chi_square(const Law& law, uint32_t trials, Draw draw) {
  std::vector<double> count(law.size());
  for (uint32_t t = 0; t < trials; ++t) ++count[static_cast<size_t>(draw(t))];
  double sum = 0;
  for (size_t v = 0; v < law.size(); ++v) {
    const double want = law[v] * trials;
    sum += (count[v] - want) * (count[v] - want) / want;
  }
  return sum;
}

TEST(CoupledDraw, DrawsByTheLaw) {
  const Law law{0.5, 0.3, 0.15, 0.05};
  constexpr double kOneInAMillion = 30.66;  // chi-square with three degrees of freedom
  EXPECT_LT(chi_square(law, 100000, [&](uint32_t t) { return draw_by_inverse_cdf(law, 7, t); }),
            kOneInAMillion);
  EXPECT_LT(chi_square(law, 100000, [&](uint32_t t) { return draw_by_gumbel_max(law, 7, t); }),
            kOneInAMillion);
  // The same numbers for two tokens, and they are not drawn by the law.
  EXPECT_GT(chi_square(law, 100000,
                       [&](uint32_t t) {
                         const double u = uniform(7, t, 1);
                         const double g = -std::log(-std::log(u));
                         double best    = -INFINITY;
                         int token      = 0;
                         for (size_t v = 0; v < law.size(); ++v)
                           if (std::log(law[v]) + g > best)
                             best = std::log(law[v]) + g, token = static_cast<int>(v);
                         return token;
                       }),
            kOneInAMillion);
}

TEST(CoupledDraw, DrawsTheSameAsOftenAsTheorySays) {
  const Law p{0.5, 0.3, 0.15, 0.05}, q{0.25, 0.35, 0.3, 0.1};
  constexpr int kTrials = 100000;
  int cdf = 0, gumbel = 0;
  for (uint32_t t = 0; t < kTrials; ++t) {
    cdf += draw_by_inverse_cdf(p, 3, t) == draw_by_inverse_cdf(q, 3, t);
    gumbel += draw_by_gumbel_max(p, 3, t) == draw_by_gumbel_max(q, 3, t);
  }
  EXPECT_NEAR(static_cast<double>(cdf) / kTrials, same_by_inverse_cdf(p, q), 0.01);
  EXPECT_NEAR(static_cast<double>(gumbel) / kTrials, same_by_gumbel_max(p, q), 0.01);
  const double overlap = accepted_by_rejection(p, q);
  EXPECT_LT(same_by_gumbel_max(p, q), overlap);
  EXPECT_GE(same_by_gumbel_max(p, q), overlap / (2 - overlap));  // (1 - TV) / (1 + TV)
  EXPECT_NEAR(same_by_gumbel_max(p, p), 1, 1e-12);
  EXPECT_NEAR(same_by_inverse_cdf(p, p), 1, 1e-12);
}

}  // namespace
}  // namespace fathom::lab::rejection_sampling
