// The reference is a model whose matrices have the adapter added. Entries that adapters change are exact in
// bf16, so that both compute the same sums, in another order.
#include "model/lora_adapter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "model/gpt_oss.h"
#include "model/ops.h"
#include "model/safetensors.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"
#include "model/weights.h"

namespace fathom::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLoraPage    = 8;
constexpr const char* kNames[] = {"q_proj", "k_proj", "v_proj", "o_proj"};

std::string fp32_bytes(const std::vector<float>& numbers) {
  std::string bytes(numbers.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

nlohmann::json plain_config(int64_t rank) {
  return {{"peft_type", "LORA"},
          {"r", rank},
          {"lora_alpha", 2 * rank},
          {"bias", "none"},
          {"target_modules", {"q_proj", "k_proj", "v_proj", "o_proj"}}};
}

// Row and column of entry r of a matrix that adapter `which` changes by `kAdded`.
struct Entry {
  int64_t row, column;
};
constexpr float kAdded = 1.5f;
Entry entry_of(int64_t which, int64_t layer, int matrix, int64_t r, int64_t out, int64_t in) {
  return {(7 * r + 3 * layer + which) % out, (11 * r + 5 * matrix + 13 * which + layer) % in};
}

struct Scene {
  TempFolder folder;
  ThreadPool threads{2};
  Config config;
  std::unique_ptr<Safetensors> tensors;
  Weights weights;
  std::deque<Buffer<bf16>> copies;

  Scene() {
    const auto made =
        make_synthetic_checkpoint({.shape = ModelShape::tiny, .seed = 5}, folder.path() / "model", threads);
    if (!made) throw std::runtime_error(made.error().message);
    config  = read_config(folder.path() / "model/config.json").value();
    tensors = std::make_unique<Safetensors>(Safetensors::open(folder.path() / "model").value());
    weights = find_weights(config, *tensors).value();
  }

  std::pair<int64_t, int64_t> shape(int matrix) const {
    const int64_t q                            = config.num_attention_heads * config.head_dim,
                  kv                           = config.num_key_value_heads * config.head_dim;
    const std::pair<int64_t, int64_t> shapes[] = {
        {q, config.hidden_size}, {kv, config.hidden_size}, {kv, config.hidden_size}, {config.hidden_size, q}};
    return shapes[matrix];
  }

  // An adapter of rank 3 and scale 2 with one entry for each rank: A has a 1, B half of what it adds.
  std::string adapter(int64_t which) const {
    const fs::path at = folder.path() / ("adapter" + std::to_string(which));
    fs::create_directories(at);
    std::vector<RawTensor> files;
    for (int64_t l = 0; l < config.num_hidden_layers; ++l)
      for (int m = 0; m < kAttentionMatrices; ++m) {
        const auto [out, in] = shape(m);
        std::vector<float> a(static_cast<size_t>(3 * in)), b(static_cast<size_t>(out * 3));
        for (int64_t r = 0; r < 3; ++r) {
          const Entry entry                             = entry_of(which, l, m, r, out, in);
          a[static_cast<size_t>(r * in + entry.column)] = 1;
          b[static_cast<size_t>(entry.row * 3 + r)]     = kAdded / 2;
        }
        const std::string name =
            "base_model.model.model.layers." + std::to_string(l) + ".self_attn." + kNames[m];
        files.push_back({name + ".lora_A.weight", "F32", {3, in}, fp32_bytes(a)});
        files.push_back({name + ".lora_B.weight", "F32", {out, 3}, fp32_bytes(b)});
      }
    write_file(at / "adapter_model.safetensors", safetensors_file(files));
    write_file(at / "adapter_config.json", plain_config(3).dump());
    return at.string();
  }

  // The model with zeros where adapter 0 or 1 adds; with the sum where `merged` does.
  Weights with(int64_t merged) {
    Weights changed = weights;
    for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
      LayerWeights& layer           = changed.layers[static_cast<size_t>(l)];
      DenseMatrix* const matrices[] = {&layer.q, &layer.k, &layer.v, &layer.out};
      for (int m = 0; m < kAttentionMatrices; ++m) {
        const auto [out, in] = shape(m);
        const auto from      = std::get<View<const bf16, 2>>(*matrices[m]);
        Buffer<bf16>& copy   = copies.emplace_back(out * in);
        for (int64_t i = 0; i < out * in; ++i) copy.data()[i] = from(i / in, i % in);
        for (const int64_t which : {0, 1})
          for (int64_t r = 0; r < 3; ++r) {
            const Entry entry                          = entry_of(which, l, m, r, out, in);
            copy.data()[entry.row * in + entry.column] = bf16(0.0f);
          }
        for (int64_t r = 0; merged >= 0 && r < 3; ++r) {
          const Entry entry = entry_of(merged, l, m, r, out, in);
          bf16& number      = copy.data()[entry.row * in + entry.column];
          number            = bf16(static_cast<float>(number) + kAdded);
        }
        *matrices[m] = View<const bf16, 2>(copy.data(), {out, in});
      }
    }
    return changed;
  }

  // Logits of all rows of sequences of these lengths, prompts in one step.
  std::vector<float> logits(const Weights& of, const std::vector<int64_t>& lengths,
                            const std::vector<int64_t>& seeds, const std::vector<int32_t>& adapters,
                            int threads_used = 2) {
    ThreadPool pool(threads_used);
    const int64_t T = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), P = 64 / kLoraPage;
    const auto S = std::ssize(lengths);
    GptOss model(config, of, cpu_ops(), T, T, pool);
    if (!adapters.empty()) {
      std::vector<LoraAdapter> opened;
      for (const int64_t which : {0, 1}) opened.push_back(LoraAdapter::open(adapter(which), config).value());
      model.set_adapters(std::move(opened));
    }
    KvCache kv(config, P * S, P * S, kLoraPage);
    std::vector<int32_t> tokens, positions, first = {0}, pages(static_cast<size_t>(P * S)),
                                            rows(static_cast<size_t>(T));
    std::iota(pages.begin(), pages.end(), 0);
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int64_t i = 0; i < lengths[s]; ++i) {
        tokens.push_back(static_cast<int32_t>((seeds[s] * 31 + i * 17) % config.vocab_size));
        positions.push_back(static_cast<int32_t>(i));
      }
      first.push_back(static_cast<int32_t>(tokens.size()));
    }
    model.forward({.tokens       = {tokens.data(), {T}},
                   .rows         = {.first_row = {first.data(), {S + 1}},
                                    .positions = {positions.data(), {T}},
                                    .pages     = {pages.data(), {S, P}}},
                   .window_pages = {pages.data(), {S, P}},
                   .adapters     = adapters},
                  kv);
    std::vector<float> out(static_cast<size_t>(T * config.vocab_size));
    model.logits({rows.data(), {T}}, {out.data(), {T, config.vocab_size}});
    return out;
  }
};

double lora_distance(const std::vector<float>& a, const std::vector<float>& b, size_t from = 0) {
  double largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    EXPECT_TRUE(std::isfinite(a[from + i]));
    largest = std::max(largest, std::abs(static_cast<double>(a[from + i]) - b[i]));
  }
  return largest;
}

TEST(LoraAdapter, ComputesWhatAMergedModelDoes) {
  Scene scene;
  const Weights base                 = scene.with(-1);
  const std::vector<int64_t> lengths = {1, 7, 33, 17}, seeds = {3, 4, 5, 6};
  const std::vector<int32_t> adapters = {1, -1, 0, 1};
  const auto mixed                    = scene.logits(base, lengths, seeds, adapters);
  size_t at                           = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto merged = scene.logits(scene.with(adapters[s]), {lengths[s]}, {seeds[s]}, {});
    const auto alone  = scene.logits(base, {lengths[s]}, {seeds[s]}, {adapters[s]}, 1);
    EXPECT_LT(lora_distance(mixed, merged, at), 2e-3) << "sequence " << s;
    EXPECT_EQ(std::memcmp(mixed.data() + at, alone.data(), alone.size() * sizeof(float)), 0)
        << "sequence " << s << ": bits depend on the batch or on threads";
    if (adapters[s] >= 0) {
      EXPECT_GT(lora_distance(mixed, scene.logits(base, {lengths[s]}, {seeds[s]}, {}), at), 0.1)
          << "the adapter does nothing";
    }
    at += merged.size();
  }
}

TEST(LoraAdapter, ReadsTheTypesOfPeft) {
  Scene scene;
  const fs::path at(scene.adapter(0));
  const auto plain = LoraAdapter::open(at.string(), scene.config);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->rank(), 3);
  // rank-stabilised: alpha / sqrt(r)
  auto config          = plain_config(3);
  config["use_rslora"] = true;
  write_file(at / "adapter_config.json", config.dump());
  const auto stabilised = LoraAdapter::open(at.string(), scene.config);
  ASSERT_TRUE(stabilised) << stabilised.error().message;
  const auto [out, in] = scene.shape(kValue);
  const Entry entry    = entry_of(0, 0, kValue, 1, out, in);
  EXPECT_EQ(static_cast<float>(plain->pair(0, kValue).b(entry.row, 1)), kAdded);
  EXPECT_EQ(static_cast<float>(plain->pair(0, kValue).a(1, entry.column)), 1);
  EXPECT_NEAR(static_cast<float>(stabilised->pair(0, kValue).b(entry.row, 1)), kAdded * std::sqrt(3.0f),
              0.01f);
}

TEST(LoraAdapter, RefusesWhatItWouldComputeWrongly) {
  Scene scene;
  const fs::path at(scene.adapter(0));
  const auto refused = [&](const nlohmann::json& config) {
    write_file(at / "adapter_config.json", config.dump());
    const auto opened = LoraAdapter::open(at.string(), scene.config);
    return opened ? std::string() : opened.error().message;
  };
  const auto with = [](const char* key, const nlohmann::json& value) {
    auto config = plain_config(3);
    config[key] = value;
    return config;
  };
  EXPECT_EQ(refused(plain_config(3)), "");
  for (const auto& [config, said] : std::vector<std::pair<nlohmann::json, std::string>>{
           {with("peft_type", "LOHA"), "peft_type is not LORA"},
           {with("use_dora", true), "use_dora"},
           {with("fan_in_fan_out", true), "fan_in_fan_out"},
           {with("bias", "all"), "bias"},
           {with("rank_pattern", {{"q_proj", 8}}), "rank_pattern"},
           {with("modules_to_save", {"lm_head"}), "modules_to_save"},
           {with("r", 0), "r is 0"},
           {with("r", "3"), "r is no number"},
           {with("lora_alpha", nullptr), "lora_alpha is no number"},
           {with("lora_alpha", 1e300), "out of range"},
           {with("r", 100000), "r is 100000"},
           {with("init_lora_weights", "pissa_niter_4"), "init_lora_weights"},
           {with("alora_invocation_tokens", {1, 2}), "alora_invocation_tokens"},
           {with("r", 4), "but rank 4 and this model make it"},
           {nlohmann::json::array(), "no JSON object"}})
    EXPECT_NE(refused(config).find(said), std::string::npos) << said << " is not in: " << refused(config);

  const auto refused_tensors = [&](const std::vector<RawTensor>& tensors) {
    write_file(at / "adapter_config.json", plain_config(3).dump());
    write_file(at / "adapter_model.safetensors", safetensors_file(tensors));
    const auto opened = LoraAdapter::open(at.string(), scene.config);
    return opened ? std::string() : opened.error().message;
  };
  const auto [out, in]   = scene.shape(kQuery);
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  const RawTensor a{
      name + "A.weight", "F32", {3, in}, fp32_bytes(std::vector<float>(static_cast<size_t>(3 * in)))};
  const RawTensor b{
      name + "B.weight", "F32", {out, 3}, fp32_bytes(std::vector<float>(static_cast<size_t>(3 * out)))};
  EXPECT_EQ(refused_tensors({a, b}), "") << "an adapter of one matrix";
  EXPECT_NE(refused_tensors({a}).find("lora_A or lora_B alone"), std::string::npos);
  EXPECT_NE(refused_tensors({}).find("adapts nothing"), std::string::npos);
  RawTensor expert = a;
  expert.name      = "base_model.model.model.layers.0.mlp.router.lora_A.weight";
  EXPECT_NE(refused_tensors({a, b, expert}).find("something else than attention's matrices"),
            std::string::npos);
  RawTensor integers = a;
  integers.dtype     = "I32";
  EXPECT_NE(refused_tensors({integers, b}).find("must be in F32, BF16 or F16"), std::string::npos);
  RawTensor infinite = b;
  const float large  = 3e38f;  // finite in fp32, and with the scale of 2 no more
  std::memcpy(infinite.bytes.data(), &large, sizeof large);
  EXPECT_NE(refused_tensors({a, infinite}).find("not finite"), std::string::npos);
  EXPECT_NE(LoraAdapter::open("/nowhere", scene.config)
                .error()
                .message.find("/nowhere/adapter_config.json cannot be read"),
            std::string::npos);
}

}  // namespace
}  // namespace fathom::model
