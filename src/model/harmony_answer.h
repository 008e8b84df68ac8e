// An answer as the model is to write it, to learn it or to ask how likely it is.
#pragma once

#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/harmony.h"
#include "model/tokenizer.h"

namespace fathom::model {

// The tokens that follow a prompt of render_harmony(): `thinking` in the analysis channel, unless it is
// empty, and `answer` in the final one, up to the token that ends it.
Result<std::vector<TokenId>> harmony_answer(const Tokenizer& tokenizer, const HarmonyTokens& control,
                                            std::string_view thinking, std::string_view answer);

}  // namespace fathom::model
