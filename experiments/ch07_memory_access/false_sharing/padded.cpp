// out(c) = number of i with in(i) = c                       n items, 4 classes
//
// bytes   n read
// flops   0; n increments
// limit   none physical: two increments of one counter are a load and a store apart
// idea    the same counters, 64 bytes a thread: no line is written by two
#include "core/expect.h"
#include "core/thread_pool.h"
#include "count_classes.h"

namespace fathom::lab::false_sharing {
namespace {

constexpr int64_t kStride = kLine / sizeof(int32_t);  // counters from one thread's to the next's

}  // namespace

void padded(const CountClasses& p, Context& context) {
  const int threads = context.pool.threads();
  FATHOM_EXPECT(threads <= kMaxThreads, "more threads than the workspace has counters for");
  const int64_t n   = p.in.extent(0);
  const uint8_t* in = p.in.data();
  context.pool.run([=, counters = p.counters](int worker) {
    const int64_t first = n * worker / threads, last = n * (worker + 1) / threads;
    int32_t* count = counters.data() + worker * kStride;
    for (int64_t c = 0; c < kClasses; ++c) count[c] = 0;
    for (int64_t i = first; i < last; ++i) ++count[in[i]];
  });
  for (int64_t c = 0; c < kClasses; ++c) {
    int64_t sum = 0;
    for (int worker = 0; worker < threads; ++worker) sum += p.counters(worker * kStride + c);
    p.out(c) = sum;
  }
}

}  // namespace fathom::lab::false_sharing
