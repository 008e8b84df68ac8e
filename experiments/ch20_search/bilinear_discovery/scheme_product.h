// A product of square matrices by a 2 x 2 scheme of their blocks, one level or several.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "search/bilinear.h"
#include "sgemm.h"

namespace fathom::lab::bilinear_discovery {

// A square block: its corner and the distance between its rows.
template <class T>
struct Block {
  T* at;
  int64_t row;
  // Block q of four with side h.
  Block quarter(int q, int64_t h) const { return {at + q / 2 * h * row + q % 2 * h, row}; }
};

class SchemeProduct {
 public:
  // `scheme`: 2 x 2 times 2 x 2, coefficients -1, 0 and 1; verified here.
  SchemeProduct(const search::BilinearScheme& scheme, int levels);

  // c = a b, all of side n. An odd last row and column of a level are multiplied apart. `blocks`: 15/16 n^2
  // floats or more for two levels.
  void operator()(int64_t n, Block<const float> a, Block<const float> b, Block<float> c,
                  float* blocks) const {
    multiply(levels_, n, 1, a, b, false, c, blocks);
  }

 private:
  struct Signed {
    int block;
    float sign;
  };
  struct Target {
    int block;
    float sign;
    bool first;  // no term before it reaches this block of c
  };
  struct Term {
    std::vector<Signed> a, b;
    std::vector<Target> c;
  };

  // c = alpha a b [+ c], alpha -1 or 1
  void multiply(int levels, int64_t n, float alpha, Block<const float> a, Block<const float> b, bool add,
                Block<float> c, float* blocks) const;
  // The sum of blocks of `of`, in `to` unless it is a single one; `sign` is what it is to be multiplied by.
  static Block<const float> sum(const std::vector<Signed>& blocks, Block<const float> of, int64_t h,
                                float* to, float& sign);

  Sgemm sgemm_;
  int levels_;
  std::vector<Term> terms_;
};

// Walks in the flip graph until several have found seven products; of these the scheme with the fewest
// additions and the least growth of errors, Strassen's 12.
search::BilinearScheme discover_seven_products();

}  // namespace fathom::lab::bilinear_discovery
