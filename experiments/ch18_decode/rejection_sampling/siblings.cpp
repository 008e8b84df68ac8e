// As many drafted tokens, all for the first place: a tree of depth one. One of them is the more likely right,
// and a step yields two tokens at most.
#include <algorithm>

#include "drafted_texts.h"

namespace fathom::lab::rejection_sampling {

void siblings(const DraftedTexts& p, Context&) {
  p.run([seed = static_cast<uint32_t>(p.seed(0))](const Laws& laws, uint32_t number) -> Step {
    Numbers numbers(seed, number);
    const Text candidates = draft_siblings(laws, kPlaces, numbers),
               text       = verify_siblings(laws, candidates, numbers);
    return {text[0], text.size() > 1, text.size()};
  });
}

}  // namespace fathom::lab::rejection_sampling
