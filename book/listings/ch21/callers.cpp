// `rarely` calls `fill` a few times for much, `often` many times for little: three quarters and a quarter of
// its time.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "sampler.h"

volatile unsigned sink;

extern "C" [[gnu::noipa]] void fill(int n) {
  unsigned x = sink;
  for (int i = 0; i < n; ++i) x = x * 1664525 + 1013904223;
  sink = x;
}

extern "C" [[gnu::noipa]] void rarely() {
  for (int i = 0; i < 30; ++i) fill(100'000);
}

extern "C" [[gnu::noipa]] void often() {
  for (int i = 0; i < 970; ++i)
    fill(1031);  // so that all calls together do a third of what `rarely` has done
}

#ifndef GPROF  // which brings a timer of its own
static std::string folded(const Stack& stack) {
  std::string text;
  for (int i = stack.depth - 1; i >= 0; --i)
    if (const std::string name = function_at(stack.at[i]); name != "?" && name[0] != '_')
      text += (text.empty() ? "" : ";") + name;
  return text;
}
#endif

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 1000;
#ifndef GPROF
  start_sampling();
#endif
  for (int i = 0; i < rounds; ++i) rarely(), often();
#ifndef GPROF
  std::map<std::string, int> stacks;
  for (const Sample& s : stop_sampling())
    ++stacks["tables " + folded(s.by_tables)], ++stacks["frames " + folded(s.by_frames)];
  for (const auto& [stack, count] : stacks) printf("%s %d\n", stack.c_str(), count);
#endif
}
