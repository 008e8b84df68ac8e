// Nests of loops, in an order in which the inner one does not walk along rows. tests/book_listings_test.py
// compiles them and reads which g++ turned around; chapter 10 has the table.

constexpr int n = 256;
int p[n][n], q[n][n], r[n][n];
float a[n][n], b[n][n], c[n][n];

void product_of_ints() {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) r[i][j] += p[i][k] * q[k][j];
}

void product_of_floats() {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) c[i][j] += a[i][k] * b[k][j];
}

void from_above() {
  for (int j = 0; j < n; ++j)
    for (int i = 1; i < n; ++i) c[i][j] = c[i - 1][j] + 1;
}

void from_above_left() {
  for (int j = 1; j < n; ++j)
    for (int i = 1; i < n; ++i) c[i][j] = c[i - 1][j - 1] + 1;
}

void from_above_right() {
  for (int j = 0; j < n - 1; ++j)
    for (int i = 1; i < n; ++i) c[i][j] = c[i - 1][j + 1] + 1;
}
