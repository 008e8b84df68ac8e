#include "model/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "core/expect.h"
#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

using Json = nlohmann::json;
using Load = Safetensors::Load;

std::string bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

// Parses an aligned copy. The spans are invalid afterwards, so only errors and sizes can be checked.
Result<TensorMap> parsed(const std::string& file) {
  std::vector<uint64_t> aligned(file.size() / 8 + 1);
  std::memcpy(aligned.data(), file.data(), file.size());
  auto tensors = parse_safetensors(std::as_bytes(std::span(aligned)).first(file.size()), "f");
  if (tensors) {
    for (const auto& [name, tensor] : *tensors) {
      volatile std::byte sink{};  // with ASan: every byte is inside
      for (const std::byte b : tensor.bytes) sink = b;
      (void)sink;
    }
  }
  return tensors;
}

std::string refusal(const std::string& file) {
  const auto tensors = parsed(file);
  return tensors ? "(accepted)" : tensors.error().message;
}

Json entry(const char* dtype, std::vector<int64_t> shape, uint64_t begin, uint64_t end) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

#define EXPECT_REFUSED(file, part)                               \
  do {                                                           \
    const std::string message = (file);                          \
    EXPECT_NE(message.find(part), std::string::npos) << message; \
  } while (false)

TEST(Safetensors, ReadsValuesBackExactly) {
  const std::vector<float> floats{1.5f, -2, 3e-40f, 4, 5, 6};
  const std::vector<bf16> halves{bf16(0.5f), bf16(-3.0f)};
  const std::vector<int64_t> integers{-1, int64_t{1} << 62};
  const TempFolder folder;
  write_file(folder.path() / "model.safetensors", safetensors_file({{"i", "I64", {2}, bytes_of(integers)},
                                                                    {"f", "F32", {2, 3}, bytes_of(floats)},
                                                                    {"h", "BF16", {2, 1}, bytes_of(halves)},
                                                                    {"empty", "F32", {0, 7}, ""},
                                                                    {"scalar", "U8", {}, "x"}}));
  for (const auto& [path, load] :
       {std::pair(folder.path(), Load::mapped), std::pair(folder.path() / "model.safetensors", Load::mapped),
        std::pair(folder.path(), Load::copied)}) {
    auto opened = Safetensors::open(path, load);
    ASSERT_TRUE(opened) << opened.error().message;
    const Safetensors file = *std::move(opened);
    EXPECT_EQ(file.tensors().size(), 5u);
    const auto f = file.view<float, 2>("f");
    ASSERT_TRUE(f);
    EXPECT_EQ(f->extent(0), 2);
    for (int i = 0; i < 6; ++i) EXPECT_EQ((*f)(i / 3, i % 3), floats[i]);
    EXPECT_EQ((file.view<int64_t, 1>("i")->operator()(1)), int64_t{1} << 62);
    EXPECT_EQ((float((*file.view<bf16, 2>("h"))(1, 0))), -3);
    EXPECT_EQ((file.view<float, 2>("empty")->size()), 0);
    EXPECT_TRUE(file.find("scalar")->shape.empty());
    EXPECT_EQ(file.find("scalar")->bytes[0], std::byte{'x'});

    EXPECT_EQ(file.find("g"), nullptr);
    EXPECT_FALSE((file.view<float, 2>("g")));
    EXPECT_FALSE((file.view<float, 1>("f")));
    EXPECT_FALSE((file.view<int32_t, 2>("f")));
  }
}

TEST(Safetensors, RefusesBadFiles) {
  const std::string eight(8, 'x');
  const auto with = [&](const Json& header) { return refusal(file_of_header(padded(header), eight)); };

  for (size_t n = 0; n < 8; ++n) EXPECT_REFUSED(refusal(std::string(n, '\0')), "truncated");
  EXPECT_REFUSED(refusal(std::string(8, '\xff')), "claims 18446744073709551615 bytes");
  EXPECT_REFUSED(refusal(std::string("\0\0\0\0\0\0\0\0", 8)), "does not begin");
  EXPECT_REFUSED(refusal(file_of_header(std::string("[1] "), "")), "does not begin");
  EXPECT_REFUSED(refusal(file_of_header(std::string("{\"a\":"), "")), "no valid JSON");
  EXPECT_REFUSED(refusal(file_of_header("{\"a\":" + std::string(100'000, '['), "")), "nested deeper");

  const std::string good = safetensors_file({{"a", "U8", {8}, eight}});
  ASSERT_TRUE(parsed(good)) << refusal(good);
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parsed(good.substr(0, n))) << n;
  EXPECT_REFUSED(refusal(good + "y"), "end at byte 8 of the data, which has 9");

  EXPECT_REFUSED(with({{"a", entry("U8", {6}, 0, 6)}, {"b", entry("U8", {4}, 4, 8)}}), "overlap");
  EXPECT_REFUSED(with({{"a", entry("U8", {8}, 0, 8)}, {"b", entry("U8", {8}, 0, 8)}}), "overlap");
  EXPECT_REFUSED(with({{"a", entry("U8", {3}, 0, 3)}, {"b", entry("U8", {4}, 4, 8)}}), "gap");
  EXPECT_REFUSED(with({{"a", entry("U8", {7}, 1, 8)}}), "gap");
  EXPECT_REFUSED(with({{"a", entry("U8", {7}, 0, 7)}}), "which has 8");
  EXPECT_REFUSED(with({{"a", entry("U8", {9}, 0, 9)}}), "truncated");
  EXPECT_REFUSED(with({{"a", entry("U8", {8}, 8, 0)}}), "ends before");
  EXPECT_REFUSED(with({{"a", entry("U8", {7}, 0, 8)}}), "not what U8 [7] needs");
  EXPECT_REFUSED(with({{"a", entry("F32", {8}, 0, 8)}}), "not what F32 [8] needs");
  EXPECT_REFUSED(with({{"a", entry("U8", {int64_t{1} << 62, 4, 2}, 0, 0)}}), "not what");  // 2^65 = 0
  EXPECT_REFUSED(with({{"a", entry("U8", {0, int64_t{1} << 62, 8}, 0, 0)}}), "not what");
  EXPECT_REFUSED(with({{"a", entry("F4", {15}, 0, 8)}}), "not what F4 [15] needs");
  EXPECT_REFUSED(with({{"a", entry("U8", {-8}, 0, 8)}}), "no size");
  EXPECT_REFUSED(with({{"a", entry("U9", {8}, 0, 8)}}), "'U9'");
  EXPECT_REFUSED(
      with({{"a", entry("F32", {1}, 2, 6)}, {"b", entry("U8", {2}, 0, 2)}, {"c", entry("U8", {2}, 6, 8)}}),
      "not aligned");
  EXPECT_REFUSED(with({{"a", 1}}), "no object");
  EXPECT_REFUSED(with({{"a", {{"dtype", "U8"}}}}), "'shape' is missing");
  EXPECT_REFUSED(with({{"a", {{"dtype", 8}, {"shape", {8}}, {"data_offsets", {0, 8}}}}}), "no string");
  EXPECT_REFUSED(with({{"a", {{"dtype", "U8"}, {"shape", 8}, {"data_offsets", {0, 8}}}}}), "no list");
  EXPECT_REFUSED(with({{"a", {{"dtype", "U8"}, {"shape", {8}}, {"data_offsets", {0, 4, 8}}}}}), "no pair");
  EXPECT_REFUSED(with({{"a", entry("U8", std::vector<int64_t>(17, 1), 0, 1)}}), "at most 16");
  EXPECT_REFUSED(refusal(file_of_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                        R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"
                                        "     ",
                                        eight)),
                 "'a' twice");

  // Control characters of a hostile name do not reach the terminal.
  EXPECT_REFUSED(with({{"\x1b[2J" + std::string(1000, 'n'), 1}}), "'?[2Jnnn");
}

TEST(Safetensors, AlignmentIsTheCallersContract) {
  alignas(8) const std::byte bytes[16] = {};
  EXPECT_THROW((void)parse_safetensors(std::span(bytes).subspan(1), "f"), ContractError);
}

class ShardedSet : public testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_.path() / "s0", safetensors_file({{"a", "U8", {1}, "A"}, {"b", "U8", {1}, "B"}}));
    write_file(folder_.path() / "s1", safetensors_file({{"c", "U8", {1}, "C"}}));
  }

  Result<Safetensors> open(const Json& weight_map) {
    write_file(folder_.path() / "model.safetensors.index.json", Json{{"weight_map", weight_map}}.dump());
    return Safetensors::open(folder_.path());
  }
  std::string refusal(const Json& weight_map) {
    const auto set = open(weight_map);
    return set ? "(accepted)" : set.error().message;
  }

  TempFolder folder_;
};

TEST_F(ShardedSet, ReadsEveryShard) {
  const auto set = open({{"a", "s0"}, {"b", "s0"}, {"c", "s1"}});
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ((set->view<uint8_t, 1>("a")->operator()(0)), 'A');
  EXPECT_EQ((set->view<uint8_t, 1>("b")->operator()(0)), 'B');
  EXPECT_EQ((set->view<uint8_t, 1>("c")->operator()(0)), 'C');
}

TEST_F(ShardedSet, RefusesBadSets) {
  EXPECT_REFUSED(refusal({{"a", "s0"}, {"b", "s0"}, {"c", "s2"}}), "s2: No such file");
  EXPECT_REFUSED(refusal({{"a", "s0"}, {"b", "s0"}, {"c", "s0"}}), "'c' is not in 's0'");
  EXPECT_REFUSED(refusal({{"a", "s0"}, {"c", "s1"}}), "'s0' holds 2 tensors, not the 1");
  EXPECT_REFUSED(refusal({{"a", "s0"}, {"b", "s1"}, {"c", "s1"}}), "'s0' holds 2 tensors");
  for (const std::string shard : {"../s0", "/etc/passwd", "..", ".", "", "x/s0", "x\\s0"})
    EXPECT_REFUSED(refusal({{"a", shard}}), "no plain file name");
  EXPECT_REFUSED(refusal({{"a", std::string("s0\0x", 4)}}), "no plain file name");
  EXPECT_REFUSED(refusal({{"a", 0}}), "no plain file name");
  EXPECT_REFUSED(refusal(Json::array()), "no object 'weight_map'");

  write_file(folder_.path() / "s1", safetensors_file({{"c", "U8", {1}, "C"}, {"a", "U8", {1}, "A"}}));
  EXPECT_REFUSED(refusal({{"a", "s0"}, {"b", "s0"}, {"c", "s1"}}), "'a' is in another shard too");
  write_file(folder_.path() / "s1", "");
  EXPECT_REFUSED(refusal({{"a", "s0"}, {"b", "s0"}, {"c", "s1"}}), "truncated");
}

TEST_F(ShardedSet, RefusesBadPlaces) {
  const auto at = [&](const char* name) {
    const auto set = Safetensors::open(folder_.path() / name);
    return set ? "(accepted)" : set.error().message;
  };
  EXPECT_REFUSED(at(""), "neither");
  EXPECT_REFUSED(at("missing"), "No such file");
  ASSERT_EQ(mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  EXPECT_REFUSED(at("pipe"), "no regular file");
  write_file(folder_.path() / "empty.json", "");
  EXPECT_REFUSED(at("empty.json"), "no valid JSON");
}

// Any bytes yield tensors inside the file or an error. Half of the mutants keep the correct header length, so
// that most get past that check.
TEST(Safetensors, SurvivesMutations) {
  std::mt19937_64 random(7);
  const std::string good = safetensors_file({{"first", "F32", {2, 2}, std::string(16, 'f')},
                                             {"second", "BF16", {3, 1}, std::string(6, 's')},
                                             {"third", "U8", {2}, "tt"}});
  ASSERT_TRUE(parsed(good));
  const std::string_view alphabet = "\"{}[],:0123456789-e.xU\\\xff\0";
  int accepted                    = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    std::string mutant    = good;
    const size_t from     = trial % 2 == 0 ? 8 : 0;
    const auto place      = [&] { return from + random() % (mutant.size() - from); };
    const uint64_t effort = 1 + random() % 4;
    for (uint64_t edit = 0; edit < effort; ++edit) switch (random() % 4) {
        case 0:
          mutant[place()] = static_cast<char>(random());
          break;
        case 1:
          mutant[place()] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          mutant.erase(place(), 1 + random() % 3);
          break;
        case 3:
          mutant.insert(place(), mutant.substr(place(), 1 + random() % 12));
          break;
      }
    accepted += parsed(mutant).has_value();
  }
  EXPECT_GT(accepted, 0);  // a changed value or name is still valid
  EXPECT_LT(accepted, 3000);
}

}  // namespace
}  // namespace fathom::model
