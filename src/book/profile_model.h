// Simulated sampling profiles of a program that goes through its functions again and again: how many samples
// each gets, and how much its share scatters over many profiles. The model of the book's profile sampler;
// freestanding, for it is compiled to WebAssembly too.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kMostParts = 8;

// A round of the program: its parts follow each other, each for its share of the round.
struct Program {
  int32_t parts            = 0;  // at most kMostParts
  double share[kMostParts] = {};
  double round             = 1;  // length, in periods of the timer
};

enum class Timer : int32_t { periodic, by_lot };  // both begin at a random time; by_lot draws each sample's

// Samples of each part, of `samples` in all. Equal seeds give equal counts.
void profile(const Program& program, Timer timer, int32_t samples, uint64_t seed, int32_t counts[kMostParts]);

// One part's share in many profiles.
struct Scatter {
  double mean = 0, deviation = 0;  // of the share of samples
  double covered = 0;              // share of profiles whose 95 % interval (Wilson's) holds the true share
};
Scatter scatter(const Program& program, Timer timer, int32_t samples, int32_t part, uint64_t seed,
                int32_t profiles);

double deviation_by_law(double share, int32_t samples);  // sqrt(p (1 - p) / n)

// The fewest independent samples that show a share within +-half_width with 95 %, by the normal curve.
double samples_needed(double share, double half_width);

}  // namespace fathom::book
