// One slow instruction in a loop of fast ones. Prints the samples of each instruction's address.
#include <cstdio>
#include <map>

#include "sampler.h"

extern "C" [[gnu::noipa]] unsigned long divide(unsigned long n, unsigned long by) {
  unsigned long x = ~0ul, sum = 0;
  for (unsigned long i = 0; i < n; ++i) {
    x = x / by + 0x123456789abcdefull;
    sum += x ^ i;
  }
  return sum;
}

int main() {
  start_sampling();
  const unsigned long result = divide(800'000'000, 3);
  std::map<long, int> at;
  for (const Sample& s : stop_sampling())
    if (function_at(s.by_frames.at[0]) == "divide")
      ++at[static_cast<char*>(s.by_frames.at[0]) - reinterpret_cast<char*>(&divide)];
  for (const auto& [offset, count] : at) printf("%ld %d\n", offset, count);
  fprintf(stderr, "%lu\n", result);
}
