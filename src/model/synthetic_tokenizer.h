// A tokenizer for synthetic checkpoints, so that they can be served like any other. Tokens are bytes and
// made-up words; a vocabulary of gpt-oss's size also has harmony's control tokens.
#pragma once

#include <cstdint>
#include <string>

namespace fathom::model {

// The text of tokenizer.json for a vocabulary of at least 256: ids below 256 are bytes; id i above is "
// w<i>", which encode() never yields.
std::string synthetic_tokenizer_json(int64_t vocab_size);

}  // namespace fathom::model
