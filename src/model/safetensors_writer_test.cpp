#include "model/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <stdexcept>

#include "core/atomic_file.h"
#include "core/expect.h"
#include "model/safetensors.h"
#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

namespace fs = std::filesystem;

std::string contents_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// Byte i of a tensor; differs between tensors.
std::byte byte_at(size_t tensor, int64_t i) {
  return static_cast<std::byte>((static_cast<int64_t>(tensor) * 37 + i * 7 + i / 251) % 251);
}

// A source whose bytes encode their tensor and place.
TensorSource source_of(std::vector<NewTensor> tensors, int64_t rows, size_t number) {
  std::vector<int64_t> row_bytes;
  for (const NewTensor& t : tensors) {
    const int64_t bits =
        std::accumulate(t.shape.begin(), t.shape.end(), int64_t{traits(t.dtype).bits}, std::multiplies<>());
    row_bytes.push_back(rows > 0 ? bits / 8 / rows : 0);
  }
  const auto fill = [row_bytes, number](int64_t first, int64_t n, std::span<const std::span<std::byte>> out) {
    ASSERT_EQ(out.size(), row_bytes.size());
    for (size_t t = 0; t < out.size(); ++t) {
      ASSERT_EQ(static_cast<int64_t>(out[t].size()), n * row_bytes[t]);
      for (int64_t i = 0; i < n * row_bytes[t]; ++i)
        out[t][static_cast<size_t>(i)] = byte_at(number + t, first * row_bytes[t] + i);
    }
  };
  return {.tensors = std::move(tensors), .rows = rows, .fill = fill};
}

void expect_made(const Safetensors& read, const NewTensor& expected, size_t number) {
  const Tensor* tensor = read.find(expected.name);
  ASSERT_NE(tensor, nullptr) << expected.name;
  EXPECT_EQ(tensor->dtype, expected.dtype);
  EXPECT_EQ(tensor->shape, expected.shape);
  int64_t wrong = 0;
  for (size_t i = 0; i < tensor->bytes.size(); ++i)
    wrong += tensor->bytes[i] != byte_at(number, static_cast<int64_t>(i));
  EXPECT_EQ(wrong, 0) << expected.name;
}

TEST(SafetensorsWriter, EveryTypeAndOddSizesReadBack) {
  // An odd number of bytes first, so that the next tensors would be misaligned in the given order.
  const std::vector<NewTensor> tensors{
      {"u8", DType::uint8, {3}},       {"bf16", DType::bf16, {7, 5}},    {"fp64", DType::fp64, {1}},
      {"i8", DType::int8, {13}},       {"fp32", DType::fp32, {2, 3, 1}}, {"fp16", DType::fp16, {31}},
      {"i64", DType::int64, {17}},     {"i32", DType::int32, {1, 1}},    {"u32", DType::uint32, {11}},
      {"e5m2", DType::fp8_e5m2, {1}},  {"e4m3", DType::fp8_e4m3, {3}},   {"e2m1", DType::fp4_e2m1, {3, 2}},
      {"e8m0", DType::e8m0, {5}},      {"none", DType::fp32, {0, 7}},    {"scalar", DType::uint8, {}},
      {"none too", DType::uint8, {0}},
  };
  std::vector<TensorSource> sources;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool empty = !tensors[i].shape.empty() && tensors[i].shape[0] == 0;
    sources.push_back(source_of({tensors[i]}, empty ? 0 : 1, i));
  }
  const TempFolder folder;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const fs::path path = folder.path() / "new folder" / std::to_string(threads);
    const auto bytes    = write_safetensors(path, sources, pool);
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_EQ(*bytes, static_cast<int64_t>(fs::file_size(path)));
    const auto read = Safetensors::open(path);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->tensors().size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) expect_made(*read, tensors[i], i);
  }
  EXPECT_EQ(contents_of(folder.path() / "new folder/1"), contents_of(folder.path() / "new folder/3"));
  EXPECT_EQ(names_in(folder.path() / "new folder"), (std::set<std::string>{"1", "3"}));
}

TEST(SafetensorsWriter, FileWithoutTensorsReadsBack) {
  const TempFolder folder;
  ThreadPool pool(2);
  ASSERT_TRUE(write_safetensors(folder.path() / "f", {}, pool));
  const auto read = Safetensors::open(folder.path() / "f");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->tensors().empty());
}

// Tensors of one source advance together. They are larger than a piece, so that several threads fill each.
TEST(SafetensorsWriter, TensorsOfOneSourceAreSplitAtRows) {
  constexpr int64_t kRows = 100'003;
  const std::vector<NewTensor> pair{{"values", DType::uint8, {kRows, 16 * 5}},
                                    {"scales", DType::uint8, {kRows, 5}}};
  const NewTensor other{"other", DType::bf16, {3, 1'000'003}};
  const TempFolder folder;
  ThreadPool pool(3);
  std::vector<std::pair<int64_t, int64_t>> seen;
  const std::vector<TensorSource> sources{source_of(pair, kRows, 0), source_of({other}, 3, 2)};
  const auto bytes = write_safetensors(folder.path() / "f", sources, pool,
                                       [&](int64_t done, int64_t total) { seen.emplace_back(done, total); });
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto read = Safetensors::open(folder.path() / "f");
  ASSERT_TRUE(read) << read.error().message;
  expect_made(*read, pair[0], 0);
  expect_made(*read, pair[1], 1);
  expect_made(*read, other, 2);

  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), std::pair(*bytes, *bytes));
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].second, *bytes);
    EXPECT_GE(seen[i].first, i == 0 ? 0 : seen[i - 1].first);
  }
}

TEST(SafetensorsWriter, AFailureKeepsTheOldFile) {
  const TempFolder folder;
  write_file(folder.path() / "f", "precious");
  ThreadPool pool(2);
  const TensorSource source{.tensors = {{"t", DType::uint8, {64 << 20}}},
                            .rows    = 64 << 20,
                            .fill    = [](int64_t first, int64_t, auto) {
                              if (first > 0) throw std::domain_error("no such weights");
                            }};
  EXPECT_THROW((void)write_safetensors(folder.path() / "f", {&source, 1}, pool), std::domain_error);
  EXPECT_EQ(contents_of(folder.path() / "f"), "precious");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"f"});
}

TEST(SafetensorsWriter, SourcesThatDoNotFitTheirShapesAreRefused) {
  const TempFolder folder;
  ThreadPool pool(1);
  const auto write = [&](std::vector<NewTensor> tensors, int64_t rows) {
    const TensorSource source{.tensors = std::move(tensors), .rows = rows, .fill = {}};
    (void)write_safetensors(folder.path() / "f", {&source, 1}, pool);
  };
  EXPECT_THROW(write({{"t", DType::uint8, {7}}}, 2), ContractError);
  EXPECT_THROW(write({{"t", DType::uint8, {7}}}, 0), ContractError);
  EXPECT_THROW(write({{"t", DType::fp4_e2m1, {7}}}, 1), ContractError);
  EXPECT_THROW(write({{"t", DType::uint8, {0}}, {"t", DType::uint8, {0}}}, 0), ContractError);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(NewFile, FailsWhereNoFileCanBeCreated) {
  const TempFolder folder;
  write_file(folder.path() / "file", "");
  for (const fs::path& path : {folder.path() / "file" / "f", fs::path("/proc/f")}) {
    const auto status = write_text_file(path, "text");
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find(path.string()), std::string::npos) << status.error().message;
  }
}

TEST(NewFile, UnpublishedIsRemovedAndPublishedReplaces) {
  const TempFolder folder;
  write_file(folder.path() / "f", "old and longer");
  {
    auto file = NewFile::create(folder.path() / "f", 3);
    ASSERT_TRUE(file);
    file->write(0, std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(names_in(folder.path()).size(), 2u);
  }
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"f"});
  EXPECT_EQ(contents_of(folder.path() / "f"), "old and longer");
  ASSERT_TRUE(write_text_file(folder.path() / "f", "new"));
  EXPECT_EQ(contents_of(folder.path() / "f"), "new");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"f"});
}

}  // namespace
}  // namespace fathom::model
