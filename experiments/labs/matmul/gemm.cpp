#include "experiments/labs/matmul/gemm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lab/metric.h"
#include "lab/problem.h"

namespace fathom::lab::matmul {
namespace {

constexpr int64_t kWidth    = 2880;  // of gpt-oss-20b and 120b
constexpr int64_t kMostCtas = 512;   // of a persistent kernel: one a multiprocessor

// Number `which` of the text "4097x2880", the rows and columns of out, where the point has one.
int64_t extent(const Point& at, const char* name, int which) {
  if (at.find("size")) return at["size"];
  if (!at.find("shape")) return at[name];
  const std::string& shape = at.text("shape");
  const size_t x           = shape.find('x');
  FATHOM_EXPECT(x != std::string::npos, "a shape is rows and columns of out, 4097x2880, and not " + shape);
  return std::stoll(which == 0 ? shape : shape.substr(x + 1));
}

}  // namespace

Gemm::Gemm(const Point& at, Arena& arena)
    : m(extent(at, "rows", 0)),
      n(extent(at, "columns", 1)),
      k(at.find("size")    ? at["size"]
        : at.find("depth") ? at["depth"]
                           : kWidth),
      a(arena.input<bf16>({m, k}, Normal{})),
      b(arena.input<bf16>({n, k}, Normal{})),
      scratch(arena.workspace<char>({int64_t{32} << 20})),
      out(arena.output<bf16>({m, n})),
      times(arena.output<double>({kMostCtas, 2})) {
  FATHOM_EXPECT(n % 8 == 0 && k % 8 == 0,
                "n and k are multiples of 8: a row is a whole number of 16-byte vectors (-a size=4096)");
}

Cost Gemm::cost() const {
  return {.read      = a.bytes() + b.bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .flop_type = DType::bf16};
}

Sum Gemm::expected(int64_t i, int64_t j) const {
  Sum sum{.length = k};
  for (int64_t l = 0; l < k; ++l) {
    const double product = static_cast<double>(static_cast<float>(a(i, l))) * static_cast<float>(b(j, l));
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

void Gemm::metrics(CallMetrics& metrics) const {
  double begin = INFINITY, end = 0, first_end = INFINITY, busy = 0;
  for (int64_t cta = 0; cta < times.extent(0); ++cta) {
    if (std::isnan(times(cta, 0))) continue;  // there is no such CTA
    begin     = std::min(begin, times(cta, 0));
    end       = std::max(end, times(cta, 1));
    first_end = std::min(first_end, times(cta, 1));
    busy += times(cta, 1) - times(cta, 0);
  }
  if (!(end > begin)) return;  // a variant that does not tell
  metrics["tail_ns"]              = {end - first_end, "lower"};
  metrics["busy_multiprocessors"] = {busy / (end - begin), "higher"};
}

}  // namespace fathom::lab::matmul
