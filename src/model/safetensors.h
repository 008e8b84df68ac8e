// Reads safetensors: tensors in one file or a sharded set, memory-mapped or copied.
//
// A file is 8 bytes N (little endian), N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [b, e]}},
// and data. For any bytes, opening either fails or yields tensors whose views are inside the file and
// aligned for their type. Truncating a file while it is mapped kills its readers (SIGBUS).
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/view.h"

namespace fathom::model {

struct Tensor {
  DType dtype = DType::uint8;
  std::vector<int64_t> shape;  // in elements; fp4_e2m1 packs two in a byte, the first in the low nibble
  std::span<const std::byte> bytes;
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;

// Parses a file in memory. Its address must be a multiple of 8. The tensors point into it and must fill the
// data without gap or overlap. `name` is for messages.
Result<TensorMap> parse_safetensors(std::span<const std::byte> file, const std::string& name);

class Safetensors {
 public:
  // mapped: nothing is copied, and a page is read from disk when it is first touched. copied: the files are
  // read into memory in huge pages, which a core reads faster than the 4 KiB pages of a mapped file:
  // prefetchers stop at the end of a page.
  enum class Load { mapped, copied };

  // Opens a file, a sharded set by its index (*.index.json, shards in the same folder), or a folder that has
  // model.safetensors.index.json or model.safetensors.
  static Result<Safetensors> open(const std::filesystem::path& path, Load load = Load::mapped);

  const TensorMap& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;  // null if missing
  const std::string& path() const { return path_; }

  // A row-major view, valid while this object, or the one it was moved to, lives.
  template <class T, int Rank>
  Result<View<const T, Rank>> view(std::string_view name) const {
    static_assert(traits(dtype_of<T>).bits == 8 * sizeof(T),
                  "packed numbers have no view: use Tensor::bytes");
    const auto tensor = checked(name, dtype_of<T>, Rank);
    if (!tensor) return tensor.error();
    int64_t extents[Rank];
    for (int r = 0; r < Rank; ++r) extents[r] = (*tensor)->shape[static_cast<size_t>(r)];
    return View<const T, Rank>(reinterpret_cast<const T*>((*tensor)->bytes.data()), extents);
  }

 private:
  class File;

  Status add_file(const std::filesystem::path& file, Load load);
  Status add_set(const std::filesystem::path& index, Load load);
  Result<const Tensor*> checked(std::string_view name, DType dtype, int rank) const;

  std::string path_;
  std::vector<std::shared_ptr<const File>> files_;
  TensorMap tensors_;
};

}  // namespace fathom::model
