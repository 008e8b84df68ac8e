// How many different readings does a clock of CPU time give in a quarter of a second of work, without a
// sampling timer and beside one?
#include <time.h>

#include <cstdio>
#include <set>

#include "sampler.h"

static int64_t read_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

static size_t readings(clockid_t clock) {
  std::set<int64_t> seen;
  for (const int64_t end = read_ns(CLOCK_MONOTONIC) + 250'000'000; read_ns(CLOCK_MONOTONIC) < end;)
    seen.insert(read_ns(clock));
  return seen.size();
}

int main() {
  for (const clockid_t clock : {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID}) {
    const size_t alone = readings(clock);
    start_sampling();
    const size_t beside = readings(clock);
    stop_sampling();
    printf("%zu %zu\n", alone, beside);
  }
}
