// Target and drafter add the same Gumbel numbers to their logits; the largest sum is the token.
#include "coupled_draw.h"
#include "drafted_texts.h"

namespace fathom::lab::rejection_sampling {

void coupled_gumbel(const DraftedTexts& p, Context&) {
  p.run([seed = static_cast<uint32_t>(p.seed(0))](const Laws& laws, uint32_t number) -> Step {
    Step step{.first = 0, .accepted = false, .tokens = 0};
    for (size_t place = 0; place <= kPlaces; ++place) {
      const auto position = static_cast<uint32_t>((kPlaces + 1) * number + place);
      const int token     = draw_by_gumbel_max(laws.p[place], seed, position);
      const bool right    = place < kPlaces && draw_by_gumbel_max(laws.q[place], seed, position) == token;
      if (place == 0) step.first = token, step.accepted = right;
      ++step.tokens;
      if (!right) break;
    }
    return step;
  });
}

}  // namespace fathom::lab::rejection_sampling
