// For tests: the config of the tiny shape, safetensors files of given tensors, and a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fathom::model {

inline nlohmann::json tiny_config() {
  return nlohmann::json::parse(R"({
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true,
    "vocab_size": 384, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 16,
    "num_attention_heads": 8, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 4,
    "experts_per_token": 4, "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "hidden_act": "silu", "rms_norm_eps": 1e-05, "swiglu_limit": 7.0, "tie_word_embeddings": false,
    "initial_context_length": 4096, "max_position_embeddings": 131072, "rope_theta": 150000,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                     "truncate": false, "original_max_position_embeddings": 4096},
    "quantization_config": {"quant_method": "mxfp4"}, "eos_token_id": 2, "pad_token_id": 1})");
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = std::filesystem::temp_directory_path() / "fathom_model_XXXXXX";
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder: set TMPDIR");
    path_ = name;
  }
  TempFolder(const TempFolder&)            = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code nobody_to_tell;
    std::filesystem::remove_all(path_, nobody_to_tell);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct RawTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A whole file: header length, header, data.
inline std::string file_of_header(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

// The header padded with spaces, so that the data begins at a multiple of 8.
inline std::string padded(const nlohmann::json& header) {
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

inline std::string safetensors_file(const std::vector<RawTensor>& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const RawTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  return file_of_header(padded(header), data);
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace fathom::model
