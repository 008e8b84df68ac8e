// Loops of one line. tests/book_listings_test.py compiles them and reads what g++ made of each; chapter 10
// has the table.

int sum_of_ints(const int* a, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i];
  return sum;
}

float sum_of_floats(const float* a, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i];
  return sum;
}

float sum_in_any_order(const float* a, int n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < n; ++i) sum += a[i];
  return sum;
}

int largest_int(const int* a, int n) {
  int top = a[0];
  for (int i = 1; i < n; ++i) top = a[i] > top ? a[i] : top;
  return top;
}

float largest_float(const float* a, int n) {
  float top = a[0];
  for (int i = 1; i < n; ++i) top = a[i] > top ? a[i] : top;
  return top;
}

void add_offset(float* out, float* x, float* offset, int n) {
  for (int i = 0; i < n; ++i) out[i] = x[i] + *offset;
}

void add_offset_promised(float* __restrict__ out, float* __restrict__ x, float* __restrict__ offset, int n) {
  for (int i = 0; i < n; ++i) out[i] = x[i] + *offset;
}

void fill_floats(float* out, const int* n) {
  for (int i = 0; i < *n; ++i) out[i] = 1;
}

void fill_ints(int* out, const int* n) {
  for (int i = 0; i < *n; ++i) out[i] = 1;
}

void double_from_int(float* a, int from, int n) {
  for (int i = 0; i < n; ++i) a[from + i] *= 2;
}

void double_from_unsigned(float* a, unsigned from, unsigned n) {
  for (unsigned i = 0; i < n; ++i) a[from + i] *= 2;
}

void one_before(float* a, const float* __restrict__ b, int n) {
  for (int i = 1; i < n; ++i) a[i] = a[i - 1] + b[i];
}

void one_after(float* a, const float* __restrict__ b, int n) {
  for (int i = 0; i < n - 1; ++i) a[i] = a[i + 1] + b[i];
}

void eight_before(float* a, const float* __restrict__ b, int n) {
  for (int i = 8; i < n; ++i) a[i] = a[i - 8] + b[i];
}

void product(const float* a, const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < n; ++k) y[i] += a[i * n + k] * x[k];
}

void product_promised(const float* a, const float* x, float* __restrict__ y, int n) {
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < n; ++k) y[i] += a[i * n + k] * x[k];
}
