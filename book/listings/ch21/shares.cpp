// The same work in three orders: a tenth of it in `a`, the rest in `b`. Prints what each of many profiles
// says of `a`. usage: shares shuffled|sorted|lockstep PROFILES SAMPLES
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "sampler.h"

static int64_t now_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

volatile double sink = 1;

static inline void units(long n) {  // a chain of products and sums
  double x = sink;
  for (long i = 0; i < n; ++i) x = x * 0.999 + 1e-3, x = x * 0.998 + 2e-3, x = x * 0.997 + 3e-3;
  sink = x;
}

extern "C" [[gnu::noipa]] void a(long n) { units(n); }
extern "C" [[gnu::noipa]] void b(long n) { units(n + 1); }  // another function, not folded into the first

int main(int, char** argv) {
  const std::string order = argv[1];
  const int profiles = atoi(argv[2]), samples = atoi(argv[3]);
  constexpr int64_t kTick = 4'000'000;

  std::mt19937_64 random(1);
  for (int p = 0; p < profiles; ++p) {
    const uint64_t seed = random();
    for (const int64_t end = now_ns(CLOCK_MONOTONIC) + seed % kTick; now_ns(CLOCK_MONOTONIC) < end;)
      ;  // else each would begin right behind a tick, the last sample of the profile before
    const int64_t at_start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t slot           = -1;
    bool lot               = false;
    const auto in_a        = [&] {
      const int64_t used = now_ns(CLOCK_THREAD_CPUTIME_ID) - at_start;
      if (order ==
          "shuffled") {  // drawn each 0.2 ms, and only then: a draw belongs neither to `a` nor to `b`
        if (slot != used / 200'000) slot = used / 200'000, lot = std::mt19937_64(seed + slot)() % 10 == 0;
        return lot;
      }
      if (order == "sorted") return used < samples * kTick / 10;  // first `a`, then `b`
      return (now_ns(CLOCK_MONOTONIC) + static_cast<int64_t>(seed / 7 % kTick)) % kTick <
             kTick / 10;  // lockstep
    };

    start_sampling();
    while (taken < samples) in_a() ? a(3000) : b(3000);  // pieces of some 20 us
    const auto seen = stop_sampling();

    int of_a = 0;
    for (const Sample& s : seen) of_a += function_at(s.by_frames.at[0]) == "a";
    printf("%d\n", of_a);
  }
}
