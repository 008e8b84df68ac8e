// The step, once for all stages and meshes.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "comm/device_mesh.h"
#include "experiments/ch13_training/adamw.h"
#include "experiments/ch13_training/mlp_checkpoint.h"
#include "experiments/tcp_ranks.h"
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {
namespace {

using mlp::kUnit, mlp::Layer;

struct Ranks {
  Ranks(std::string_view mesh_text, const Rank& me)
      : world(join_over_tcp(me)), mesh(*world, comm::parse_mesh(mesh_text).value()) {}
  std::unique_ptr<comm::Group> world;
  comm::DeviceMesh mesh;
};

// kLayers pieces of `floats` each.
struct Pieces {
  int64_t floats = 0;
  std::vector<float> numbers;

  explicit Pieces(int64_t floats) : floats(floats), numbers(static_cast<size_t>(kLayers * floats)) {}
  float* layer(int64_t l) { return numbers.data() + l * floats; }
  int64_t bytes() const { return static_cast<int64_t>(numbers.size() * sizeof(float)); }
};

class Replica {
 public:
  Replica(Stage stage, std::string_view mesh, const Training& p, const Rank& me)
      : stage_(stage),
        ranks_(mesh, me),
        tp_(ranks_.mesh.group({"tp"})),
        dp_(ranks_.mesh.group({"dp"})),
        tokens_(p.tokens() * tp_.size()),
        units_(kHidden / tp_.size()),
        own_unit_(dp_.rank() * kShard),
        weights_(kept(stage < Stage::zero3)),
        m_(kept(stage == Stage::ddp)),
        v_(kept(stage == Stage::ddp)),
        gradients_(stage < Stage::zero2 ? kLayers * layer_floats() : layer_floats()),
        gradient_shards_(stage == Stage::ddp ? 0 : kShard * kUnit),
        gathered_(stage == Stage::zero3 ? layer_floats() : 0),
        new_weights_(stage < Stage::zero3 ? layer_floats() : 0),
        new_m_(stage == Stage::ddp ? layer_floats() : 0),
        new_v_(stage == Stage::ddp ? layer_floats() : 0) {
    copy(p.w, me, weights_);
    copy(p.m, me, m_);
    copy(p.v, me, v_);
    const auto rows = static_cast<size_t>(tokens_ * kModel);
    for (std::vector<float>& h : h_) h.resize(rows);
    for (std::vector<float>& z : z_) z.resize(static_cast<size_t>(tokens_ * units_));
    for (std::vector<float>* buffer : {&target_, &sum_}) buffer->resize(rows);
  }

  void step(const Training& p, uint64_t nonce) {
    // Ranks of a tp group work on the same tokens, those of all of them.
    tp_.all_gather(std::span(p.x.data(), size(p.x)), std::span(h_[0]));
    tp_.all_gather(std::span(p.target.data(), size(p.target)), std::span(target_));

    for (int64_t l = 0; l < kLayers; ++l) forward(l);
    std::vector<float>& dh = h_[kLayers];  // becomes the loss's gradient
    for (size_t i = 0; i < dh.size(); ++i) dh[i] -= target_[i];
    for (int64_t l = kLayers - 1; l >= 0; --l) backward(l, dh);

    if (stage_ == Stage::ddp) dp_.all_reduce(std::span(gradients_));
    if (stage_ == Stage::zero1)
      for (int64_t l = 0; l < kLayers; ++l) reduce_scatter_gradients(l);
    for (int64_t l = 0; l < kLayers; ++l) update(p, l);

    std::array<int64_t, 1> sum{static_cast<int64_t>(nonce)};
    for (comm::SubGroup* group : {&tp_, &dp_}) group->all_reduce(std::span<int64_t>(sum));
    p.nonces(0) = static_cast<uint64_t>(sum[0]);
    report(p);
  }

 private:
  static size_t size(View<const float, 2> rows) { return static_cast<size_t>(rows.size()); }
  static std::span<float> span(float* first, int64_t floats) { return {first, static_cast<size_t>(floats)}; }
  static void clear(std::vector<float>& numbers) { std::fill(numbers.begin(), numbers.end(), 0.0f); }
  int64_t layer_floats() const { return units_ * kUnit; }  // of the rank's tp half
  int64_t kept(bool whole) const { return whole ? layer_floats() : kShard * kUnit; }

  // The part of the checkpoint that `to` keeps: the hidden units of the rank's tp half, or its shard of them.
  void copy(View<const float, 4> from, const Rank& me, Pieces& to) const {
    const int64_t first = to.floats == layer_floats() ? tp_.rank() * units_ : me.rank() * kShard;
    for (int64_t l = 0; l < kLayers; ++l) std::copy_n(&from(l, first, 0, 0), to.floats, to.layer(l));
  }

  Layer layer(int64_t l) {
    float* weights = weights_.layer(l);
    if (stage_ == Stage::zero3) {
      dp_.all_gather(std::span<const float>(span(weights, weights_.floats)), std::span(gathered_));
      weights = gathered_.data();
    }
    return {units_, weights, gradients(l)};
  }
  float* gradients(int64_t l) { return gradients_.data() + (stage_ < Stage::zero2 ? l * layer_floats() : 0); }

  void forward(int64_t l) {
    const auto at                = static_cast<size_t>(l);
    const std::vector<float>& in = h_[at];
    clear(sum_);
    mlp::forward(layer(l), tokens_, in.data(), z_[at].data(), sum_.data());
    tp_.all_reduce(std::span(sum_));  // each rank of the group has some of the hidden units
    for (size_t i = 0; i < in.size(); ++i) h_[at + 1][i] = in[i] + sum_[i];
  }

  // dh: of h[l + 1], becomes that of h[l].
  void backward(int64_t l, std::vector<float>& dh) {
    const auto at = static_cast<size_t>(l);
    Layer of      = layer(l);
    std::fill_n(of.gradients, layer_floats(), 0.0f);
    clear(sum_);
    mlp::backward(of, tokens_, h_[at].data(), z_[at].data(), dh.data(), l > 0 ? sum_.data() : nullptr);
    if (l > 0) {
      tp_.all_reduce(std::span(sum_));
      for (size_t i = 0; i < dh.size(); ++i) dh[i] += sum_[i];
    }
    if (stage_ >= Stage::zero2) reduce_scatter_gradients(l);
  }

  void reduce_scatter_gradients(int64_t l) {
    dp_.reduce_scatter(std::span<const float>(span(gradients(l), layer_floats())),
                       span(gradient_shards_.layer(l), gradient_shards_.floats));
  }

  // The new shard goes to the outputs. What else a rank keeps lands in buffers of the rank.
  void update(const Training& p, int64_t l) {
    const adamw::Factors factors(kStep);
    const int64_t own = own_unit_ * kUnit, after = own + kShard * kUnit;
    adamw::Weights shard{.w     = weights_.layer(l) + (stage_ == Stage::zero3 ? 0 : own),
                         .m     = m_.layer(l),
                         .v     = v_.layer(l),
                         .g     = gradient_shards_.layer(l),
                         .new_w = &p.new_w(l, 0, 0, 0),
                         .new_m = &p.new_m(l, 0, 0, 0),
                         .new_v = &p.new_v(l, 0, 0, 0)};
    if (stage_ == Stage::ddp) {
      const adamw::Weights all{weights_.layer(l),   m_.layer(l),   v_.layer(l),  gradients(l),
                               new_weights_.data(), new_m_.data(), new_v_.data()};
      adamw::update(factors, all, own);
      adamw::update(factors, all.from(after), layer_floats() - after);
      shard.m += own, shard.v += own, shard.g = gradients(l) + own;
    }
    adamw::update(factors, shard, kShard * kUnit);
    // The next step needs all weights. With stage 3 it gathers them when it comes to them.
    if (stage_ == Stage::zero1 || stage_ == Stage::zero2)
      dp_.all_gather(std::span<const float>(span(shard.new_w, kShard * kUnit)), std::span(new_weights_));
  }

  void report(const Training& p) {
    const auto bytes = [](const std::vector<float>& numbers) {
      return static_cast<int64_t>(numbers.size() * sizeof(float));
    };
    p.weight_bytes(0)   = weights_.bytes() + bytes(gathered_);
    p.gradient_bytes(0) = bytes(gradients_) + gradient_shards_.bytes();
    p.moment_bytes(0)   = m_.bytes() + v_.bytes();
    p.sent_bytes(0)     = ranks_.mesh.sent_bytes() - sent_before_;
    sent_before_ += p.sent_bytes(0);
  }

  Stage stage_;
  Ranks ranks_;
  comm::SubGroup &tp_, &dp_;
  int64_t tokens_, units_;  // of this rank's tp group, and of this rank
  int64_t own_unit_;        // where its shard begins among these units
  Pieces weights_, m_, v_;
  std::vector<float> gradients_;  // of all layers, or of the one in work
  Pieces gradient_shards_;
  std::vector<float> gathered_;  // the weights of the layer in work
  std::vector<float> new_weights_, new_m_,
      new_v_;  // of the layer in work; a step in place has no need of them
  std::array<std::vector<float>, kLayers + 1> h_;
  std::array<std::vector<float>, kLayers> z_;
  std::vector<float> target_, sum_;
  int64_t sent_before_ = 0;
};

}  // namespace

Training::Training(const Point& at, Arena& arena, const Rank& me)
    : x(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
      target(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
      w(arena.input<float>({kLayers, kHidden, 2, kModel}, mlp::weights_of_layers(kHidden))),
      m(arena.input<float>({kLayers, kHidden, 2, kModel}, mlp::the_same_everywhere(1u << 20, -1, 1))),
      v(arena.input<float>({kLayers, kHidden, 2, kModel}, mlp::the_same_everywhere(1u << 21, 0.5, 2))),
      new_w(arena.output<float>({kLayers, kShard, 2, kModel})),
      new_m(arena.output<float>({kLayers, kShard, 2, kModel})),
      new_v(arena.output<float>({kLayers, kShard, 2, kModel})),
      weight_bytes(arena.workspace<int64_t>({1})),
      gradient_bytes(arena.workspace<int64_t>({1})),
      moment_bytes(arena.workspace<int64_t>({1})),
      sent_bytes(arena.workspace<int64_t>({1})),
      nonces(arena.workspace<uint64_t>({1})),
      rank(me.rank()) {}

void Training::metrics(CallMetrics& metrics) const {
  const auto lower = [&](const char* name, int64_t bytes) {
    metrics[name] = {static_cast<double>(bytes), "lower"};
  };
  lower("weight_bytes", weight_bytes(0));
  lower("gradient_bytes", gradient_bytes(0));
  lower("moment_bytes", moment_bytes(0));
  lower("kept_bytes", weight_bytes(0) + gradient_bytes(0) + moment_bytes(0));
  lower("sent_bytes", sent_bytes(0));
}

Step step_of(Stage stage, std::string_view mesh, const Training& prepared, Context& context) {
  return [replica = std::make_shared<Replica>(stage, mesh, prepared, *context.rank)](
             const Training& p, Context& step) { replica->step(p, step.rank->nonce()); };
}

}  // namespace fathom::lab::fully_sharded_cpu
