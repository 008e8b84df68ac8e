// The problem: a target and a drafter whose logits are the target's and noise, kPlaces tokens drafted and
// verified in one step, many times with other random numbers. The answer is how often each token comes first;
// whatever the scheme, that is the target's law.
#pragma once

#include <functional>
#include <vector>

#include "lab/problem.h"
#include "verification.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::rejection_sampling {

inline constexpr int64_t kContexts = 8, kVocabulary = 64;
inline constexpr size_t kPlaces = 4;  // tokens of a draft

// The laws of the places after a context. A place's law does not depend on the tokens before it; that those
// of a model do is the subject of verification_test.cpp.
struct Laws {
  std::vector<Law> p, q;  // of kPlaces + 1 places, and of kPlaces

  const Law& target(const Text& text) const { return p[text.size()]; }
  const Law& drafter(const Text& text) const { return q[text.size()]; }
};

// What a step did: the token it put first, whether that was the first drafted one, and how many it yields.
struct Step {
  int first;
  bool accepted;
  size_t tokens;
};

struct DraftedTexts {
  int64_t trials;
  double apart;                 // the noise's deviation; the logits' is 2
  View<const float, 3> logits;  // [kContexts, kPlaces + 1, V]
  View<const float, 3> noise;   // [kContexts, kPlaces, V]
  View<const int32_t, 1> seed;  // [1]
  View<float, 2> first;         // [kContexts, V], the answer: shares of the trials
  View<float, 2> steps;         // [kContexts, 2]: share with the first draft accepted, tokens a step

  DraftedTexts(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t context, int64_t token) const;
  void check(Checker& checker) const;
  // first_accepted and tokens_per_step; the total variation between the laws of the first place, and the
  // acceptance there that theory gives for rejection and for both coupled draws.
  void metrics(CallMetrics& metrics) const;

  Laws laws(int64_t context) const;
  // Makes all steps: `step` is told its number, which no two trials and contexts share.
  void run(const std::function<Step(const Laws&, uint32_t number)>& step) const;
};

void chain(const DraftedTexts& p, Context& context);
void block(const DraftedTexts& p, Context& context);
void siblings(const DraftedTexts& p, Context& context);
void coupled_cdf(const DraftedTexts& p, Context& context);
void coupled_gumbel(const DraftedTexts& p, Context& context);

// Random numbers of one step; each is used once.
class Numbers final : public Chance {
 public:
  Numbers(uint32_t seed, uint32_t step) : seed_(seed), step_(step) {}
  bool happens(double probability) override;
  int draw(std::span<const double> weights) override;

 private:
  uint32_t seed_, step_, used_ = 0;
};

}  // namespace fathom::lab::rejection_sampling
