// Reads 256 integers, `stride` apart. Under Cachegrind with a cache of 8 sets of 2 lines its misses are
// known.
#include <cstdlib>

alignas(4096) int place[256 * 128];

extern "C" [[gnu::noipa]] int walk(int stride) {
  int sum = 0;
  for (int i = 0; i < 256; ++i) sum += place[i * stride];
  return sum;
}

int main(int, char** argv) { return walk(atoi(argv[1])) != 0; }
