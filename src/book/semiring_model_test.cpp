#include "book/semiring_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace fathom::book {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Semiring kAll[] = {Semiring::plus_times, Semiring::min_plus, Semiring::max_plus,
                             Semiring::max_times,  Semiring::max_min,  Semiring::or_and};

// The chapter's graph of six vertices.
std::vector<int32_t> graph() {
  std::vector<int32_t> weights(36);
  for (const char* e : {"AB2", "AC5", "BC2", "BD7", "CD3", "CE8", "DE1", "DF6", "EF2", "EB4"})
    weights[static_cast<size_t>(6 * (e[0] - 'A') + e[1] - 'A')] = e[2] - '0';
  return weights;
}

TEST(Semiring, GoldenValues) {
  const double expected[] = {7, 11, 15, 0.09, 3, 1};  // from A to F, at most four edges
  std::vector<double> sums(36);
  for (size_t s = 0; s < 6; ++s) {
    sum_over_walks(kAll[s], 6, graph().data(), 4, true, sums.data());
    EXPECT_NEAR(sums[5], expected[s], 1e-6) << s;
  }
}

// All walks one by one, in double, without a semiring's code.
double by_enumeration(Semiring semiring, int n, const std::vector<int32_t>& weights, int steps, bool at_most,
                      int from, int to) {
  double count = 0, shortest = INFINITY, longest = -INFINITY, likeliest = 0, widest = 0;
  const std::function<void(int, int, double, double, double)> walk = [&](int at, int left, double length,
                                                                         double chance, double width) {
    if (at == to && (left == 0 || at_most)) {
      count += 1;
      shortest  = std::min(shortest, length);
      longest   = std::max(longest, length);
      likeliest = std::max(likeliest, chance);
      widest    = std::max(widest, width);
    }
    for (int next = 0; left > 0 && next < n; ++next)
      if (const double w = weights[static_cast<size_t>(n * at + next)]; w > 0)
        walk(next, left - 1, length + w, chance * w / 10, std::min(width, w));
  };
  walk(from, steps, 0, 1, INFINITY);
  switch (semiring) {
    case Semiring::plus_times:
      return count;
    case Semiring::min_plus:
      return shortest;
    case Semiring::max_plus:
      return longest;
    case Semiring::max_times:
      return likeliest;
    case Semiring::max_min:
      return widest;
    case Semiring::or_and:
      return count > 0 ? 1 : 0;
  }
  return NAN;
}

TEST(Semiring, ThePowerSumsOverAllWalks) {
  std::mt19937 generator(1);
  for (const int n : {1, 2, 5, 8})
    for (int trial = 0; trial < 3; ++trial) {
      std::vector<int32_t> weights(static_cast<size_t>(n * n));
      for (int32_t& w : weights) w = generator() % 3 == 0 ? static_cast<int32_t>(1 + generator() % 9) : 0;
      std::vector<double> sums(weights.size());
      for (const Semiring semiring : kAll)
        for (int steps = 0; steps <= 5; ++steps)
          for (const bool at_most : {false, true}) {
            sum_over_walks(semiring, n, weights.data(), steps, at_most, sums.data());
            for (int i = 0; i < n; ++i)
              for (int j = 0; j < n; ++j) {
                const double right = by_enumeration(semiring, n, weights, steps, at_most, i, j);
                const double found = sums[static_cast<size_t>(n * i + j)];
                if (std::isinf(right))
                  EXPECT_EQ(found, right);
                else
                  EXPECT_NEAR(found, right, 1e-5 * (1 + std::abs(right)));
              }
          }
    }
}

template <class S>
void expect_laws(const std::vector<typename S::Value>& values) {
  const auto add = S::add, times = S::times;
  for (const auto a : values) {
    EXPECT_EQ(add(a, S::zero), a);
    EXPECT_EQ(times(a, S::one), a);
    EXPECT_EQ(times(S::one, a), a);
    EXPECT_EQ(times(a, S::zero), S::zero);
    EXPECT_EQ(times(S::zero, a), S::zero);
    for (const auto b : values) {
      EXPECT_EQ(add(a, b), add(b, a));
      for (const auto c : values) {
        EXPECT_EQ(add(add(a, b), c), add(a, add(b, c)));
        EXPECT_EQ(times(times(a, b), c), times(a, times(b, c)));
        EXPECT_EQ(times(a, add(b, c)), add(times(a, b), times(a, c)));
        EXPECT_EQ(times(add(a, b), c), add(times(a, c), times(b, c)));
      }
    }
  }
}

TEST(Semiring, TheLawsHold) {
  const std::vector<float> small = {0, 1, 2, 3, 7, 0.5};  // exact in all operations
  expect_laws<PlusTimes>(small);
  expect_laws<MaxTimes>(small);
  auto with = [&](float more) {
    std::vector<float> values = small;
    values.push_back(more);
    return values;
  };
  expect_laws<MinPlus>(with(kInfinity));
  expect_laws<MaxPlus>(with(-kInfinity));
  expect_laws<MaxMin>(with(kInfinity));
  expect_laws<OrAnd>({0, 1, 6, 0xF0F0, ~uint64_t{0}});
}

std::vector<float> drawn(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(generator() >> 8) * 0x1p-24f + 0.01f;
  return values;
}

// The depth cut into tiles that come in another order: how many elements have other bits.
template <class S>
int changed_by_tiles(int n, int tile) {
  const std::vector<float> a = drawn(static_cast<size_t>(n * n), 2), b = drawn(static_cast<size_t>(n * n), 3);
  std::vector<float> whole(a.size()), tiled(a.size(), S::zero), part(a.size());
  product<S>(n, n, n, a.data(), b.data(), whole.data());
  for (int end = n; end > 0; end -= tile) {
    const int begin = std::max(0, end - tile), depth = end - begin;
    std::vector<float> columns;
    for (int i = 0; i < n; ++i)
      for (int k = begin; k < end; ++k) columns.push_back(a[static_cast<size_t>(i * n + k)]);
    product<S>(n, depth, n, columns.data(), b.data() + begin * n, part.data());
    for (size_t i = 0; i < tiled.size(); ++i) tiled[i] = S::add(tiled[i], part[i]);
  }
  int changed = 0;
  for (size_t i = 0; i < tiled.size(); ++i)
    changed += std::memcmp(&tiled[i], &whole[i], sizeof(float)) != 0 ? 1 : 0;
  return changed;
}

TEST(Semiring, TilesChangeTheBitsOfSumsAlone) {
  for (const int tile : {1, 7, 16}) {
    EXPECT_GT(changed_by_tiles<PlusTimes>(61, tile), 100);
    EXPECT_EQ(changed_by_tiles<MinPlus>(61, tile), 0);
    EXPECT_EQ(changed_by_tiles<MaxPlus>(61, tile), 0);
    EXPECT_EQ(changed_by_tiles<MaxTimes>(61, tile), 0);
    EXPECT_EQ(changed_by_tiles<MaxMin>(61, tile), 0);
  }
}

// x > 0 is a homomorphism from numbers that are not negative to truth values, so a product of numbers finds
// what 64 columns of bits find.
TEST(Semiring, TheSignOfAProductIsTheProductOfSigns) {
  std::mt19937 generator(4);
  constexpr size_t kRows = 13, kDepth = 70, kColumns = 64;
  std::vector<float> a(kRows * kDepth), b(kDepth * kColumns), numbers(kRows * kColumns);
  std::vector<uint64_t> masks(a.size()), words(kDepth), bits(kRows);
  for (size_t i = 0; i < a.size(); ++i)
    masks[i] = (a[i] = generator() % 9 == 0 ? 1.0f : 0.0f) > 0 ? OrAnd::one : OrAnd::zero;
  for (size_t i = 0; i < b.size(); ++i)
    if ((b[i] = generator() % 9 == 0 ? 1.0f : 0.0f) > 0) words[i / kColumns] |= uint64_t{1} << i % kColumns;
  product<PlusTimes>(kRows, kDepth, kColumns, a.data(), b.data(), numbers.data());
  product<OrAnd>(kRows, kDepth, 1, masks.data(), words.data(), bits.data());
  int ones = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(numbers[i] > 0, (bits[i / kColumns] >> i % kColumns & 1) != 0);
    ones += numbers[i] > 0 ? 1 : 0;
  }
  EXPECT_GT(ones, 100);
  EXPECT_LT(ones, static_cast<int>(numbers.size()) - 100);
}

template <class S>
void expect_scan_is_recurrence(const std::vector<Affine<S>>& maps, typename S::Value start) {
  for (const size_t parts : {size_t{1}, size_t{2}, size_t{5}}) {
    const auto begin_of = [&](size_t part) { return maps.size() * part / parts; };
    std::vector<Affine<S>> before(parts + 1);  // what stands before a part
    for (size_t part = 0; part < parts; ++part) {
      Affine<S> whole;  // of a part, which needs to know of no other
      for (size_t t = begin_of(part); t < begin_of(part + 1); ++t) whole = then(whole, maps[t]);
      before[part + 1] = then(before[part], whole);
    }
    auto x = start;
    for (size_t part = 0; part < parts; ++part) {
      auto y = before[part](start);
      EXPECT_EQ(x, y) << "part " << part << " of " << parts;
      for (size_t t = begin_of(part); t < begin_of(part + 1); ++t) x = maps[t](x);
    }
    EXPECT_EQ(x, before[parts](start));
  }
}

TEST(Affine, ARecurrenceInParts) {
  const auto map = then(Affine<PlusTimes>{2, 3}, Affine<PlusTimes>{4, 5});
  EXPECT_EQ(map.a, 8);
  EXPECT_EQ(map.b, 17);

  std::mt19937 generator(5);
  std::vector<Affine<PlusTimes>> filter;  // a and b so that floats are exact
  std::vector<Affine<MaxPlus>> queue;     // a request that comes at t and takes s: x -> max(x, t) + s
  float t = 0;
  for (int i = 0; i < 23; ++i) {
    filter.push_back({generator() % 2 == 0 ? 0.5f : 2.0f, static_cast<float>(generator() % 16)});
    const auto s = static_cast<float>(1 + generator() % 8);
    t += static_cast<float>(generator() % 9);
    queue.push_back({s, t + s});
  }
  filter.resize(11);
  expect_scan_is_recurrence(filter, 8);
  expect_scan_is_recurrence(queue, -kInfinity);

  float end = -kInfinity;  // the queue, without a semiring
  for (const auto& request : queue) end = std::max(end + request.a, request.b);
  Affine<MaxPlus> whole;
  for (const auto& request : queue) whole = then(whole, request);
  EXPECT_EQ(whole(-kInfinity), end);
}

}  // namespace
}  // namespace fathom::book
