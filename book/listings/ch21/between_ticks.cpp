// Works for the same quarter of each tick and sleeps for the rest. Prints the CPU time by the clock, and the
// samples. usage: between_ticks WHERE TICKS [watched]     (WHERE in the tick the work begins: 0 to 1;
// watched: by another profiler)
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "sampler.h"

static int64_t read_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

static void sleep_until(int64_t ns) {
  const timespec until{ns / 1'000'000'000, ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

int main(int argc, char** argv) {
  constexpr int64_t kTick = 4'000'000;
  const int64_t where = static_cast<int64_t>(kTick * atof(argv[1])), ticks = atoi(argv[2]);
  const int64_t before = read_ns(CLOCK_MONOTONIC_COARSE);
  while (read_ns(CLOCK_MONOTONIC_COARSE) == before)
    ;  // the coarse clock moves at ticks
  const int64_t first = read_ns(CLOCK_MONOTONIC_COARSE) + where;

  if (argc < 4) start_sampling();
  const int64_t used = read_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int64_t begin = first + kTick; begin < first + ticks * kTick; begin += kTick) {
    sleep_until(begin);
    while (read_ns(CLOCK_MONOTONIC) < begin + kTick / 4)
      ;
  }
  const double seconds = 1e-9 * (read_ns(CLOCK_THREAD_CPUTIME_ID) - used);
  printf("%.3f %zu\n", seconds, stop_sampling().size());
}
