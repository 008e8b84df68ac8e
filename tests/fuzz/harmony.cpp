// The output of a model: any token ids, two bytes each, give messages with well-formed text, equal to the
// streamed text.
#include "model/harmony.h"

#include <string>

#include "core/expect.h"
#include "core/utf8.h"
#include "tests/fuzz/synthetic.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  using namespace fathom::model;
  static const HarmonyTokens kTokens = HarmonyTokens::find(synthetic()).value();
  HarmonyParser parser(synthetic(), kTokens);
  std::string streamed;
  const auto take = [&](const std::string& part) {
    FATHOM_EXPECT(is_well_formed(part), "a part of the stream is no UTF-8");
    streamed += part;
  };
  for (size_t i = 0; i + 1 < size; i += 2) take(parser.add(data[i] | data[i + 1] << 8));
  take(parser.finish());

  std::string all;
  for (const HarmonyMessage& m : parser.messages()) {
    for (const std::string* text : {&m.role, &m.recipient, &m.channel, &m.content_type, &m.content})
      FATHOM_EXPECT(is_well_formed(*text), "a message is no UTF-8");
    all += m.content;
  }
  FATHOM_EXPECT(streamed == all, "the stream is not the messages' content");
  return 0;
}
