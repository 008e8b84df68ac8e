// Two functions: one follows pointers through memory and executes few instructions, the other executes many
// that wait for nothing. Prints samples of both, CPU seconds of both by a clock, and a result.
#include <time.h>

#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "sampler.h"

constexpr int kPlaces = 1 << 24;  // of 4 bytes: 64 MiB, twice the L3 cache

extern "C" [[gnu::noipa]] int follow(const int* next, int steps) {
  int at = 0;
  for (int i = 0; i < steps; ++i) at = next[at];
  return at;
}

extern "C" [[gnu::noipa]] unsigned mix(unsigned n) {
  unsigned a = 1, b = 2, c = 3, d = 4;
  for (unsigned i = 0; i < n; ++i) a += i ^ a << 1, b += i ^ b << 2, c += i ^ c << 3, d += i ^ d << 4;
  return a ^ b ^ c ^ d;
}

static double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

extern "C" [[gnu::noipa]] unsigned work(const int* next, int calls, double seconds[2]) {
  unsigned result = 0;
  for (int i = 0; i < calls; ++i) {
    const double begin = cpu_seconds();
    result += follow(next, 20'000);
    const double middle = cpu_seconds();
    result += mix(200'000);
    seconds[0] += middle - begin;
    seconds[1] += cpu_seconds() - middle;
  }
  return result;
}

int main(int argc, char**) {
  std::vector<int> next(kPlaces), order(kPlaces);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (int i = kPlaces - 1; i > 0; --i) std::swap(order[i], order[random() % i]);
  for (int i = 0; i < kPlaces; ++i)
    next[order[i]] = order[(i + 1) % kPlaces];  // one cycle through all places

  double seconds[2] = {};
  start_sampling();
  const unsigned result = work(next.data(), argc > 1 ? 20 : 4000, seconds);
  int of_follow = 0, of_mix = 0;
  const auto seen = stop_sampling();
  for (const Sample& s : seen) {
    of_follow += function_at(s.by_frames.at[0]) == "follow";
    of_mix += function_at(s.by_frames.at[0]) == "mix";
  }
  printf("%zu %d %d %.6f %.6f %u\n", seen.size(), of_follow, of_mix, seconds[0], seconds[1], result);
}
