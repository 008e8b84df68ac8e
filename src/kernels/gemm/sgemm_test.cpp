#include "kernels/gemm/sgemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/buffer.h"
#include "core/expect.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::kernels {
namespace {

// a, b and c as a training step has them: stored as they are, or transposed.
struct Product {
  int64_t M, N, K;
  bool a_transposed, b_transposed;
  std::vector<float> a, b, before;

  Product(int64_t m, int64_t n, int64_t k, bool at, bool bt)
      : M(m),
        N(n),
        K(k),
        a_transposed(at),
        b_transposed(bt),
        a(size(m, k)),
        b(size(k, n)),
        before(size(m, n)) {
    fill_normal(a.data(), m * k, 1, 0, 1);
    fill_normal(b.data(), k * n, 2, 0, 1);
    fill_normal(before.data(), m * n, 3, 0, 1);
  }
  static size_t size(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); }
  View<const float, 2> view_a() const {
    return a_transposed ? transposed({a.data(), {K, M}}) : View<const float, 2>(a.data(), {M, K});
  }
  View<const float, 2> view_b() const {
    return b_transposed ? transposed({b.data(), {N, K}}) : View<const float, 2>(b.data(), {K, N});
  }

  template <class Op>
  std::vector<float> run(Op op, Output output, const Execution& on) const {
    std::vector<float> c = before;
    op(view_a(), view_b(), output, View<float, 2>(c.data(), {M, N}), on);
    return c;
  }
};

std::vector<float> computed(const Product& p, Output output, ThreadPool* threads) {
  const Buffer<std::byte> scratch(sgemm_cpu_scratch_bytes(threads ? threads->threads() : 1));
  return p.run(sgemm_cpu, output, {.threads = threads, .scratch = scratch.view()});
}

TEST(Sgemm, AgreesWithTheReference) {
  ThreadPool threads(3);
  const std::vector<std::vector<int64_t>> sizes = {{0, 5, 7},    {5, 0, 7},     {4, 4, 0},      {1, 1, 1},
                                                   {1, 33, 2},   {6, 16, 256},  {12, 32, 257},  {7, 31, 255},
                                                   {97, 513, 3}, {13, 97, 300}, {301, 530, 300}};
  for_each_simd_target([&] {
    for (const auto& size : sizes)
      for (const bool at : {false, true})
        for (const bool bt : {false, true})
          for (const Output output : {Output::overwrite, Output::add}) {
            const Product p(size[0], size[1], size[2], at, bt);
            const auto got = computed(p, output, &threads), wanted = p.run(sgemm_reference, output, {});
            const double tolerance = 1e-6 * std::sqrt(static_cast<double>(p.K) + 1) * 4;
            for (size_t i = 0; i < got.size(); ++i)
              ASSERT_NEAR(got[i], wanted[i], tolerance) << p.M << " " << p.N << " " << p.K << " at " << i;
          }
  });
}

TEST(Sgemm, BitsDependOnNeitherThreadsNorTheOtherRows) {
  ThreadPool one(1), four(4);
  const Product p(53, 70, 600, false, true);
  const auto all = computed(p, Output::overwrite, &one);
  EXPECT_EQ(all, computed(p, Output::overwrite, &four));
  EXPECT_EQ(all, computed(p, Output::overwrite, nullptr));
  for (const int64_t row : {0, 12, 52}) {
    Product single(1, p.N, p.K, false, true);
    single.a.assign(p.a.begin() + row * p.K, p.a.begin() + (row + 1) * p.K);
    single.b = p.b;
    EXPECT_EQ(computed(single, Output::overwrite, &four),
              std::vector<float>(all.begin() + row * p.N, all.begin() + (row + 1) * p.N));
  }
}

TEST(Sgemm, WritesNothingBeyondC) {
  const Product p(5, 3, 4, false, false);
  std::vector<float> c(5 * 8, 7.0f);
  const Buffer<std::byte> scratch(sgemm_cpu_scratch_bytes(1));
  sgemm_cpu(p.view_a(), p.view_b(), Output::overwrite, View<float, 2>(c.data(), {5, 3}, {8, 1}),
            {.scratch = scratch.view()});
  for (size_t i = 0; i < c.size(); ++i)
    if (i % 8 >= 3) {
      EXPECT_EQ(c[i], 7.0f) << i;
    }
}

TEST(Sgemm, RefusesExtentsThatDoNotMatch) {
  std::vector<float> x(64);
  const View<float, 2> square(x.data(), {4, 4}), other(x.data(), {4, 3});
  EXPECT_THROW(sgemm_cpu(square, transposed(other), Output::overwrite, square, {}), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
