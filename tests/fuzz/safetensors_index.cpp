// model.safetensors.index.json of a folder with two good shards: any bytes give either the shards' tensors or
// an error, and no file outside the folder is opened.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "model/safetensors.h"
#include "model/safetensors_writer.h"

namespace {

namespace fs = std::filesystem;
using namespace fathom;

// <temporary>/outside.safetensors and <temporary>/model/{a,b}.safetensors; removed at exit.
class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "fathom_fuzz_XXXXXX";
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder: set TMPDIR");
    path_ = name;
    fs::create_directory(path_ / "model");
    write_one("outside.safetensors", "t", 2);
    write_one("model/a.safetensors", "t", 1);
    write_one("model/b.safetensors", "u", 1);
  }
  ~Folder() {
    std::error_code nobody_to_tell;
    fs::remove_all(path_, nobody_to_tell);
  }
  fs::path model() const { return path_ / "model"; }

 private:
  void write_one(const char* file, const char* tensor, int byte) {
    ThreadPool pool(1);
    const model::TensorSource source{
        .tensors = {{tensor, DType::uint8, {3}}},
        .rows    = 1,
        .fill    = [=](int64_t, int64_t, std::span<const std::span<std::byte>> out) {
          std::memset(out[0].data(), byte, out[0].size());
        }};
    const auto written = model::write_safetensors(path_ / file, {&source, 1}, pool);
    if (!written) throw std::runtime_error(written.error().message);
  }

  fs::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder kFolder;
  std::ofstream(kFolder.model() / "model.safetensors.index.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto set = model::Safetensors::open(kFolder.model());
  if (!set) {
    FATHOM_EXPECT(set.error().message.starts_with(kFolder.model().string()), "an error must name its file");
    return 0;
  }
  for (const auto& [name, tensor] : set->tensors())
    FATHOM_EXPECT((name == "t" || name == "u") && tensor.bytes.size() == 3 && tensor.bytes[2] == std::byte{1},
                  "a tensor is none of the shards'");
  return 0;
}
