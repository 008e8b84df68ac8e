// Encodes and decodes with Fathom's tokenizer, for tests/tokenizer_test.py.
//   tokenizer_encode tokenizer.json < texts
// Reads one text a line, in hexadecimal. Writes one line for each, with tabs between: ids without added
// tokens, ids with added tokens recognised, and the decoded bytes of the latter in hexadecimal.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "model/tokenizer.h"

using fathom::model::AddedTokens;

int main(int argc, char** argv) {
  const auto tokenizer = fathom::model::Tokenizer::load(argc == 2 ? argv[1] : "");
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::string text;
    for (size_t i = 0; i + 1 < line.size(); i += 2)
      text += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    const auto plain = tokenizer->encode(text), added = tokenizer->encode(text, AddedTokens::recognised);
    if (!plain || !added) {
      fmt::print(stderr, "{}\n", (plain ? added : plain).error().message);
      return 1;
    }
    for (const auto* ids : {&*plain, &*added}) {
      for (const fathom::model::TokenId id : *ids) fmt::print("{} ", id);
      fmt::print("\t");
    }
    for (const unsigned char byte : tokenizer->decode(*added)) fmt::print("{:02x}", byte);
    fmt::print("\n");
  }
}
