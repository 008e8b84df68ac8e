// Writes a safetensors file whose tensors are computed while they are written, piece by piece on all threads,
// so that a model need not fit in memory. Reading, and the format: model/safetensors.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace fathom::model {

struct NewTensor {
  std::string name;
  DType dtype = DType::uint8;
  std::vector<int64_t> shape;
};

// One tensor, or several computed together, such as the values and scales of an MXFP4 matrix. Each has `rows`
// rows of equal bytes. `fill` computes rows first .. first + n of tensors[i] into out[i]. It is called
// concurrently, in any order, once for every row.
struct TensorSource {
  std::vector<NewTensor> tensors;
  int64_t rows = 0;
  std::function<void(int64_t first, int64_t n, std::span<const std::span<std::byte>> out)> fill;
};

// Whether the file must outlive a power cut: its contents are flushed before it has its name. No: for what
// can be made again.
enum class Durable { no, yes };

using WriteProgress =
    std::function<void(int64_t done, int64_t total)>;  // in bytes; called on the calling thread

// Writes the file atomically (core/atomic_file.h). Exceptions of `fill` propagate. Takes a few MiB of memory
// for each thread, or a row where that is more. Tensors are stored in the given order, wider types first, so
// that each is aligned. Returns the size of the file in bytes.
Result<int64_t> write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                                  ThreadPool& pool, const WriteProgress& progress = {},
                                  Durable durable = Durable::yes);

}  // namespace fathom::model
