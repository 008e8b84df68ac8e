#include "serve/response_fixture.h"

namespace fathom::serve {

const model::Tokenizer& tiny_tokenizer() {
  static const auto kTokenizer =
      model::Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json").value();
  return kTokenizer;
}

}  // namespace fathom::serve
