// All prefixes of the draft are judged, each by the product of its ratios, and the longest that passes is
// kept.
#include "drafted_texts.h"

namespace fathom::lab::rejection_sampling {

void block(const DraftedTexts& p, Context&) {
  p.run([seed = static_cast<uint32_t>(p.seed(0))](const Laws& laws, uint32_t number) -> Step {
    Numbers numbers(seed, number);
    const Text draft = draft_chain(laws, kPlaces, numbers), text = verify_block(laws, draft, numbers);
    return {text[0], text[0] == draft[0] && text.size() > 1, text.size()};
  });
}

}  // namespace fathom::lab::rejection_sampling
