#include "search/flip_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/expect.h"
#include "core/splitmix64.h"
#include "search/hensel_lift.h"

namespace fathom::search {
namespace {

constexpr int64_t kFlipsBetweenLifts = 1'000;
constexpr int kLiftTries             = 64;
constexpr int kRanksAbove            = 2;  // a plus transition may lead so far above the walk's best rank

class Walk {
 public:
  using Factors = std::array<uint64_t, 3>;  // a, b, c

  Walk(const ProductShape& shape, uint64_t seed) : state_(splitmix64(seed)) {
    for (int i = 0; i < shape.n; ++i)
      for (int k = 0; k < shape.p; ++k)
        for (int j = 0; j < shape.m; ++j)
          terms_.push_back({uint64_t{1} << (i * shape.m + j), uint64_t{1} << (j * shape.p + k),
                            uint64_t{1} << (i * shape.p + k)});
    find_pairs();
  }

  int rank() const { return static_cast<int>(terms_.size()); }
  const std::vector<Factors>& terms() const { return terms_; }

  // One flip, with the reductions it makes possible. False where no two products share a factor.
  bool flip() {
    if (pairs_.empty()) return false;
    auto [i, j, shared] = pairs_[below(pairs_.size())];
    if (below(2)) std::swap(i, j);
    size_t g = (shared + 1) % 3, h = (shared + 2) % 3;
    if (below(2)) std::swap(g, h);
    terms_[i][g] ^= terms_[j][g];
    terms_[j][h] ^= terms_[i][h];
    const bool first_reduces = update_pairs(i, g), second_reduces = update_pairs(j, h);
    if (!first_reduces && !second_reduces) return true;
    // Whichever goes first may take the other's place, so what is left of it is looked for by value.
    const Factors second = terms_[j];
    if (reduce(i)) {
      const auto at = std::find(terms_.begin(), terms_.end(), second);
      if (at != terms_.end()) reduce(static_cast<size_t>(at - terms_.begin()));
    } else {
      reduce(j);
    }
    find_pairs();
    return true;
  }

  // Three products for two that share no factor:
  //   a b c + a' b' c'  =  a (b + b') c + a b' (c + c') + (a + a') b' c'
  // False where every two share one.
  bool plus() {
    const size_t r = terms_.size();
    if (r < 2) return false;
    const size_t first_pair = below(r * r);
    for (size_t step = 0; step < r * r; ++step) {
      const size_t pair = (first_pair + step) % (r * r), i = pair / r, j = pair % r;
      const Factors x = terms_[i], y = terms_[j];
      if (i == j || x[0] == y[0] || x[1] == y[1] || x[2] == y[2]) continue;
      const size_t a = below(3), b = (a + 1) % 3, c = (a + 2) % 3;
      Factors &first = terms_[i], &second = terms_[j], third = y;
      first[b] ^= y[b];
      second[a] = x[a];
      second[c] ^= x[c];
      third[a] ^= x[a];
      terms_.push_back(third);
      find_pairs();
      return true;
    }
    return false;
  }

 private:
  struct Pair {
    size_t i, j, factor;
  };

  uint64_t next() { return splitmix64(state_ += kSplitmix64Increment); }
  // Below n, by the high bits; n is small, so the bias is none that counts.
  size_t below(size_t n) { return static_cast<size_t>((next() >> 32) * n >> 32); }

  void find_pairs() {
    pairs_.clear();
    for (size_t i = 0; i < terms_.size(); ++i)
      for (size_t j = i + 1; j < terms_.size(); ++j)
        for (size_t factor = 0; factor < 3; ++factor)
          if (terms_[i][factor] == terms_[j][factor]) pairs_.push_back({i, j, factor});
  }

  // After a change of one factor of product i. True where the product can be reduced now: the factor is zero,
  // or a product shares it and another one.
  bool update_pairs(size_t i, size_t factor) {
    for (size_t p = 0; p < pairs_.size();)
      if (pairs_[p].factor == factor && (pairs_[p].i == i || pairs_[p].j == i)) {
        pairs_[p] = pairs_.back();
        pairs_.pop_back();
      } else {
        ++p;
      }
    const Factors& x = terms_[i];
    bool reduces     = x[factor] == 0;
    for (size_t j = 0; j < terms_.size(); ++j) {
      const Factors& y = terms_[j];
      if (j == i || x[factor] != y[factor]) continue;
      pairs_.push_back({i, j, factor});
      reduces |= x[(factor + 1) % 3] == y[(factor + 1) % 3] || x[(factor + 2) % 3] == y[(factor + 2) % 3];
    }
    return reduces;
  }

  void remove(size_t i) {
    terms_[i] = terms_.back();
    terms_.pop_back();
  }

  // Removes product i if it is zero, or adds it to one with which it shares two factors.
  bool reduce(size_t i) {
    const Factors x = terms_[i];
    if (!x[0] || !x[1] || !x[2]) {
      remove(i);
      return true;
    }
    for (size_t j = 0; j < terms_.size(); ++j) {
      if (j == i) continue;
      Factors& y          = terms_[j];
      const bool equal[3] = {x[0] == y[0], x[1] == y[1], x[2] == y[2]};
      if (equal[0] + equal[1] + equal[2] < 2) continue;
      const size_t other = !equal[0] ? 0 : !equal[1] ? 1 : 2;
      y[other] ^= x[other];
      const Factors sum = y;
      remove(i);
      reduce(static_cast<size_t>(std::find(terms_.begin(), terms_.end(), sum) - terms_.begin()));
      return true;
    }
    return false;
  }

  std::vector<Factors> terms_;
  std::vector<Pair> pairs_;  // every two products that share a factor, as often as they share one
  uint64_t state_;
};

}  // namespace

Discovery discover(const FlipSearch& search) {
  const ProductShape& shape = search.shape;
  FATHOM_EXPECT(shape.n >= 1 && shape.m >= 1 && shape.p >= 1, "a matrix product has sides of at least 1");
  FATHOM_EXPECT(std::max({shape.n * shape.m, shape.m * shape.p, shape.n * shape.p}) <= 64,
                "a factor has a bit for each entry: no matrix may have more than 64");
  FATHOM_EXPECT(search.target_rank >= 1, "no product has rank 0");
  FATHOM_EXPECT(search.flips >= 0 && search.flips_of_a_walk >= 0 && search.patience >= 1,
                "a budget of flips is not negative, and patience at least 1");

  Discovery found{.scheme = std::nullopt, .best_rank = shape.n * shape.m * shape.p};
  const auto lifted = [&](const Walk& walk) {
    BinaryScheme binary{.shape = shape, .terms = {}};
    for (const auto& [a, b, c] : walk.terms()) binary.terms.push_back({a, b, c});
    found.scheme = hensel_lift(binary, search.seed, kLiftTries);
    if (!found.scheme) ++found.not_lifted;
    return found.scheme.has_value();
  };
  do {
    Walk walk(shape, search.seed + static_cast<uint64_t>(found.walks++) * kSplitmix64Increment);
    if (walk.rank() <= search.target_rank && lifted(walk)) return found;
    const int64_t end = search.flips_of_a_walk > 0
                            ? std::min(search.flips, found.flips + search.flips_of_a_walk)
                            : search.flips;
    int best          = walk.rank();
    int64_t waited = 0, since_lift = 0;
    while (found.flips < end) {
      const int before = walk.rank();
      ++found.flips;
      ++since_lift;
      if (!walk.flip() && !walk.plus()) return found;  // a single product
      waited          = walk.rank() < before ? 0 : waited + 1;
      best            = std::min(best, walk.rank());
      found.best_rank = std::min(found.best_rank, best);
      if (walk.rank() <= search.target_rank && (walk.rank() < before || since_lift >= kFlipsBetweenLifts)) {
        if (lifted(walk)) return found;
        since_lift = 0;
      }
      if (waited >= search.patience && walk.rank() < best + kRanksAbove) {
        walk.plus();
        waited = 0;
      }
    }
  } while (found.flips < search.flips);
  return found;
}

}  // namespace fathom::search
