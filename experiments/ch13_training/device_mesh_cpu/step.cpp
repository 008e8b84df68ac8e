// The step, once for all meshes: each sum and each exchange names the axes that it runs over.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "comm/device_mesh.h"
#include "experiments/tcp_ranks.h"
#include "training.h"

namespace fathom::lab::device_mesh_cpu {
namespace {

struct Layer {
  int64_t experts, hidden;  // hidden units of each expert
  // w1 of all units, then w2 of all units: a row of kModel for each.
  std::vector<float> weights, gradients;

  int64_t units() const { return experts * hidden; }
  const float* w1(int64_t unit) const { return &weights[static_cast<size_t>(unit * kModel)]; }
  const float* w2(int64_t unit) const { return w1(units() + unit); }
  float* dw1(int64_t unit) { return &gradients[static_cast<size_t>(unit * kModel)]; }
  float* dw2(int64_t unit) { return dw1(units() + unit); }
};

struct Ranks {
  explicit Ranks(std::string_view mesh_text, const Rank& me)
      : world(join_over_tcp(me)), mesh(*world, comm::parse_mesh(mesh_text).value()) {}
  std::unique_ptr<comm::Group> world;
  comm::DeviceMesh mesh;
};

// What a rank keeps. The number of rows of every buffer follows from the mesh.
class Replica {
 public:
  Replica(std::string_view mesh, const Training& p, const Rank& me)
      : ranks_(mesh, me),
        tp_(group({"tp"})),
        ep_(group({"ep"})),
        tokens_(p.tokens() * tp_.size()),
        first_token_(p.tokens() * (me.rank() - tp_.rank())),
        capacity_((tokens_ + kExperts - 1) / kExperts),
        dense_(part_of(p.w1, p.w2, 1, 0, 1)),
        experts_(part_of(p.v1, p.v2, kExperts, ep_.rank(), ep_.size())) {
    const int64_t rows = kExperts * capacity_;  // of a rank's experts: those of its ep group
    for (std::vector<float>* buffer : {&x_, &target_, &h_, &y_, &dh_, &sum_})
      allocate(*buffer, tokens_ * kModel);
    for (std::vector<float>* buffer : {&pieces_, &arrived_, &rows_, &results_, &drows_})
      allocate(*buffer, rows * kModel);
    allocate(z_, tokens_ * dense_.hidden);
    allocate(expert_z_, rows * experts_.hidden);
  }

  void step(const Training& p, uint64_t nonce) {
    // Ranks of a tp group work on the same tokens, those of all of them.
    tp_.all_gather(std::span(p.x.data(), part()), std::span(x_));
    tp_.all_gather(std::span(p.target.data(), part()), std::span(target_));

    // Forward. A tp group's ranks have some of the hidden units each, and so a part of every sum.
    forward_dense();
    dispatch(h_, rows_);
    clear(results_);
    mlp::forward(experts_, rows_of_expert(), rows_.data(), expert_z_.data(), results_.data());
    combine(results_, sum_);
    tp_.all_reduce(std::span(sum_));
    for (size_t i = 0; i < y_.size(); ++i) y_[i] = h_[i] + sum_[i];

    // Backward. The gradient of the loss is y - target; y_ becomes it.
    for (size_t i = 0; i < y_.size(); ++i) y_[i] -= target_[i];
    dispatch(y_, drows_);
    clear(results_);
    clear(experts_.gradients);
    mlp::backward(experts_, rows_of_expert(), rows_.data(), expert_z_.data(), drows_.data(), results_.data());
    combine(results_, sum_);
    tp_.all_reduce(std::span(sum_));
    for (size_t i = 0; i < dh_.size(); ++i) dh_[i] = y_[i] + sum_[i];
    clear(dense_.gradients);
    mlp::backward(dense_, tokens_, x_.data(), z_.data(), dh_.data(), nullptr);

    // Every rank of dp and ep has tokens of its own. An expert has seen those of its ep group already.
    group({"ep", "dp"}).all_reduce(std::span(dense_.gradients));
    group({"dp"}).all_reduce(std::span(experts_.gradients));

    p.nonces(0) = nonce;
    for (const char* axis : kAxisNames) {
      std::array<int64_t, 1> sum{static_cast<int64_t>(p.nonces(0))};
      group({axis}).all_reduce(std::span<int64_t>(sum));
      p.nonces(0) = static_cast<uint64_t>(sum[0]);
    }
    report(p);
  }

 private:
  comm::SubGroup& group(std::initializer_list<std::string_view> axes) { return ranks_.mesh.group(axes); }
  size_t part() const { return static_cast<size_t>(tokens_ / tp_.size() * kModel); }
  int64_t rows_of_expert() const { return capacity_ * ep_.size(); }
  static void clear(std::vector<float>& numbers) { std::fill(numbers.begin(), numbers.end(), 0.0f); }

  void allocate(std::vector<float>& buffer, int64_t floats) {
    buffer.resize(static_cast<size_t>(floats));
    activation_bytes_ += floats * int64_t{sizeof(float)};
  }

  // Experts by ep, hidden units of each by tp.
  Layer part_of(View<const float, 2> w1, View<const float, 2> w2, int64_t experts, int ep, int eps) const {
    const int64_t all = w1.extent(0) / experts, hidden = all / tp_.size();
    Layer layer{.experts = experts / eps, .hidden = hidden, .weights = {}, .gradients = {}};
    for (const View<const float, 2>& w : {w1, w2})
      for (int64_t e = 0; e < layer.experts; ++e) {
        const float* const first = &w((ep * layer.experts + e) * all + tp_.rank() * hidden, 0);
        layer.weights.insert(layer.weights.end(), first, first + hidden * kModel);
      }
    layer.gradients.resize(layer.weights.size());
    return layer;
  }

  void forward_dense() {
    clear(sum_);
    mlp::forward(dense_, tokens_, x_.data(), z_.data(), sum_.data());
    tp_.all_reduce(std::span(sum_));
    for (size_t i = 0; i < h_.size(); ++i) h_[i] = x_[i] + sum_[i];
  }

  // Where a token's row lies in pieces_: by expert, and in the order of tokens.
  float* row_in_pieces(int64_t token) {
    const int64_t expert = (first_token_ + token) % kExperts;
    return &pieces_[static_cast<size_t>((expert * capacity_ + token / kExperts) * kModel)];
  }
  // [source rank][expert] as an all-to-all brings it, and [expert][source rank] as experts want it.
  template <class Copy>
  void for_each_block(const Copy& copy) {
    const int64_t block = capacity_ * kModel;
    for (int64_t source = 0; source < ep_.size(); ++source)
      for (int64_t e = 0; e < experts_.experts; ++e)
        copy((source * experts_.experts + e) * block, (e * ep_.size() + source) * block, block);
  }

  // Rows of tokens to the ranks of their experts. Rows that no token has are zero, and add nothing.
  void dispatch(const std::vector<float>& tokens, std::vector<float>& rows) {
    clear(pieces_);
    for (int64_t t = 0; t < tokens_; ++t)
      std::copy_n(&tokens[static_cast<size_t>(t * kModel)], kModel, row_in_pieces(t));
    ep_.all_to_all(std::span<const float>(pieces_), std::span(arrived_));
    for_each_block([&](int64_t from, int64_t to, int64_t n) {
      std::copy_n(arrived_.begin() + from, n, rows.begin() + to);
    });
  }
  // And back.
  void combine(const std::vector<float>& rows, std::vector<float>& tokens) {
    for_each_block([&](int64_t to, int64_t from, int64_t n) {
      std::copy_n(rows.begin() + from, n, arrived_.begin() + to);
    });
    ep_.all_to_all(std::span<const float>(arrived_), std::span(pieces_));
    for (int64_t t = 0; t < tokens_; ++t)
      std::copy_n(row_in_pieces(t), kModel, &tokens[static_cast<size_t>(t * kModel)]);
  }

  void report(const Training& p) {
    // The part of a layer that rank r has on every mesh, from what it has on this one.
    const auto copy = [&](Layer& layer, int64_t experts, int64_t hidden, int half_of_experts,
                          View<float, 3> out) {
      const int64_t first_expert = (half_of_experts * experts) % layer.experts;
      const int64_t first_hidden = (p.rank % 2 * hidden) % layer.hidden;
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t unit = (first_expert + e) * layer.hidden + first_hidden;
        std::copy_n(layer.dw1(unit), hidden * kModel, &out(0, e * hidden, 0));
        std::copy_n(layer.dw2(unit), hidden * kModel, &out(1, e * hidden, 0));
      }
    };
    copy(dense_, 1, kHidden / 2, 0, p.dense);
    copy(experts_, kExperts / 2, kExpertHidden / 2, p.rank / 2, p.experts);

    p.weight_bytes(0) =
        static_cast<int64_t>((dense_.weights.size() + experts_.weights.size()) * 2 * sizeof(float));
    p.activation_bytes(0) = activation_bytes_;
    const auto since      = [&](int a, comm::SubGroup& of) {
      p.sent_bytes(a)                      = of.sent_bytes() - sent_before_[static_cast<size_t>(a)];
      sent_before_[static_cast<size_t>(a)] = of.sent_bytes();
    };
    for (int a = 0; a < kAxes; ++a) since(a, group({kAxisNames[static_cast<size_t>(a)]}));
    since(kAxes, group({"ep", "dp"}));
  }

  Ranks ranks_;
  comm::SubGroup &tp_, &ep_;
  int64_t tokens_, first_token_;  // of this rank's tp group
  int64_t capacity_;              // rows of an expert that a rank may send to it
  Layer dense_, experts_;
  int64_t activation_bytes_ = 0;
  std::vector<float> x_, target_, h_, y_, dh_, sum_, z_;                     // by token
  std::vector<float> pieces_, arrived_, rows_, results_, drows_, expert_z_;  // by expert
  std::array<int64_t, kAxes + 1> sent_before_{};
};

}  // namespace

Training::Training(const Point& at, Arena& arena, const Rank& me)
    : x(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
      target(arena.input<float>({at["tokens"], kModel}, Uniform{-1, 1})),
      w1(arena.input<float>({kHidden, kModel}, weights(1, kModel))),
      w2(arena.input<float>({kHidden, kModel}, weights(2, kHidden))),
      v1(arena.input<float>({kExperts * kExpertHidden, kModel}, weights(3, kModel))),
      v2(arena.input<float>({kExperts * kExpertHidden, kModel}, weights(4, kExpertHidden))),
      dense(arena.output<float>({2, kHidden / 2, kModel})),
      experts(arena.output<float>({2, kExperts / 2 * kExpertHidden / 2, kModel})),
      weight_bytes(arena.workspace<int64_t>({1})),
      activation_bytes(arena.workspace<int64_t>({1})),
      sent_bytes(arena.workspace<int64_t>({kAxes + 1})),
      nonces(arena.workspace<uint64_t>({1})),
      rank(me.rank()) {}

void Training::metrics(CallMetrics& metrics) const {
  const auto lower = [&](const char* name, int64_t bytes) {
    metrics[name] = {static_cast<double>(bytes), "lower"};
  };
  lower("weight_and_gradient_bytes", weight_bytes(0));
  lower("activation_bytes", activation_bytes(0));
  lower("kept_bytes", weight_bytes(0) + activation_bytes(0));
  int64_t sent = 0;
  for (int a = 0; a <= kAxes; ++a) sent += sent_bytes(a);
  lower("sent_bytes", sent);
  lower("sent_bytes_ep", sent_bytes(0));
  lower("sent_bytes_tp", sent_bytes(2));
  lower("sent_bytes_gradients", sent_bytes(1) + sent_bytes(3));
}

Step step_on(std::string_view mesh, const Training& prepared, Context& context) {
  return [replica = std::make_shared<Replica>(mesh, prepared, *context.rank)](
             const Training& p, Context& step) { replica->step(p, step.rank->nonce()); };
}

}  // namespace fathom::lab::device_mesh_cpu
