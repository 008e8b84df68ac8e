// A token drawn from softmax(logits / temperature) as argmax_v logit(v) / temperature + G(v), where the G are
// independent Gumbel numbers -ln(-ln u) (Gumbel, 1954; Maddison, Tarlow, Minka, "A* Sampling", 2014). They
// are functions of a seed, a position and v, so the token depends on nothing else, and where two laws are
// alike they draw the same token.
//
// The word of v is number v % 4 of Philox(counter = position, use = 1 + v / 4, seed), and u is
// (word + 1/2) 2^-32. kernels/sampling/gumbel.cuh has the same on GPUs, in fp32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

// No Gumbel number is larger: that of the largest word is 22.874.
inline constexpr float kMostGumbel = 22.9f;

// Number v, in double.
double gumbel(uint64_t seed, int64_t position, int64_t v);

struct GumbelBest {
  int64_t id = -1;
  double sum = 0;  // its logit / temperature + G
};

// Of equal sums the lowest id. Preconditions: a logit is finite, none is NaN or +infinity; temperature above
// 0. Most tokens get no number: those that could not win with the largest one, and those whose word is too
// small. The logits are those of ids `first` .., a multiple of 64.
GumbelBest gumbel_best(std::span<const float> logits, double temperature, uint64_t seed, int64_t position,
                       int64_t first = 0);
inline int64_t gumbel_argmax(std::span<const float> logits, double temperature, uint64_t seed,
                             int64_t position) {
  return gumbel_best(logits, temperature, seed, position).id;
}

// Appends the ids whose sum is at least `least`, in their order; one that is as near as rounding may be
// missing or there. Precondition: no logit is NaN or +infinity.
void gumbel_at_least(std::span<const float> logits, double temperature, uint64_t seed, int64_t position,
                     double least, std::vector<int64_t>& ids, int64_t first = 0);

}  // namespace fathom
