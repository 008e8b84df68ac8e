// Two functions that mean more to their author than to the language. tests/book_listings_test.py reads their
// code.

void benchmark(const float* a, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i];
}

bool would_overflow(int x) { return x + 100 < x; }
