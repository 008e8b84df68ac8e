// A request to a disk has a price of its own, whatever its size. Large reads pay it rarely. Through the page
// cache small reads are joined to larger ones by read-ahead, for the price of a copy.
#include "lab/experiment.h"
#include "read_size.h"

namespace fathom::lab::read_size {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

const Experiment<BlockScan> read_size{
    .question = "How large must sequential reads be, through the page cache and past it?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"read", {4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}},
                 {"blocks", {4096}}},
    .check_at = {{"read", {4 * kKiB, 64 * kKiB, kMiB}}, {"blocks", {0, 1, 15, 16, 17, 61, 257}}},
    .variants =
        {
            {.id         = "buffered",
             .launch     = buffered,
             .techniques = {},
             .idea       = "pread from a file that is not in the page cache; the kernel reads ahead"},
            {.id         = "direct",
             .launch     = direct,
             .techniques = {"direct_io", "sequential_io"},
             .idea       = "O_DIRECT: one request to the device for each read",
             .prediction = predict::ratio_at_least(0.9)},
        },
    .catalog = {"storage-003"},
};
FATHOM_REGISTER(read_size);

}  // namespace fathom::lab::read_size
