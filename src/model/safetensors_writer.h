// Writes a safetensors file whose tensors are made as they are written, piece by piece on all threads, so
// that a model need not fit in memory. The format, and reading: model/safetensors.h.
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

// One tensor, or several that come from one computation, as an MXFP4 matrix's values and scales do. Each is
// `rows` equal runs of bytes; `fill` makes rows first .. first + n of each of them, out[i] for tensors[i]. It
// is called on several threads at once, in no order, once for every row.
struct TensorSource {
  std::vector<NewTensor> tensors;
  int64_t rows = 0;
  std::function<void(int64_t first, int64_t n, std::span<const std::span<std::byte>> out)> fill;
};

using WriteProgress = std::function<void(int64_t done, int64_t total)>;  // bytes; on the calling thread

// The file appears whole or not at all (model/new_file.h); what `fill` throws comes through. Memory: a few
// MiB a thread, or a row where that is more. Tensors lie in the order given, wider types first, so that each
// is aligned. Returns the size of the file in bytes.
Result<int64_t> write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                                  ThreadPool& pool, const WriteProgress& progress = {});

}  // namespace fathom::model
