// A tokenizer for models of random weights, so that they can be served and loaded like any other: their
// tokens are bytes and made-up words, with harmony's control tokens where a vocabulary has gpt-oss's size.
#pragma once

#include <cstdint>
#include <string>

namespace fathom::model {

// tokenizer.json for a vocabulary of at least 256: id b is byte b, and id i above is " w<i>", which no text
// is encoded to.
std::string made_up_tokenizer(int64_t vocab_size);

}  // namespace fathom::model
