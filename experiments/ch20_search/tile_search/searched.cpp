#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/expect.h"
#include "machine/topology.h"
#include "measure/clock.h"
#include "product.h"

namespace fathom::lab::tile_search {
namespace {

constexpr int kCalls     = 3;  // of an evaluation, of which the fastest counts
constexpr uint64_t kSeed = 20;
constexpr int64_t kStrip = 16;  // columns of a register tile

// In single precision by three plain loops.
std::vector<float> plain_product(const Product& p) {
  std::vector<float> out(static_cast<size_t>(p.n * p.n));
  for (int64_t i = 0; i < p.n; ++i)
    for (int64_t k = 0; k < p.n; ++k)
      for (int64_t j = 0; j < p.n; ++j) out[static_cast<size_t>(i * p.n + j)] += p.a(i, k) * p.b(k, j);
  return out;
}

// A term is below 1 and a sum of n such terms below n; two sums in other orders differ by far less than this.
void expect_equal(const Product& p, const std::vector<float>& wanted) {
  const auto n          = static_cast<double>(p.n);
  const float tolerance = static_cast<float>(8 * std::sqrt(n) * 0x1p-24 * n);
  for (int64_t i = 0; i < p.out.size(); ++i)
    FATHOM_EXPECT(std::abs(p.out.data()[i] - wanted[static_cast<size_t>(i)]) <= tolerance,
                  "a candidate computes another product");
}

Tiles tiles_at(const search::Configuration& at) {
  return {.rows = at[0], .depth = at[1], .columns = at[2], .packed = at[3] != 0};
}

// The largest value of an axis that is no larger; the smallest where none is.
int64_t largest(size_t axis, int64_t at_most) {
  const std::vector<int64_t>& values = tile_space().axes[axis].values;
  const auto above                   = std::upper_bound(values.begin(), values.end(), at_most);
  return above == values.begin() ? values.front() : above[-1];
}

int64_t cache_bytes(int level, int64_t otherwise) {
  const machine::CpuCache* cache = machine::data_cache(machine::topology(), level);
  return cache ? cache->bytes : otherwise;
}

}  // namespace

const search::TuningSpace& tile_space() {
  static const search::TuningSpace space{{{"rows", {6, 24, 96, 192, 512}},
                                          {"depth", {8, 16, 32, 64, 128, 256, 384, 512}},
                                          {"columns", {16, 32, 64, 128, 512}},
                                          {"packed", {0, 1}}}};
  return space;
}

Tiles tiles_by_rule() {
  constexpr int64_t kFloat = sizeof(float);
  Tiles tiles{.packed = true};
  tiles.depth   = largest(1, cache_bytes(1, 32 << 10) / 2 / (kStrip * kFloat));
  tiles.rows    = largest(0, cache_bytes(2, 256 << 10) / 2 / (tiles.depth * kFloat));
  tiles.columns = largest(2, cache_bytes(3, 1 << 20) / 2 / (tiles.depth * kFloat));
  return tiles;
}

void Product::metrics(CallMetrics& metrics) const {
  const char* const names[] = {"tile_rows",          "tile_depth", "tile_columns", "packed",
                               "search_evaluations", "search_s",   "search_spread"};
  const int64_t known       = report(4) > 0 ? report.size() : 4;  // the rule has no search
  for (int64_t i = 0; i < known; ++i) metrics[names[i]] = {report(i), "lower"};
}

Launch<Product> with_tiles(const Search& search) {
  return [search](const Product& p, Context&) {
    multiply(p, search.tiles);
    const Tiles& tiles    = search.tiles;
    const double report[] = {static_cast<double>(tiles.rows),
                             static_cast<double>(tiles.depth),
                             static_cast<double>(tiles.columns),
                             tiles.packed ? 1.0 : 0.0,
                             static_cast<double>(search.evaluations),
                             search.seconds,
                             search.spread};
    std::copy(std::begin(report), std::end(report), p.report.data());
  };
}

Launch<Product> searched(const Product& p, search::Strategy strategy, int64_t budget) {
  const std::vector<float> wanted = plain_product(p);
  const int64_t began             = measure::now_ns(measure::Clock::wall);
  const auto cost                 = [&](const search::Configuration& at) {
    const Tiles tiles = tiles_at(at);
    multiply(p, tiles);  // checked, and warm
    expect_equal(p, wanted);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int call = 0; call < kCalls; ++call) {
      const int64_t start = measure::now_ns(measure::Clock::thread_cpu);
      multiply(p, tiles);
      least = std::min(least, measure::now_ns(measure::Clock::thread_cpu) - start);
    }
    return static_cast<double>(least);
  };
  const search::Trace trace = search::minimise(tile_space(), cost, strategy, budget, kSeed);
  const int64_t ended       = measure::now_ns(measure::Clock::wall);
  double slowest            = 0;
  for (const search::Evaluation& evaluation : trace.evaluations) slowest = std::max(slowest, evaluation.cost);
  return with_tiles({.tiles       = tiles_at(trace.best().at),
                     .evaluations = static_cast<int64_t>(trace.evaluations.size()),
                     .seconds     = static_cast<double>(ended - began) * 1e-9,
                     .spread      = slowest / std::max(1.0, trace.best().cost)});
}

}  // namespace fathom::lab::tile_search
