// Token by token: kept with probability min(1, p / q); the first that is not is replaced by one from (p -
// q)+.
#include "drafted_texts.h"

namespace fathom::lab::rejection_sampling {

void chain(const DraftedTexts& p, Context&) {
  p.run([seed = static_cast<uint32_t>(p.seed(0))](const Laws& laws, uint32_t number) -> Step {
    Numbers numbers(seed, number);
    const Text draft = draft_chain(laws, kPlaces, numbers), text = verify_chain(laws, draft, numbers);
    return {text[0], text[0] == draft[0] && text.size() > 1, text.size()};
  });
}

}  // namespace fathom::lab::rejection_sampling
