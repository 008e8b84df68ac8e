// What two readings of a clock around a call make of the call. For each length of a call: nanoseconds a call
// without probes, with probes, and what the probes say that a call takes.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

volatile unsigned sink;

extern "C" [[gnu::noipa]] void step(int n) {
  unsigned x = sink;
  for (int i = 0; i < n; ++i) x = x * 1664525 + 1013904223;
  sink = x;
}

static int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

static double median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + of.size() / 2, of.end());
  return of[of.size() / 2];
}

int main() {
  for (const int n : {1, 10, 100, 1000}) {
    const int calls = 2'000'000 / (n + 20);
    std::vector<double> plain, probed, said;
    for (int round = 0; round < 101; ++round) {
      int64_t begin = now_ns(), sum = 0;
      for (int c = 0; c < calls; ++c) step(n);
      const int64_t middle = now_ns();
      for (int c = 0; c < calls; ++c) {
        const int64_t start = now_ns();
        step(n);
        sum += now_ns() - start;
      }
      plain.push_back(1. * (middle - begin) / calls);
      probed.push_back(1. * (now_ns() - middle) / calls);
      said.push_back(1. * sum / calls);
    }
    printf("%d %.2f %.2f %.2f\n", n, median(plain), median(probed), median(said));
  }
}
