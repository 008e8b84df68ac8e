#include "cuda/device_name.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fathom {
namespace {

TEST(DeviceIds, AreReadAndWritten) {
  EXPECT_EQ(parse_device_id("cuda").value(), DeviceId{0});
  EXPECT_EQ(parse_device_id("cuda:0").value(), DeviceId{0});
  EXPECT_EQ(parse_device_id("cuda:17").value(), DeviceId{17});
  EXPECT_EQ(to_string(DeviceId{3}), "cuda:3");
}

TEST(DeviceIds, ErrorsNameTheText) {
  for (const char* text : {"", "gpu", "cpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:64", "cuda: 1",
                           "cuda:99999999999", "Cuda", "cuda1"}) {
    const auto id = parse_device_id(text);
    ASSERT_FALSE(id) << text;
    EXPECT_EQ(id.error().message.find(std::string(text) + " is no device"), 0u) << id.error().message;
  }
}

TEST(DeviceIds, OutOfRangeNamesWhatIsVisible) {
  const char* const set     = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string earlier = set ? set : "";
  setenv("CUDA_VISIBLE_DEVICES", "4,6", 1);
  EXPECT_EQ(no_such_device(DeviceId{3}, 2), "cuda:3: this process sees 2 GPUs (CUDA_VISIBLE_DEVICES=4,6)");
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(no_such_device(DeviceId{1}, 1),
            "cuda:1: this process sees 1 GPU (CUDA_VISIBLE_DEVICES is not set)");
  if (set) setenv("CUDA_VISIBLE_DEVICES", earlier.c_str(), 1);
}

}  // namespace
}  // namespace fathom
