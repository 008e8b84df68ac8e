// The step, once for all plans.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/async_group.h"
#include "comm/sub_group.h"
#include "core/cpus.h"
#include "core/thread_pool.h"
#include "experiments/ch13_training/adamw.h"
#include "experiments/tcp_ranks.h"
#include "gradient_buckets.h"
#include "sharded_layers.h"
#include "training.h"

namespace fathom::lab::distributed_training {
namespace {

using comm::AsyncGroup;

constexpr int64_t kLayerFloats = kHidden * kUnit, kShardFloats = kShard * kUnit;

std::span<float> span(float* first, int64_t floats) { return {first, static_cast<size_t>(floats)}; }

// kLayers pieces of `floats` each.
struct Pieces {
  int64_t floats = 0;
  std::vector<float> numbers;

  explicit Pieces(int64_t floats) : floats(floats), numbers(static_cast<size_t>(kLayers * floats)) {}
  float* layer(int64_t l) { return numbers.data() + l * floats; }
  template <class T>
  std::vector<std::span<T>> layers() {
    std::vector<std::span<T>> all;
    for (int64_t l = 0; l < kLayers; ++l) all.push_back(span(layer(l), floats));
    return all;
  }
  int64_t bytes() const { return static_cast<int64_t>(numbers.size() * sizeof(float)); }
};

static_assert(kRanks == 2);

struct World {
  explicit World(const Training& p, const Rank& me) : sockets(join_over_tcp(me)), ranks(*sockets, {0, 1}) {
    if (p.link_mb_s > 0) comm::limit_sending(*sockets, p.link_mb_s * 1'000'000);
  }

  std::unique_ptr<comm::Group> sockets;
  comm::SubGroup ranks;  // the same, and it counts what it sends
};

// Forward layer by layer, then backward.
std::vector<int64_t> order_of_layers(int64_t passes) {
  std::vector<int64_t> order;
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (int64_t l = 0; l < kLayers; ++l) order.push_back(l);
    for (int64_t l = kLayers - 1; l >= 0; --l) order.push_back(l);
  }
  return order;
}

// At which both ranks send each other large messages, one after another: a send alone is over when the
// kernel has its bytes.
double link_bytes_per_s(comm::Group& group) {
  constexpr int kMessages = 8;
  std::vector<std::byte> out(1 << 20), in(out.size());
  const int other = 1 - group.rank();
  group.send_receive<std::byte>(out, other, in, other);  // both have begun
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < kMessages; ++i) group.send_receive<std::byte>(out, other, in, other);
  group.barrier();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return kMessages * static_cast<double>(out.size()) / took.count();
}

// Where the pool's second worker runs: a CPU of this rank, another one than the caller's where it has two.
std::optional<int> second_cpu(ThreadPool& pool) {
  std::optional<int> cpu;
  pool.run([&](int worker) {
    if (worker == 1) cpu = allowed_cpus().front();
  });
  return cpu;
}

class Replica {
 public:
  Replica(const Plan& plan, const Training& p, Context& context)
      : plan_(plan),
        world_(p, *context.rank),
        link_bytes_per_s_(link_bytes_per_s(world_.ranks)),
        async_(world_.ranks, plan.overlapped ? AsyncGroup::Mode::overlapped : AsyncGroup::Mode::blocking,
               plan.overlapped ? second_cpu(context.pool) : std::nullopt),
        rows_((p.tokens() + plan.micro_batches - 1) / plan.micro_batches),
        own_(context.rank->rank() * kShardFloats),
        weights_(kept()),
        m_(kept()),
        v_(kept()),
        gradients_(plan.sharded ? kShardFloats : kLayerFloats),
        new_w_(plan.sharded ? 0 : kLayerFloats),
        new_m_(new_w_.size()),
        new_v_(new_w_.size()) {
    copy(p.w, weights_);
    copy(p.m, m_);
    copy(p.v, v_);
    for (auto& h : h_) h.resize(static_cast<size_t>(rows_ * kModel));
    for (auto& z : z_) z.resize(static_cast<size_t>(rows_ * kHidden));
    if (plan.sharded) {
      gather_.emplace(async_, weights_.layers<const float>(), order_of_layers(plan.micro_batches), plan.wire);
      scatter_.emplace(async_, gradients_.layers<float>(), plan.wire, plan.micro_batches > 1);
    } else {
      buckets_.emplace(async_, std::span(gradients_.numbers), std::vector<int64_t>(kLayers, kLayerFloats),
                       plan.bucket_bytes);
    }
    sent_before_ = world_.ranks.sent_bytes();
  }

  void step(const Training& p, uint64_t nonce) {
    if (gather_) gather_->begin();
    double loss = 0;
    for (int64_t pass = 0; pass < plan_.micro_batches; ++pass) {
      const int64_t first = std::min(pass * rows_, p.tokens());
      const int64_t rows  = std::min(rows_, p.tokens() - first);
      forward(p, first, rows);
      loss += become_gradient_of_loss(p, first, rows);
      backward(rows, pass == 0, pass == plan_.micro_batches - 1);
    }
    if (scatter_) scatter_->finish();
    if (buckets_) buckets_->finish();
    for (int64_t l = 0; l < kLayers; ++l) update(p, l);

    auto sum = static_cast<int64_t>(nonce);
    async_.wait(async_.start([&](comm::Group& group) {
      group.all_reduce(std::span<double>(&loss, 1));
      group.all_reduce(std::span<int64_t>(&sum, 1));
    }));
    p.loss(0)   = static_cast<float>(loss);
    p.nonces(0) = static_cast<uint64_t>(sum);
    report(p);
  }

 private:
  int64_t kept() const { return plan_.sharded ? kShardFloats : kLayerFloats; }

  // The part of the checkpoint that `to` keeps of each layer: all, or the rank's shard.
  void copy(View<const float, 4> from, Pieces& to) const {
    const int64_t skipped = plan_.sharded ? own_ : 0;
    for (int64_t l = 0; l < kLayers; ++l) std::copy_n(&from(l, 0, 0, 0) + skipped, to.floats, to.layer(l));
  }

  const float* weights(int64_t l) { return gather_ ? gather_->weights(l) : weights_.layer(l); }

  void forward(const Training& p, int64_t first, int64_t rows) {
    if (rows > 0) std::copy_n(&p.x(first, 0), rows * kModel, h_[0].data());
    for (int64_t l = 0; l < kLayers; ++l) {
      const auto at = static_cast<size_t>(l);
      const mlp::Layer layer{kHidden, weights(l), nullptr};
      std::copy_n(h_[at].data(), rows * kModel, h_[at + 1].data());
      mlp::forward(layer, rows, h_[at].data(), z_[at].data(), h_[at + 1].data());
    }
  }

  // h of the last layer becomes the gradient of the loss of these rows, which is returned.
  double become_gradient_of_loss(const Training& p, int64_t first, int64_t rows) {
    std::vector<float>& h = h_[kLayers];
    double squares        = 0;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t d = 0; d < kModel; ++d) {
        float& difference = h[static_cast<size_t>(t * kModel + d)];
        difference -= p.target(first + t, d);
        squares += static_cast<double>(difference) * difference;
      }
    return squares / 2;
  }

  // h[l] is needed no more once the gradients of layer l are there, and takes the gradient of h[l].
  void backward(int64_t rows, bool first_pass, bool last_pass) {
    for (int64_t l = kLayers - 1; l >= 0; --l) {
      const auto at                = static_cast<size_t>(l);
      const std::vector<float>& dy = h_[at + 1];
      const float* const w         = weights(l);
      float* const gradients       = scatter_ ? scatter_->whole(l) : gradients_.layer(l);
      if (first_pass) std::fill_n(gradients, kLayerFloats, 0.0f);
      mlp::Layer layer{kHidden, w, gradients};
      dx_.assign(dy.begin(), dy.begin() + rows * kModel);
      mlp::backward(layer, rows, h_[at].data(), z_[at].data(), dy.data(), l > 0 ? dx_.data() : nullptr);
      std::copy(dx_.begin(), dx_.end(), h_[at].begin());
      if (!last_pass) continue;
      if (scatter_) scatter_->ready(l);
      if (buckets_) buckets_->ready(l);
    }
  }

  // The rank's shard goes to the outputs. What else it updates lands in buffers; a step in place needs none.
  void update(const Training& p, int64_t l) {
    const adamw::Factors factors(kStep);
    const int64_t own = plan_.sharded ? 0 : own_;
    adamw::Weights shard{.w     = weights_.layer(l) + own,
                         .m     = m_.layer(l) + own,
                         .v     = v_.layer(l) + own,
                         .g     = gradients_.layer(l) + own,
                         .new_w = &p.new_w(l, 0, 0, 0),
                         .new_m = &p.new_m(l, 0, 0, 0),
                         .new_v = &p.new_v(l, 0, 0, 0)};
    adamw::update(factors, shard, kShardFloats);
    if (plan_.sharded) return;
    const adamw::Weights all{weights_.layer(l), m_.layer(l),   v_.layer(l),  gradients_.layer(l),
                             new_w_.data(),     new_m_.data(), new_v_.data()};
    const int64_t after = own_ + kShardFloats;
    adamw::update(factors, all, own_);
    adamw::update(factors, all.from(after), kLayerFloats - after);
  }

  template <class Buffers>
  static int64_t bytes(const Buffers& buffers) {
    int64_t sum = 0;
    for (const auto& buffer : buffers) sum += static_cast<int64_t>(buffer.size() * sizeof(float));
    return sum;
  }

  void report(const Training& p) {
    const AsyncGroup::Times times = async_.take_times();
    const int64_t sent            = world_.ranks.sent_bytes() - sent_before_;
    sent_before_ += sent;
    p.report() = {.weight_bytes         = weights_.bytes() + (gather_ ? gather_->bytes() : 0),
                  .gradient_bytes       = gradients_.bytes() + (scatter_ ? scatter_->bytes() : 0),
                  .moment_bytes         = m_.bytes() + v_.bytes(),
                  .activation_bytes     = bytes(h_) + bytes(z_),
                  .sent_bytes           = sent,
                  .communication_ns     = times.communication,
                  .communication_cpu_ns = times.cpu,
                  .exposed_ns           = times.exposed,
                  .hidden_share         = times.hidden_share(),
                  .link_ns              = 1e9 * static_cast<double>(sent) / link_bytes_per_s_,
                  .wire                 = plan_.wire};
  }

  Plan plan_;
  World world_;
  double link_bytes_per_s_;
  AsyncGroup async_;
  int64_t rows_;  // of a pass
  int64_t own_;   // where this rank's shard begins in a layer
  Pieces weights_, m_, v_;
  Pieces gradients_;                          // sums over ranks: of all layers, or of their shards
  std::vector<float> new_w_, new_m_, new_v_;  // of a layer
  std::array<std::vector<float>, kLayers + 1> h_;
  std::array<std::vector<float>, kLayers> z_;
  std::vector<float> dx_;
  std::optional<LayerGather> gather_;
  std::optional<GradientScatter> scatter_;
  std::optional<GradientBuckets> buckets_;
  int64_t sent_before_ = 0;
};

}  // namespace

Training::Training(const Point& at, Arena& arena, const Rank& me)
    : x(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
      target(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
      w(arena.input<float>({kLayers, kHidden, 2, kModel}, mlp::weights_of_layers(kHidden))),
      m(arena.input<float>({kLayers, kHidden, 2, kModel}, mlp::the_same_everywhere(1u << 20, -1, 1))),
      v(arena.input<float>({kLayers, kHidden, 2, kModel}, mlp::the_same_everywhere(1u << 21, 0.5, 2))),
      loss(arena.output<float>({1})),
      new_w(arena.output<float>({kLayers, kShard, 2, kModel})),
      new_m(arena.output<float>({kLayers, kShard, 2, kModel})),
      new_v(arena.output<float>({kLayers, kShard, 2, kModel})),
      report_bytes(arena.workspace<std::byte>({int64_t{sizeof(Report)}})),
      nonces(arena.workspace<uint64_t>({1})),
      link_mb_s(at["link_mb_s"]),
      rank(me.rank()) {}

void Training::metrics(CallMetrics& metrics) const {
  const Report& r  = report();
  const auto lower = [&](const char* name, double value) { metrics[name] = {value, "lower"}; };
  const auto bytes = [&](const char* name, int64_t value) { lower(name, static_cast<double>(value)); };
  bytes("weight_bytes", r.weight_bytes);
  bytes("gradient_bytes", r.gradient_bytes);
  bytes("moment_bytes", r.moment_bytes);
  bytes("activation_bytes", r.activation_bytes);
  bytes("kept_bytes", r.weight_bytes + r.gradient_bytes + r.moment_bytes + r.activation_bytes);
  bytes("sent_bytes", r.sent_bytes);
  bytes("communication_ns", r.communication_ns);
  bytes("communication_cpu_ns", r.communication_cpu_ns);
  bytes("exposed_ns", r.exposed_ns);
  lower("link_ns", r.link_ns);
  lower("loss", static_cast<double>(loss(0)));
  metrics["overlap_share"] = {r.hidden_share, "higher"};
}

Step step_of(const Plan& plan, const Training& prepared, Context& context) {
  return [replica = std::make_shared<Replica>(plan, prepared, context)](const Training& p, Context& step) {
    replica->step(p, step.rank->nonce());
  };
}

}  // namespace fathom::lab::distributed_training
