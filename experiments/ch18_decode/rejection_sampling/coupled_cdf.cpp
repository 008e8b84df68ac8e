// The engine's draw: target and drafter find the same number in their own sums of probabilities. Where these
// sums are shifted by what comes before, close laws draw different tokens.
#include "coupled_draw.h"
#include "drafted_texts.h"

namespace fathom::lab::rejection_sampling {

void coupled_cdf(const DraftedTexts& p, Context&) {
  p.run([seed = static_cast<uint32_t>(p.seed(0))](const Laws& laws, uint32_t number) -> Step {
    Step step{.first = 0, .accepted = false, .tokens = 0};
    for (size_t place = 0; place <= kPlaces; ++place) {
      const auto position = static_cast<uint32_t>((kPlaces + 1) * number + place);
      const int token     = draw_by_inverse_cdf(laws.p[place], seed, position);
      const bool right    = place < kPlaces && draw_by_inverse_cdf(laws.q[place], seed, position) == token;
      if (place == 0) step.first = token, step.accepted = right;
      ++step.tokens;
      if (!right) break;
    }
    return step;
  });
}

}  // namespace fathom::lab::rejection_sampling
