#include "model/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/atomic_file.h"
#include "core/expect.h"
#include "model/safetensors_dtypes.h"

namespace fathom::model {
namespace {

constexpr int64_t kPieceBytes = int64_t{4}
                                << 20;  // per thread: many pieces in a file, few writes to the disk

const char* format_name(DType dtype) {
  for (const SafetensorsDType& known : kSafetensorsDTypes)
    if (known.dtype == dtype) return known.name;
  contract_broken("dtype", "this is no DType", __FILE__, __LINE__);
}

int64_t bytes_of(const NewTensor& tensor) {
  int64_t bits = traits(tensor.dtype).bits;
  for (const int64_t extent : tensor.shape) bits *= extent;
  FATHOM_EXPECT(bits >= 0 && bits % 8 == 0, fmt::format("{} is no whole number of bytes", tensor.name));
  return bits / 8;
}

// The place of a source's rows in the file.
struct Placed {
  const TensorSource* source;
  std::vector<int64_t> row_bytes, offsets;  // by tensor; offsets from the start of the file
};

struct Piece {
  const Placed* placed;
  int64_t first, rows;
};

struct Plan {
  std::string head;  // header length and header
  std::vector<Placed> placed;
  int64_t file_bytes = 0;
};

Plan plan_file(std::span<const TensorSource> sources) {
  struct Slot {
    const NewTensor* tensor;
    int64_t bytes;
    int64_t* offset;
  };
  Plan plan;
  std::vector<Slot> slots;
  for (const TensorSource& source : sources) {
    const size_t n = source.tensors.size();
    Placed placed{
        .source = &source, .row_bytes = std::vector<int64_t>(n), .offsets = std::vector<int64_t>(n)};
    for (size_t i = 0; i < n; ++i) {
      const int64_t bytes = bytes_of(source.tensors[i]);
      FATHOM_EXPECT(source.rows > 0 ? bytes % source.rows == 0 : bytes == 0,
                    fmt::format("{} is no {} equal rows", source.tensors[i].name, source.rows));
      placed.row_bytes[i] = source.rows > 0 ? bytes / source.rows : 0;
      slots.push_back(
          {&source.tensors[i], bytes, &placed.offsets[i]});  // the pointers survive moving the vectors
    }
    plan.placed.push_back(std::move(placed));
  }
  std::stable_sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
    return traits(a.tensor->dtype).bits > traits(b.tensor->dtype).bits;
  });

  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};  // transformers refuses a file without it
  int64_t data_bytes    = 0;
  for (const Slot& slot : slots) {
    FATHOM_EXPECT(!header.contains(slot.tensor->name), slot.tensor->name + " is given twice");
    *slot.offset              = data_bytes;
    header[slot.tensor->name] = {{"dtype", format_name(slot.tensor->dtype)},
                                 {"shape", slot.tensor->shape},
                                 {"data_offsets", {data_bytes, data_bytes + slot.bytes}}};
    data_bytes += slot.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data begins at a multiple of 8
  for (size_t i = 0; i < 8; ++i) plan.head += static_cast<char>(text.size() >> (8 * i) & 255);
  plan.head += text;
  for (Placed& placed : plan.placed)
    for (int64_t& offset : placed.offsets) offset += static_cast<int64_t>(plan.head.size());
  plan.file_bytes = static_cast<int64_t>(plan.head.size()) + data_bytes;
  return plan;
}

std::vector<Piece> cut(const Plan& plan) {
  std::vector<Piece> pieces;
  for (const Placed& placed : plan.placed) {
    const int64_t row_bytes = std::accumulate(placed.row_bytes.begin(), placed.row_bytes.end(), int64_t{0});
    if (row_bytes == 0) continue;
    const int64_t max_rows = std::max<int64_t>(kPieceBytes / row_bytes, 1);
    for (int64_t first = 0; first < placed.source->rows; first += max_rows)
      pieces.push_back({&placed, first, std::min(max_rows, placed.source->rows - first)});
  }
  return pieces;
}

// Returns the number of bytes written. `buffer` belongs to the calling thread.
int64_t write_piece(const NewFile& file, const Piece& piece, std::vector<std::byte>& buffer) {
  const Placed& placed = *piece.placed;
  int64_t bytes        = 0;
  for (const int64_t row_bytes : placed.row_bytes) bytes += piece.rows * row_bytes + 63;
  buffer.resize(static_cast<size_t>(bytes));

  std::vector<std::span<std::byte>> out;
  std::span<std::byte> rest(buffer);
  bytes = 0;
  for (const int64_t row_bytes : placed.row_bytes) {
    const auto size = static_cast<size_t>(piece.rows * row_bytes);
    // Starts on a cache line, so that the tensor is aligned here as in the file.
    rest = rest.subspan(-reinterpret_cast<uintptr_t>(rest.data()) % 64);
    out.push_back(rest.first(size));
    rest = rest.subspan(size);
    bytes += static_cast<int64_t>(size);
  }
  placed.source->fill(piece.first, piece.rows, out);
  for (size_t i = 0; i < out.size(); ++i)
    file.write(placed.offsets[i] + piece.first * placed.row_bytes[i], out[i]);
  return bytes;
}

}  // namespace

Result<int64_t> write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                                  ThreadPool& pool, const WriteProgress& progress, Durable durable) {
  const Plan plan                 = plan_file(sources);
  const std::vector<Piece> pieces = cut(plan);
  auto file                       = NewFile::create(path, plan.file_bytes);
  if (!file) return file.error();
  file->write(0, std::as_bytes(std::span(plan.head)));

  std::atomic<size_t> next  = 0;
  std::atomic<int64_t> done = static_cast<int64_t>(plan.head.size());
  pool.run([&](int worker) {
    std::vector<std::byte> buffer;
    try {
      for (size_t i = next++; i < pieces.size(); i = next++) {
        done += write_piece(*file, pieces[i], buffer);
        if (worker == 0 && progress) progress(done, plan.file_bytes);
      }
    } catch (...) {
      next = pieces.size();  // stops the other threads
      throw;
    }
  });
  if (durable == Durable::yes) file->sync();
  file->publish();
  if (progress) progress(plan.file_bytes, plan.file_bytes);
  return plan.file_bytes;
}

}  // namespace fathom::model
