// A safetensors file: any bytes give either aligned tensors inside the file that do not overlap, or an error.
// Input that begins with '{' is a header and, after a zero byte, data; the target builds the file from them,
// so that mutations may change lengths.
#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/expect.h"

namespace {

std::string file_of(std::string input) {
  if (input.empty() || input[0] != '{') return input;
  std::string header     = input.substr(0, input.find('\0'));
  const std::string data = header.size() < input.size() ? input.substr(header.size() + 1) : std::string();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  const std::string file = file_of({reinterpret_cast<const char*>(data), size});
  std::vector<uint64_t> aligned(file.size() / 8 + 1);
  std::memcpy(aligned.data(), file.data(), file.size());
  const auto bytes   = std::as_bytes(std::span(aligned)).first(file.size());
  const auto tensors = model::parse_safetensors(bytes, "file");
  if (!tensors) {
    FATHOM_EXPECT(tensors.error().message.starts_with("file: "), "an error must name its file");
    return 0;
  }
  size_t total = 0;
  for (const auto& [name, tensor] : *tensors) {
    const std::byte* begin = tensor.bytes.data();
    total += tensor.bytes.size();
    if (tensor.bytes.empty()) continue;
    FATHOM_EXPECT(begin >= bytes.data() && begin + tensor.bytes.size() <= bytes.data() + bytes.size(),
                  "a tensor lies outside the file");
    FATHOM_EXPECT(reinterpret_cast<uintptr_t>(begin) % std::max(traits(tensor.dtype).bits / 8, 1) == 0,
                  "a tensor is misaligned");
    int64_t bits = traits(tensor.dtype).bits;
    for (const int64_t extent : tensor.shape) bits *= extent;  // no overflow: the tensor lies in the file
    FATHOM_EXPECT(bits == 8 * static_cast<int64_t>(tensor.bytes.size()),
                  "a tensor's size is not its shape's");
  }
  FATHOM_EXPECT(total <= bytes.size(), "tensors overlap");
  return 0;
}
