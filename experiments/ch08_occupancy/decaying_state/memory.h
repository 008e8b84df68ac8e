// The problem: a decode loop with a memory that fades, fp32, one core. Token t has a key and a value, and
//   M(r, j) = decay(r) M(r, j)  for every row r,   then   M(key(t), j) += v(t, j)
//   out(t, j) = x(t, j) + sum over r of M(r, j)
// A row without anything in it need not be touched. So the loop keeps a list of the others: a key enters with
// its token, and leaves when its row is zero. Each out(t) goes into a trace of the last tokens, and to a
// reader.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "core/expect.h"
#include "lab/metric.h"
#include "lab/problem.h"

namespace fathom::lab::decaying_state {

struct Memory {
  static constexpr int64_t kKeys     = 2048;
  static constexpr int64_t kValues   = 64;
  static constexpr int64_t kTrace    = 256;   // tokens
  static constexpr int64_t kTraceRow = 1024;  // floats, a page; of which this head of 16 writes 64
  static constexpr int64_t kLine     = 16;    // floats
  static constexpr int64_t kOldest   = 256;   // tokens; of an older one less than 2^-180 is left

  View<const int32_t, 1> key;   // token
  View<const float, 2> v, x;    // token, value
  View<const float, 1> decay;   // key
  View<float, 2> out;           // token, value
  View<double, 1> row_updates;  // one element: how many rows were decayed
  // Workspace.
  View<float, 2> rows;              // key, value: M
  View<int32_t, 1> list;            // keys whose rows are not zero
  View<uint8_t, 1> listed;          // key: whether it is in the list
  View<float, 2> trace;             // token modulo kTrace, and room for rows of kTraceRow + kLine floats
  std::shared_ptr<std::FILE> sent;  // goes nowhere, so that a write costs the system call alone

  Memory(const Point& at, Arena& arena)
      : key(arena.input<int32_t>({at["tokens"]}, Uniform{0, kKeys})),
        v(arena.input<float>({at["tokens"], kValues}, Uniform{-1, 1})),
        x(arena.input<float>({at["tokens"], kValues}, Uniform{-1, 1})),
        decay(arena.input<float>({kKeys}, Uniform{0.5, 0.6})),
        out(arena.output<float>({at["tokens"], kValues})),
        row_updates(arena.output<double>({1})),
        rows(arena.workspace<float>({kKeys, kValues})),
        list(arena.workspace<int32_t>({kKeys})),
        listed(arena.workspace<uint8_t>({kKeys})),
        trace(arena.workspace<float>({kTrace, kTraceRow + kLine})),
        sent(std::fopen("/dev/null", "w"), [](std::FILE* file) {
          if (file) std::fclose(file);
        }) {
    FATHOM_EXPECT(sent != nullptr, "/dev/null cannot be opened for writing");
  }

  // The least: a token decays its own row and no other.
  Cost cost() const {
    return {.read    = key.bytes() + v.bytes() + x.bytes(),
            .written = out.bytes(),
            .flops   = 3.0 * static_cast<double>(out.size())};
  }

  // Without a memory: every earlier token, with the weight that its key's decay has left of it.
  Sum expected(int64_t t, int64_t j) const {
    double sum = x(t, j), magnitude = std::abs(sum);
    for (int64_t u = std::max<int64_t>(0, t - kOldest); u <= t; ++u) {
      const double left = std::pow(decay(key(u)), static_cast<double>(t - u)) * v(u, j);
      sum += left;
      magnitude += std::abs(left);
    }
    // A row is rounded with every token, and the sum over rows once a row.
    return {.value = sum, .magnitude = magnitude, .length = 2 * (std::min(t, kOldest) + 1)};
  }

  void metrics(CallMetrics& metrics) const { metrics["row_updates"] = {row_updates(0), "lower"}; }
};

void as_found(const Memory&, Context&);
void flush_to_zero(const Memory&, Context&);
void padded_trace(const Memory&, Context&);
void buffered_output(const Memory&, Context&);
void all_three(const Memory&, Context&);
void flushed_but_kept(const Memory&, Context&);
void retired_when_small(const Memory&, Context&);

}  // namespace fathom::lab::decaying_state
