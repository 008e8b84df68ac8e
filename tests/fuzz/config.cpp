// config.json: any bytes give either a config that passes validation or an error.
#include "model/config.h"

#include "core/expect.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom::model;
  const auto config = parse_config({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!config) {
    FATHOM_EXPECT(config.error().message.starts_with("config.json: "), "an error must name its file");
    return 0;
  }
  const Footprint f = footprint(*config);
  FATHOM_EXPECT(static_cast<int64_t>(config->layers.size()) == config->num_hidden_layers,
                "a layer has no type");
  FATHOM_EXPECT(f.active_parameters > 0 && f.parameters >= f.active_parameters,
                "counts of parameters overflowed");
  FATHOM_EXPECT(f.bytes_read_by_token > 0 && f.checkpoint_bytes >= f.bytes_read_by_token,
                "counts of bytes overflowed");
  FATHOM_EXPECT(f.kv_bytes_per_token >= 0 && f.kv_window_bytes >= 0, "sizes of the KV cache overflowed");
  return 0;
}
