#include "train/training_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "model/tiny_checkpoint.h"

namespace fathom::train {
namespace {

// A state with numbers of its own.
struct OwnState {
  explicit OwnState(size_t size, float first = 0) : numbers(3 * size) {
    std::iota(numbers.begin(), numbers.end(), first);
    const std::span all(numbers);
    state = {.steps          = 3,
             .weights        = all.subspan(0, size),
             .first_moments  = all.subspan(size, size),
             .second_moments = all.subspan(2 * size, size)};
  }
  std::vector<float> numbers;
  TrainingState state;
};

const nlohmann::ordered_json kIdentity = {{"--seed", 1}, {"--precision", "fp32"}};

class TrainingStateTest : public testing::Test {
 protected:
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  SavedTraining found() const { return find_training_state(folder.path()).value().value(); }

  model::TempFolder folder;
  ThreadPool threads{2};
};

TEST_F(TrainingStateTest, ComesBackAndTheOneBeforeGoes) {
  EXPECT_FALSE(find_training_state(folder.path()).value());
  for (const size_t size : {1u, 7u, 65536u, 65537u, 131072u}) {
    OwnState saved(size, 5);
    ASSERT_TRUE(save_training_state(folder.path(), saved.state, kIdentity, threads));
    saved.state.steps = 8;
    ASSERT_TRUE(save_training_state(folder.path(), saved.state, kIdentity, threads));
    EXPECT_EQ(files(), (std::vector<std::string>{"training_state-8.safetensors", "training_state.json"}));
    OwnState read(size);
    ASSERT_TRUE(load_training_state(found(), read.state));
    EXPECT_EQ(read.state.steps, 8);
    EXPECT_EQ(read.numbers, saved.numbers);
  }
  remove_training_state(folder.path());
  EXPECT_EQ(files(), std::vector<std::string>());
}

TEST_F(TrainingStateTest, AnotherTrainingIsNamed) {
  OwnState saved(5);
  ASSERT_TRUE(save_training_state(folder.path(), saved.state, kIdentity, threads));
  EXPECT_EQ(first_change(found().identity, kIdentity), std::nullopt);
  nlohmann::ordered_json other = kIdentity;
  other["--seed"]              = 2;
  EXPECT_EQ(first_change(found().identity, other), "--seed was 1, and is 2 now");
  OwnState longer(6);
  const Status refused = load_training_state(found(), longer.state);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("has not 6 numbers of weights"), std::string::npos);
}

// Killed while the numbers were written: the JSON file still names those before. Cut short by something else:
// named.
TEST_F(TrainingStateTest, WhatIsDamagedIsNamedAndTheStateBeforeStays) {
  OwnState saved(5);
  ASSERT_TRUE(save_training_state(folder.path(), saved.state, kIdentity, threads));
  std::ofstream(folder.path() / "training_state-4.safetensors.12.partial") << "half";
  OwnState read(5);
  EXPECT_TRUE(load_training_state(found(), read.state));
  EXPECT_EQ(read.state.steps, 3);
  ASSERT_TRUE(save_training_state(folder.path(), saved.state, kIdentity, threads));
  EXPECT_EQ(files().size(), 2u) << "what a killed one left goes with the next";

  // As after a power cut without a flush: the right size, and zeros.
  const auto numbers = folder.path() / "training_state-3.safetensors";
  const auto size    = static_cast<int64_t>(std::filesystem::file_size(numbers));
  std::fstream(numbers, std::ios::in | std::ios::out | std::ios::binary).seekp(size - 4).write("\0\0\0\0", 4);
  const Status zeros = load_training_state(found(), read.state);
  ASSERT_FALSE(zeros);
  EXPECT_NE(zeros.error().message.find("second_moments are not those that were saved"), std::string::npos);

  std::filesystem::resize_file(numbers, 100);
  const Status cut = load_training_state(found(), read.state);
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message.find("training_state-3.safetensors"), std::string::npos);
  for (const char* text :
       {"", "{", "[]", "{}", R"({"schema": "fathom.training_state/1"})",
        R"({"schema": 3, "steps": 1, "numbers": "x", "identity": {}})",
        R"({"schema": "fathom.training_state/1", "steps": "1", "numbers": "x", "identity": {}})",
        R"({"schema": "fathom.training_state/1", "steps": 1, "numbers": "x", "identity": {}})"}) {
    std::ofstream(folder.path() / "training_state.json") << text;
    const auto refused = find_training_state(folder.path());
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().message.find("is no state of a training"), std::string::npos);
  }
  // A name that leads elsewhere does not.
  std::ofstream(folder.path() / "training_state.json")
      << R"({"schema": "fathom.training_state/1", "steps": 1, "numbers": "../../x", "hashes": [], "identity": {}})";
  EXPECT_EQ(found().numbers, folder.path() / "x");
}

}  // namespace
}  // namespace fathom::train
