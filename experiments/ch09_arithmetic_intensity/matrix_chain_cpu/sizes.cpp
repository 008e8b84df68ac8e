#include <cstdio>

#include "chain.h"

namespace fathom::lab::matrix_chain_cpu {

Sizes::Sizes(const std::string& text) {
  char rest       = 0;
  const int found = std::sscanf(text.c_str(), "%ldx%ldx%ldx%ld%c", &p, &q, &r, &s, &rest);
  FATHOM_EXPECT(found == 4 && p >= 0 && q >= 0 && r >= 0 && s >= 0,
                "a chain is the four extents of three matrices, 10x1000x5x500, and not " + text);
}

}  // namespace fathom::lab::matrix_chain_cpu
