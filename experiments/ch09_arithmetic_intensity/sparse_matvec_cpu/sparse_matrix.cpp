#include "sparse_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/splitmix64.h"

namespace fathom::lab::sparse_matvec_cpu {
namespace {

using Bits    = View<const uint8_t, 2>;
using Indices = View<const int32_t, 1>;

int64_t whole_blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

int64_t cell_of(const std::string& pattern) {
  if (pattern == "scattered") return 1;
  FATHOM_EXPECT(pattern == "blocks", "pattern is scattered or blocks, and not " + pattern);
  return kBlock;
}

int64_t cells_of(int64_t n, int64_t cell, double density) {
  FATHOM_EXPECT(density >= 0 && density <= 1, "density is a share, from 0 to 1");
  const int64_t side  = cell == 1 ? n : whole_blocks(n);
  const int64_t cells = std::llround(density * static_cast<double>(side * side));
  FATHOM_EXPECT(cells * cell * cell <= std::numeric_limits<int32_t>::max(),
                "the nonzeros are numbered by int32: take a smaller n or density");
  return cells;
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t bound) {
    const uint64_t bits = splitmix64(seed_ + kSplitmix64Increment * ++count_);
    return static_cast<int64_t>((bits >> 32) * static_cast<uint64_t>(bound) >> 32);
  }

 private:
  uint64_t seed_, count_ = 0;
};

// Sets the bits of cells drawn at random, none twice: first how many each row has, then their columns.
void fill_bits(int64_t n, int64_t cell, int64_t cells, uint8_t* bits, uint64_t seed) {
  const int64_t bytes = whole_blocks(n), side = cell == 1 ? n : bytes;
  std::fill_n(bits, n * bytes, uint8_t{0});
  Draws draws(seed);
  std::vector<int64_t> of_row(static_cast<size_t>(side));
  for (int64_t drawn = 0; drawn < cells;) {
    int64_t& count = of_row[static_cast<size_t>(draws.below(side))];
    if (count == side) continue;
    ++count;
    ++drawn;
  }
  for (int64_t i = 0; i < side; ++i)
    for (int64_t found = 0; found < of_row[static_cast<size_t>(i)];) {
      const int64_t j      = draws.below(side);
      const int64_t beyond = std::max<int64_t>(0, kBlock * j + kBlock - n);  // columns of an edge block
      const auto drawn     = static_cast<uint8_t>(cell == 1 ? 1 << j % 8 : 0xFF >> beyond);
      uint8_t* const here  = bits + i * cell * bytes + (cell == 1 ? j / 8 : j);
      if (*here & drawn) continue;
      ++found;
      for (int64_t r = 0; r < cell && i * cell + r < n; ++r) here[r * bytes] |= drawn;
    }
}

void fill_row_begin(Bits bits, int32_t* begin) {
  begin[0] = 0;
  for (int64_t i = 0; i < bits.extent(0); ++i) {
    begin[i + 1] = begin[i];
    for (int64_t b = 0; b < bits.extent(1); ++b) begin[i + 1] += std::popcount(bits(i, b));
  }
}

void fill_columns(Bits bits, int32_t* column, int64_t room) {
  int32_t* const end = column + room;
  for (int64_t i = 0; i < bits.extent(0); ++i)
    for (int64_t b = 0; b < bits.extent(1); ++b)
      for (unsigned left = bits(i, b); left != 0; left &= left - 1)
        *column++ = static_cast<int32_t>(8 * b + std::countr_zero(left));
  std::fill(column, end, 0);
}

void fill_dense(Indices row_begin, Indices column, View<const float, 1> value, float* dense) {
  const int64_t n = row_begin.size() - 1;
  std::fill_n(dense, n * n, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    for (int32_t k = row_begin(i); k < row_begin(i + 1); ++k) dense[i * n + column(k)] = value(k);
}

// Calls found(block column) for each block of a block row that has a nonzero.
template <class Found>
void for_blocks(Bits bits, int64_t block_row, Found found) {
  const int64_t first = block_row * kBlock, last = std::min(first + kBlock, bits.extent(0));
  for (int64_t b = 0; b < bits.extent(1); ++b) {
    unsigned any = 0;
    for (int64_t i = first; i < last; ++i) any |= bits(i, b);
    if (any) found(b);
  }
}

void fill_block_begin(Bits bits, int32_t* begin) {
  begin[0] = 0;
  for (int64_t i = 0; i < bits.extent(1); ++i) {
    begin[i + 1] = begin[i];
    for_blocks(bits, i, [&](int64_t) { ++begin[i + 1]; });
  }
}

void fill_block_columns(Bits bits, int32_t* column, int64_t room) {
  int32_t* const end = column + room;
  for (int64_t i = 0; i < bits.extent(1); ++i)
    for_blocks(bits, i, [&](int64_t b) { *column++ = static_cast<int32_t>(b); });
  std::fill(column, end, 0);
}

void fill_blocks(Indices begin, Indices column, View<const float, 2> dense, float* block, int64_t room) {
  std::fill_n(block, room, 0.0f);
  for (int64_t i = 0; i + 1 < begin.size(); ++i)
    for (int32_t k = begin(i); k < begin(i + 1); ++k, block += kBlock * kBlock) {
      const int64_t row = i * kBlock, left = column(k) * kBlock;
      for (int64_t r = 0; r < kBlock && row + r < dense.extent(0); ++r)
        for (int64_t c = 0; c < kBlock && left + c < dense.extent(1); ++c)
          block[c * kBlock + r] = dense(row + r, left + c);
    }
}

double log2_choose(double n, double k) {
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2);
}

}  // namespace

SparseMatrix::SparseMatrix(const Point& at, Arena& arena)
    : n(at["n"]),
      cell(cell_of(at.text("pattern"))),
      cells(cells_of(n, cell, at.real("density"))),
      bits(arena.input<uint8_t>(
          {n, whole_blocks(n)},
          generate<uint8_t>([n = n, cell = cell, cells = cells](uint8_t* to, int64_t, uint64_t seed) {
            fill_bits(n, cell, cells, to, seed);
          }))),
      row_begin(arena.input<int32_t>(
          {n + 1},
          generate<int32_t>([bits = bits](int32_t* to, int64_t, uint64_t) { fill_row_begin(bits, to); }))),
      column(arena.input<int32_t>({most_nonzeros()},
                                  generate<int32_t>([bits = bits](int32_t* to, int64_t room, uint64_t) {
                                    fill_columns(bits, to, room);
                                  }))),
      value(arena.input<float>({most_nonzeros() + kSpare}, Uniform{-1, 1})),
      dense(arena.input<float>({n, n}, generate<float>([row_begin = row_begin, column = column,
                                                        value = value](float* to, int64_t, uint64_t) {
                                 fill_dense(row_begin, column, value, to);
                               }))),
      block_begin(arena.input<int32_t>(
          {block_rows() + 1},
          generate<int32_t>([bits = bits](int32_t* to, int64_t, uint64_t) { fill_block_begin(bits, to); }))),
      block_column(arena.input<int32_t>({most_blocks()},
                                        generate<int32_t>([bits = bits](int32_t* to, int64_t room, uint64_t) {
                                          fill_block_columns(bits, to, room);
                                        }))),
      block(arena.input<float>({most_blocks(), kBlock * kBlock},
                               generate<float>([block_begin = block_begin, block_column = block_column,
                                                dense = dense](float* to, int64_t room, uint64_t) {
                                 fill_blocks(block_begin, block_column, dense, to, room);
                               }))),
      x(arena.input<float>({block_rows() * kBlock}, Uniform{-1, 1})),
      out(arena.output<float>({n})) {}

Cost SparseMatrix::cost() const {
  const double side    = static_cast<double>(cell == 1 ? n : block_rows());
  const double pattern = log2_choose(side * side, static_cast<double>(cells)) / 8;  // bytes
  // Blocks over the edge have fewer places inside. The sizes that are timed have none.
  const int64_t nonzeros = n % kBlock == 0 || cell == 1 ? most_nonzeros() : 0;
  return {.read    = 4 * nonzeros + static_cast<int64_t>(pattern) + 4 * n,
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(nonzeros)};
}

}  // namespace fathom::lab::sparse_matvec_cpu
