#include "train/save.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/rng.h"
#include "model/checkpoint.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::train {
namespace {

TEST(Save, ACheckpointComesBackInBf16) {
  const model::TempFolder source, target;
  ThreadPool threads(2);
  ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 3}, source.path(),
                                               threads));
  const auto checkpoint = model::Checkpoint::open(source.path()).value();
  ASSERT_TRUE(checkpoint.config.mxfp4_experts);
  auto parameters = parameters_of(checkpoint.config, checkpoint.weights);
  ASSERT_TRUE(save_checkpoint(target.path(), source.path(), parameters, threads));
  const auto saved = model::Checkpoint::open(target.path()).value();
  EXPECT_FALSE(saved.config.mxfp4_experts);
  EXPECT_EQ(saved.weights.layout, model::Layout::hf_bf16);
  // MXFP4 numbers are BF16 numbers.
  const auto again = parameters_of(saved.config, saved.weights);
  EXPECT_TRUE(std::ranges::equal(parameters.all(), again.all()));
  // What is none is rounded.
  fill_normal(parameters.all().data(), static_cast<int64_t>(parameters.all().size()), 7, 0, 1);
  ASSERT_TRUE(save_checkpoint(target.path(), source.path(), parameters, threads));
  const auto rounded_file = model::Checkpoint::open(target.path()).value();
  const auto rounded      = parameters_of(rounded_file.config, rounded_file.weights);
  for (size_t i = 0; i < rounded.all().size(); ++i)
    ASSERT_EQ(rounded.all()[i], static_cast<float>(bf16(parameters.all()[i]))) << i;
}

TEST(Save, SaysBeforeWhatItCannotDo) {
  const model::TempFolder source, target;
  ThreadPool threads(1);
  ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 3}, source.path(),
                                               threads));
  auto checkpoint = model::Checkpoint::open(source.path()).value();
  EXPECT_TRUE(can_save_checkpoint(target.path() / "new", source.path(), checkpoint));
  EXPECT_FALSE(std::filesystem::exists(target.path() / "new"));
  EXPECT_FALSE(can_save_checkpoint("/proc/none", source.path(), checkpoint));
  checkpoint.weights.layout = model::Layout::original;
  const auto refused        = can_save_checkpoint(target.path() / "new", source.path(), checkpoint);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("original"), std::string::npos);
}

TEST(Save, AnAdapterHasPeftsNames) {
  const model::TempFolder folder;
  ThreadPool threads(1);
  auto json         = model::tiny_config();
  const auto config = model::parse_config(json.dump(), "config.json").value();
  Lora lora(config, 2, 8);
  initialize(lora, 1);
  ASSERT_TRUE(save_adapter(folder.path(), "base", lora, threads));
  const auto file = model::Safetensors::open(folder.path() / "adapter_model.safetensors").value();
  const auto a =
      file.view<float, 2>("base_model.model.model.layers.3.self_attn.o_proj.lora_A.weight").value();
  EXPECT_EQ(a.extent(0), 2);
  EXPECT_EQ(a.extent(1), config.num_attention_heads * config.head_dim);
  EXPECT_EQ(a(1, 5), lora.layers[3].out.a(1, 5));
  EXPECT_EQ(file.tensors().size(), static_cast<size_t>(config.num_hidden_layers * 8));
  const auto written = nlohmann::json::parse(std::ifstream(folder.path() / "adapter_config.json"));
  EXPECT_EQ(written["r"], 2);
  EXPECT_EQ(written["lora_alpha"], 8);
  EXPECT_EQ(written["peft_type"], "LORA");
}

}  // namespace
}  // namespace fathom::train
