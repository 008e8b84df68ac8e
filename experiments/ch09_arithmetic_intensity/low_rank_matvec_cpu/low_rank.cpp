#include "low_rank.h"

#include <cmath>
#include <vector>

namespace fathom::lab::low_rank_matvec_cpu {
namespace {

constexpr int64_t kTable = 64;  // rows of B and columns of D

int64_t inner_rank(int64_t rank) {
  FATHOM_EXPECT(rank < kTable || rank % kTable == 0,
                "rank is below 64 or a multiple of it: the tables that the factors are made of are whole");
  return std::min(rank, kTable);
}
int64_t outer_rank(int64_t rank) { return rank / std::max<int64_t>(1, inner_rank(rank)); }
int64_t tables(int64_t n) { return (n + kTable - 1) / kTable; }

// to(i, j) = outer(i / rows, j / columns) inner(i % rows, j % columns), with rows x columns of `inner`.
template <class T>
void fill_kronecker(View<const T, 2> outer, View<const T, 2> inner, int64_t rows, int64_t columns,
                    float* to) {
  const int64_t m = inner.extent(0), width = inner.extent(1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t first = 0; first < columns; first += width) {
      const T factor    = outer(i / m, first / width);
      const T* from     = &inner(i % m, 0);
      const int64_t end = std::min(width, columns - first);
      for (int64_t j = 0; j < end; ++j) *to++ = static_cast<float>(factor * from[j]);
    }
}

std::vector<double> product(View<const float, 2> a, View<const float, 2> b) {
  std::vector<double> ab(static_cast<size_t>(a.extent(0) * b.extent(1)));
  for (int64_t i = 0; i < a.extent(0); ++i)
    for (int64_t k = 0; k < a.extent(1); ++k)
      for (int64_t j = 0; j < b.extent(1); ++j)
        ab[static_cast<size_t>(i * b.extent(1) + j)] += static_cast<double>(a(i, k)) * b(k, j);
  return ab;
}

}  // namespace

LowRank::LowRank(const Point& at, Arena& arena)
    : n(at["n"]),
      rank(at["rank"]),
      a(arena.input<float>({tables(n), outer_rank(rank)}, Uniform{-1, 1})),
      b(arena.input<float>({kTable, inner_rank(rank)}, Uniform{-1, 1})),
      c(arena.input<float>({outer_rank(rank), tables(n)}, Uniform{-1, 1})),
      d(arena.input<float>({inner_rank(rank), kTable}, Uniform{-1, 1})),
      u(arena.input<float>({n, rank},
                           generate<float>([a = a, b = b, n = n, rank = rank](float* to, int64_t, uint64_t) {
                             fill_kronecker(a, b, n, rank, to);
                           }))),
      v(arena.input<float>({rank, n},
                           generate<float>([c = c, d = d, n = n, rank = rank](float* to, int64_t, uint64_t) {
                             fill_kronecker(c, d, rank, n, to);
                           }))),
      w(arena.input<float>({n, n},
                           generate<float>([a = a, b = b, c = c, d = d, n = n](float* to, int64_t, uint64_t) {
                             const std::vector<double> ac = product(a, c), bd = product(b, d);
                             const int64_t side = a.extent(0);
                             fill_kronecker(View<const double, 2>(ac.data(), {side, side}),
                                            View<const double, 2>(bd.data(), {kTable, kTable}), n, n, to);
                           }))),
      x(arena.input<float>({n}, Uniform{-1, 1})),
      between(arena.workspace<float>({rank})),
      out(arena.output<float>({n})) {}

void LowRank::check(Checker& checker) const {
  std::vector<Sum> vx(static_cast<size_t>(rank));
  for (int64_t k = 0; k < rank; ++k)
    for (int64_t j = 0; j < n; ++j) {
      const double product = static_cast<double>(v(k, j)) * x(j);
      vx[static_cast<size_t>(k)].value += product;
      vx[static_cast<size_t>(k)].magnitude += std::abs(product);
    }
  checker.values("out", out, [&](int64_t i) {
    Sum sum{.length = n + rank};
    for (int64_t k = 0; k < rank; ++k) {
      sum.value += u(i, k) * vx[static_cast<size_t>(k)].value;
      sum.magnitude += std::abs(u(i, k)) * vx[static_cast<size_t>(k)].magnitude;
    }
    return sum;
  });
}

}  // namespace fathom::lab::low_rank_matvec_cpu
