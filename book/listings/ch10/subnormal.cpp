// Prints the half of a small float. tests/book_listings_test.py links it with a library that does nothing,
// compiled with and without -ffast-math.
#include <cstdio>

int library();

int main() {
  volatile float x = 2e-38f;
  library();
  std::printf("%g\n", x * 0.5f);
}
