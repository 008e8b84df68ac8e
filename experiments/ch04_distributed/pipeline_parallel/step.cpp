// The passes of a stage, and how stages wait for each other's messages.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "two_stages.h"

namespace fathom::lab::pipeline_parallel {
namespace {

constexpr std::chrono::seconds kLongestWait{10};

// c(r, j) += sum over k of a(r, k) b(k, j), for rows of c.
void add_product(const float* a, const float* b, float* c, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < kWidth; ++k) {
      const float x = a[r * kWidth + k];
      for (int64_t j = 0; j < kWidth; ++j) c[r * kWidth + j] += x * b[k * kWidth + j];
    }
}

void forward_pass(const float* x, const float* w, float* y, int64_t rows) {
  for (int64_t i = 0; i < rows * kWidth; ++i) y[i] = 0;
  add_product(x, w, y, rows);
}

// Eight partial sums a product, since the compiler may not reorder one.
void input_gradient_pass(const float* dy, const float* w, float* dx, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < kWidth; ++i) {
      float sums[8] = {};
      for (int64_t j = 0; j < kWidth; j += 8)
        for (int64_t lane = 0; lane < 8; ++lane)
          sums[lane] += dy[r * kWidth + j + lane] * w[i * kWidth + j + lane];
      float total = 0;
      for (const float sum : sums) total += sum;
      dx[r * kWidth + i] = total;
    }
}

void weight_gradient_pass(const float* x, const float* dy, float* dw, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < kWidth; ++i) {
      const float value = x[r * kWidth + i];
      for (int64_t j = 0; j < kWidth; ++j) dw[i * kWidth + j] += value * dy[r * kWidth + j];
    }
}

// A stage in one step.
class Stage {
 public:
  Stage(const TwoStages& p, const Rank& me, uint64_t step, int micro_batches)
      : p_(p), me_(me), step_(step), rows_(kRows / micro_batches), nonces_(me.nonce()) {}

  void run(const std::vector<Pass>& passes) {
    for (int64_t i = 0; i < p_.dw.size(); ++i) p_.dw.data()[i] = 0;
    for (const Pass& pass : passes) {
      const int64_t at = pass.micro_batch * rows_ * kWidth;
      switch (pass.kind) {
        case Pass::forward:
          forward(pass.micro_batch, at);
          break;
        case Pass::backward:
          input_gradient(pass.micro_batch, at);
          weight_gradient(at);
          break;
        case Pass::input_gradient:
          input_gradient(pass.micro_batch, at);
          break;
        case Pass::weight_gradient:
          weight_gradient(at);
          break;
        case Pass::forward_and_backward:
          FATHOM_EXPECT(false, "the stages have no copies of each other's layer, which DualPipe needs");
      }
    }
    p_.nonces(0) = nonces_;
  }

 private:
  bool first() const { return p_.stage == 0; }

  // Stage 0 writes y where stage 1 reads it; nobody needs the y of stage 1.
  void forward(int m, int64_t at) {
    if (first()) {
      forward_pass(p_.x.data() + at, p_.weight.data(), memory(0) + at, rows_);
      send(0, m);
    } else {
      receive(0, m, p_.kept.data() + at, memory(0) + at);
      forward_pass(p_.kept.data() + at, p_.weight.data(), p_.dx.data() + at, rows_);
    }
  }
  void input_gradient(int m, int64_t at) {
    if (first()) receive(1, m, p_.dy.data() + at, memory(1) + at);
    input_gradient_pass(gradient() + at, p_.weight.data(), p_.dx.data() + at, rows_);
    if (first()) return;
    for (int64_t i = at; i < at + rows_ * kWidth; ++i) memory(1)[i] = p_.dx.data()[i];
    send(1, m);
  }
  void weight_gradient(int64_t at) {
    weight_gradient_pass((first() ? p_.x.data() : p_.kept.data()) + at, gradient() + at, p_.dw.data(), rows_);
  }
  const float* gradient() const { return first() ? p_.dy.data() : p_.loss_gradient.data(); }

  Wire& wire(int direction, int m) const {
    return reinterpret_cast<Wire*>(me_.shared().data())[direction * kMostMicroBatches + m];
  }
  float* memory(int direction) const {
    return reinterpret_cast<float*>(me_.shared().data() + 2 * kMostMicroBatches * sizeof(Wire)) +
           direction * kRows * kWidth;
  }
  void send(int direction, int m) {
    Wire& to = wire(direction, m);
    to.nonce = me_.nonce();
    std::atomic_ref(to.arrived).store(step_, std::memory_order_release);
  }
  void receive(int direction, int m, float* to, const float* from) {
    Wire& message       = wire(direction, m);
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    for (int64_t spins = 0; std::atomic_ref(message.arrived).load(std::memory_order_acquire) != step_;
         ++spins) {
      if (spins % 1024 != 1023) continue;
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("the other stage sent no message within 10 s");
      std::this_thread::yield();  // where stages outnumber CPUs
    }
    if (m == 0) nonces_ += message.nonce;
    for (int64_t i = 0; i < rows_ * kWidth; ++i) to[i] = from[i];
  }

  const TwoStages& p_;
  const Rank& me_;
  uint64_t step_;
  int64_t rows_;
  uint64_t nonces_;
};

}  // namespace

// Stages take no barrier: a message carries the number of its step, and a stage overwrites one only after the
// other has answered it.
Step step_by(Schedule schedule, int micro_batches) {
  return [schedule = std::move(schedule), micro_batches](const TwoStages& p, Context& context) {
    static uint64_t steps = 0;  // a process is one rank
    Stage(p, *context.rank, ++steps, micro_batches).run(schedule[static_cast<size_t>(p.stage)]);
  };
}

// In double, over the whole batch.
void TwoStages::check(Checker& checker, const AllRanks<TwoStages>& ranks) const {
  using Rows          = std::vector<Sum>;  // [row][column]
  const auto index    = [](int64_t r, int64_t c) { return static_cast<size_t>(r * kWidth + c); };
  const auto as_terms = [&](View<const float, 2> v) {
    Rows rows;
    for (int64_t i = 0; i < v.size(); ++i)
      rows.push_back({.value = v.data()[i], .magnitude = std::abs(v.data()[i]), .length = 0});
    return rows;
  };
  const auto times = [&](const Rows& a, auto&& b) {  // a(r, k) b(k, j)
    Rows product(a.size());
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < kWidth; ++j) {
        Sum& sum   = product[index(r, j)];
        sum.length = a[0].length + kWidth;
        for (int64_t k = 0; k < kWidth; ++k) {
          sum.value += a[index(r, k)].value * b(k, j);
          sum.magnitude += a[index(r, k)].magnitude * std::abs(b(k, j));
        }
      }
    return product;
  };
  const auto weight_of = [&](int s) {
    return [w = ranks[s].weight](int64_t k, int64_t j) -> double { return w(k, j); };
  };
  const auto transposed = [&](int s) {
    return [w = ranks[s].weight](int64_t k, int64_t j) -> double { return w(j, k); };
  };

  const Rows input    = stage == 0 ? as_terms(ranks[0].x) : times(as_terms(ranks[0].x), weight_of(0));
  const Rows dx_of_1  = times(as_terms(ranks[1].loss_gradient), transposed(1));
  const Rows gradient = stage == 0 ? dx_of_1 : as_terms(ranks[1].loss_gradient);
  const Rows want_dx  = stage == 0 ? times(dx_of_1, transposed(0)) : dx_of_1;
  checker.values("dx", dx, [&](int64_t r, int64_t c) { return want_dx[index(r, c)]; });
  checker.values("dw", dw, [&](int64_t i, int64_t j) {
    Sum sum{.length = input[0].length + gradient[0].length + kRows};
    for (int64_t r = 0; r < kRows; ++r) {
      sum.value += input[index(r, i)].value * gradient[index(r, j)].value;
      sum.magnitude += input[index(r, i)].magnitude * gradient[index(r, j)].magnitude;
    }
    return sum;
  });
}

}  // namespace fathom::lab::pipeline_parallel
