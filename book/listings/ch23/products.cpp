// The product of chapter 23 with each of its semirings: tests/book_listings_test.py reads the inner loops.
#include "book/semiring_model.h"

using namespace fathom::book;

#define PRODUCT(name, semiring)                                                                      \
  void name(int64_t m, int64_t depth, int64_t n, const semiring::Value* a, const semiring::Value* b, \
            semiring::Value* out) {                                                                  \
    product<semiring>(m, depth, n, a, b, out);                                                       \
  }

PRODUCT(plus_times, PlusTimes)
PRODUCT(min_plus, MinPlus)
PRODUCT(max_plus, MaxPlus)
PRODUCT(max_times, MaxTimes)
PRODUCT(max_min, MaxMin)
PRODUCT(or_and, OrAnd)
