#include "model/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "core/buffer.h"
#include "core/expect.h"
#include "core/strict_json.h"
#include "model/safetensors_dtypes.h"

namespace fathom::model {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxRank     = 16;

// A tensor's header entry.
struct Entry {
  const std::string* name;
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

// Empty if the product of the nonzero extents overflows, because a view's strides would too.
std::optional<uint64_t> bits_of(const std::vector<int64_t>& shape, DType dtype) {
  uint64_t bits = static_cast<uint64_t>(traits(dtype).bits);
  bool empty    = false;
  for (const int64_t extent : shape) {
    empty |= extent == 0;
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(std::max(extent, int64_t{1})), &bits)) return {};
  }
  return empty ? 0 : bits;
}

// Checks one entry by itself.
Result<Entry> read_entry(const std::string& name, const Json& json, uint64_t data_bytes) {
  const auto wrong = [&](std::string_view why) {
    return Error{fmt::format("tensor {}: {}", in_quotes(name), why)};
  };
  if (!json.is_object()) return wrong("its entry is no object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!json.contains(key)) return wrong(fmt::format("'{}' is missing", key));

  Entry entry{.name = &name, .dtype = {}, .shape = {}, .begin = 0, .end = 0};
  const Json& dtype = json["dtype"];
  if (!dtype.is_string()) return wrong("'dtype' is no string");
  const auto format = std::find_if(std::begin(kSafetensorsDTypes), std::end(kSafetensorsDTypes),
                                   [&](const SafetensorsDType& f) { return dtype == f.name; });
  if (format == std::end(kSafetensorsDTypes))
    return wrong(fmt::format("dtype {} is none that is read here", in_quotes(dtype.get<std::string>())));
  entry.dtype = format->dtype;

  const Json& shape = json["shape"];
  if (!shape.is_array() || shape.size() > kMaxRank)
    return wrong(fmt::format("'shape' is no list of at most {} numbers", kMaxRank));
  for (const Json& extent : shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > std::numeric_limits<int64_t>::max())
      return wrong("'shape' has what is no size");
    entry.shape.push_back(extent.get<int64_t>());
  }

  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return wrong("'data_offsets' is no pair of numbers");
  entry.begin = offsets[0], entry.end = offsets[1];
  if (entry.begin > entry.end) return wrong("it ends before it begins");
  if (entry.end > data_bytes)
    return wrong(fmt::format("it ends at byte {} of the data, which has {}: the file is truncated", entry.end,
                             data_bytes));

  const auto bits = bits_of(entry.shape, entry.dtype);
  if (!bits || *bits % 8 != 0 || *bits / 8 != entry.end - entry.begin)
    return wrong(fmt::format("it has {} bytes, which is not what {} [{}] needs", entry.end - entry.begin,
                             format->name, fmt::join(entry.shape, ", ")));
  return entry;
}

// The tensors must fill the data. A byte that belongs to two tensors or to none means damage or an attack.
Status check_cover(std::vector<Entry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t filled = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != filled)
      return Error{fmt::format("tensor {}: it begins at byte {}, which leaves {} the tensor before it",
                               in_quotes(*entry.name), entry.begin,
                               entry.begin < filled ? "an overlap with" : "a gap after")};
    filled = entry.end;
  }
  if (filled != data_bytes)
    return Error{fmt::format("its tensors end at byte {} of the data, which has {}", filled, data_bytes)};
  return Ok{};
}

Result<TensorMap> parse(std::span<const std::byte> file) {
  if (file.size() < 8) return Error{fmt::format("its {} bytes are no header: it is truncated", file.size())};
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | static_cast<uint64_t>(file[i]);
  if (header_bytes > kMaxHeader)
    return Error{fmt::format("its header claims {} bytes: this is no safetensors file", header_bytes)};
  if (header_bytes > file.size() - 8)
    return Error{fmt::format("its header has {} bytes, more than the file: it is truncated", header_bytes)};
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  if (text.empty() || text[0] != '{') return Error{"its header does not begin with '{'"};

  const auto header = parse_strict_json(text);
  if (!header) return header.error();

  const auto data = file.subspan(8 + header_bytes);
  std::vector<Entry> entries;
  for (const auto& [tensor, json] : header->items()) {
    if (tensor == "__metadata__") continue;
    auto entry = read_entry(tensor, json, data.size());
    if (!entry) return entry.error();
    entries.push_back(*std::move(entry));
  }
  if (const auto status = check_cover(entries, data.size()); !status) return status.error();

  TensorMap tensors;
  for (Entry& entry : entries) {
    const uint64_t alignment = std::max(traits(entry.dtype).bits / 8, 1);
    if ((8 + header_bytes + entry.begin) % alignment != 0)
      return Error{
          fmt::format("tensor {}: it is not aligned to its {} bytes: save it with a newer safetensors",
                      in_quotes(*entry.name), alignment)};
    tensors.emplace(*entry.name, Tensor{.dtype = entry.dtype,
                                        .shape = std::move(entry.shape),
                                        .bytes = data.subspan(entry.begin, entry.end - entry.begin)});
  }
  return tensors;
}

// A shard must be a file beside the index, because another path could leave the model's folder.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<TensorMap> parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  FATHOM_EXPECT(reinterpret_cast<uintptr_t>(file.data()) % 8 == 0,
                "a safetensors file in memory must begin at a multiple of 8: its views would be misaligned");
  auto tensors = parse(file);
  if (!tensors) return Error{fmt::format("{}: {}: fetch it again", name, tensors.error().message)};
  return tensors;
}

// The bytes of a file, mapped read-only or copied.
class Safetensors::File {
 public:
  static Result<std::shared_ptr<const File>> open(const std::filesystem::path& path, Load load) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not block
    if (fd == -1)
      return Error{fmt::format("{}: {}: name a file that can be read", path.string(), std::strerror(errno))};
    auto file = of(fd, path, load);
    ::close(fd);
    return file;
  }

  File(void* mapped, size_t size) : data_(static_cast<const std::byte*>(mapped)), size_(size) {}
  explicit File(Buffer<std::byte> copy)
      : data_(copy.data()), size_(static_cast<size_t>(copy.size())), copy_(std::move(copy)) {}
  File(const File&)            = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (size_ > 0 && !copy_.data()) ::munmap(const_cast<std::byte*>(data_), size_);
  }

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  static Result<std::shared_ptr<const File>> of(int fd, const std::filesystem::path& path, Load load) {
    struct stat status;
    FATHOM_SYSTEM(::fstat(fd, &status));
    if (!S_ISREG(status.st_mode)) return Error{fmt::format("{}: no regular file: name one", path.string())};
    const auto size = static_cast<size_t>(status.st_size);
    if (size == 0) return std::make_shared<const File>(nullptr, 0);
    if (load == Load::copied) return copied(fd, path, status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
      return Error{fmt::format("{}: cannot be mapped: {}: copy it to a local disk", path.string(),
                               std::strerror(errno))};
    return std::make_shared<const File>(data, size);
  }

  static Result<std::shared_ptr<const File>> copied(int fd, const std::filesystem::path& path, int64_t size) {
    Buffer<std::byte> copy;
    try {
      copy = Buffer<std::byte>(size);
    } catch (const std::bad_alloc&) {
      return Error{fmt::format("{}: there is no memory to copy its {} bytes: free some, or map it",
                               path.string(), size)};
    }
    for (int64_t done = 0; done < size;) {
      const ssize_t n = ::read(fd, copy.data() + done, static_cast<size_t>(size - done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        return Error{fmt::format("{}: {} of {} bytes can be read: {}", path.string(), done, size,
                                 n < 0 ? std::strerror(errno) : "it became shorter meanwhile")};
      done += n;
    }
    return std::make_shared<const File>(std::move(copy));
  }

  const std::byte* data_;
  size_t size_;
  Buffer<std::byte> copy_;  // empty: mapped
};

Result<Safetensors> Safetensors::open(const std::filesystem::path& path, Load load) {
  std::error_code ignored;  // a missing path is no folder; opening it reports the error
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    file = path / "model.safetensors.index.json";
    if (!std::filesystem::exists(file, ignored)) file = path / "model.safetensors";
    if (!std::filesystem::exists(file, ignored))
      return Error{fmt::format(
          "{}: holds neither model.safetensors.index.json nor model.safetensors: name a model's folder",
          path.string())};
  }
  Safetensors set;
  set.path_         = file.string();
  const auto status = file.extension() == ".json" ? set.add_set(file, load) : set.add_file(file, load);
  if (!status) return status.error();
  return set;
}

Status Safetensors::add_file(const std::filesystem::path& path, Load load) {
  auto file = File::open(path, load);
  if (!file) return file.error();
  auto tensors = parse_safetensors((*file)->bytes(), path.string());
  if (!tensors) return tensors.error();
  files_.push_back(*file);
  tensors_.merge(*tensors);
  if (!tensors->empty())  // merge() leaves duplicates behind
    return Error{fmt::format("{}: tensor {} is in another shard too: fetch the set again", path.string(),
                             in_quotes(tensors->begin()->first))};
  return Ok{};
}

Status Safetensors::add_set(const std::filesystem::path& index, Load load) {
  const auto wrong = [&](std::string_view why) {
    return Error{fmt::format("{}: {}: fetch the set again", index.string(), why)};
  };
  const auto file = File::open(index, Load::mapped);
  if (!file) return file.error();
  const auto bytes = (*file)->bytes();
  if (bytes.size() > kMaxHeader) return wrong("it is too large for an index");
  const auto json = parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json) return wrong(json.error().message);
  if (!json->is_object() || !json->contains("weight_map") || !(*json)["weight_map"].is_object())
    return wrong("it has no object 'weight_map'");

  std::map<std::string, std::set<std::string>> shards;  // tensors by shard
  for (const auto& [tensor, shard] : (*json)["weight_map"].items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get<std::string>()))
      return wrong(fmt::format("the shard of tensor {} is no plain file name", in_quotes(tensor)));
    shards[shard.get<std::string>()].insert(tensor);
  }
  for (const auto& [shard, names] : shards) {
    const size_t before = tensors_.size();
    if (const auto status = add_file(index.parent_path() / shard, load); !status) return status.error();
    for (const std::string& name : names)
      if (!tensors_.contains(name))
        return wrong(fmt::format("tensor {} is not in {}", in_quotes(name), in_quotes(shard)));
    if (tensors_.size() - before != names.size())
      return wrong(fmt::format("{} holds {} tensors, not the {} that the index lists", in_quotes(shard),
                               tensors_.size() - before, names.size()));
  }
  return Ok{};
}

const Tensor* Safetensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<const Tensor*> Safetensors::checked(std::string_view name, DType dtype, int rank) const {
  const Tensor* tensor = find(name);
  if (!tensor) return Error{fmt::format("{}: tensor {} is missing", path_, in_quotes(name))};
  if (tensor->dtype != dtype || tensor->shape.size() != static_cast<size_t>(rank))
    return Error{fmt::format("{}: tensor {} is {} of rank {}, not {} of rank {}", path_, in_quotes(name),
                             traits(tensor->dtype).name, tensor->shape.size(), traits(dtype).name, rank)};
  return tensor;
}

}  // namespace fathom::model
